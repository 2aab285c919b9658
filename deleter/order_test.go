package deleter

import (
	"testing"
	"time"
)

// The evidence judged on facts. The script says the same to a real server in
// integration.
func TestVerdict(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	ofTTL := func(ttl int64) facts { return facts{Type: "list", Elements: 5, Bytes: Unknown, TTL: ttl} }
	list := func(n, bytes int64) facts { return facts{Type: "list", Elements: n, Bytes: bytes, TTL: Unknown} }
	gone := facts{Type: "none", Elements: 0, Bytes: Unknown, TTL: -2}
	for _, test := range []struct {
		name     string
		evidence Evidence
		facts    facts
		act      act
		want     Status
	}{
		{"nothing asked", Evidence{}, list(5, Unknown), actUnlink, Acted},
		{"gone", Evidence{MinElements: 1}, gone, actUnlink, StillGone},
		{"another type", Evidence{}, facts{Type: "hash", Elements: 5}, actUnlink, Unmet},
		{"another type, for DEL", Evidence{}, facts{Type: "hash", Elements: 5000}, actDel, Unmet},
		{"as many elements", Evidence{MinElements: 5}, list(5, Unknown), actUnlink, Acted},
		{"one too few", Evidence{MinElements: 6}, list(5, Unknown), actUnlink, Unmet},
		{"elements unknown", Evidence{MinElements: 1}, list(Unknown, Unknown), actUnlink, Unmet},
		{"as many bytes", Evidence{MinBytes: 100}, list(5, 100), actUnlink, Acted},
		{"one byte less", Evidence{MinBytes: 100}, list(5, 99), actUnlink, Unmet},
		{"bytes unknown", Evidence{MinBytes: 1}, list(5, Unknown), actUnlink, Unmet},
		{"small enough for DEL", Evidence{}, list(SmallElements, Unknown), actDel, Acted},
		{"grown", Evidence{}, list(SmallElements+1, Unknown), actDel, Grown},
		{"grown, but to be set aside", Evidence{}, list(SmallElements+1, Unknown), actAside, Acted},
		{"no TTL, as asked", Evidence{NoTTL: true}, ofTTL(NoTTL), actUnlink, Acted},
		{"got a TTL", Evidence{NoTTL: true}, ofTTL(1), actUnlink, Unmet},
		{"under", Evidence{TTLUnder: time.Hour}, ofTTL(hour - 1), actUnlink, Acted},
		{"not under", Evidence{TTLUnder: time.Hour}, ofTTL(hour), actUnlink, Unmet},
		{"under, but none", Evidence{TTLUnder: time.Hour}, ofTTL(NoTTL), actUnlink, Unmet},
		{"over", Evidence{TTLOver: time.Hour}, ofTTL(hour + 1), actUnlink, Acted},
		{"not over", Evidence{TTLOver: time.Hour}, ofTTL(hour), actUnlink, Unmet},
		{"over, but none", Evidence{TTLOver: time.Hour}, ofTTL(NoTTL), actUnlink, Unmet},
		{"between", Evidence{TTLOver: time.Second, TTLUnder: time.Hour}, ofTTL(2000), actUnlink, Acted},
		{"none and under", Evidence{NoTTL: true, TTLUnder: time.Hour}, ofTTL(NoTTL), actUnlink, Unmet},
		{"expired meanwhile", Evidence{TTLUnder: time.Hour}, ofTTL(-2), actUnlink, StillGone},
		{"expires at once", Evidence{TTLUnder: time.Hour}, ofTTL(0), actUnlink, Acted},
		{"less than a millisecond is a condition", Evidence{TTLUnder: time.Microsecond}, ofTTL(NoTTL), actUnlink, Unmet},
		{"also over", Evidence{TTLOver: time.Microsecond}, ofTTL(1), actUnlink, Unmet},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Order{Key: "a", Type: "list", Evidence: test.evidence}
			if got := verdictOf(&o, sight{facts: test.facts}, test.act); got.Status != test.want || got.Err != nil {
				t.Errorf("%v, want %s", got, test.want)
			}
		})
	}
}

// What the script is told is what Go judges by: no threshold turns into none.
func TestVerdictArguments(t *testing.T) {
	store, _ := newStore(t, byScript, nil)
	for d, want := range map[time.Duration]string{
		0: "0", time.Nanosecond: "1", time.Millisecond: "1", 1500 * time.Microsecond: "2", 290 * 365 * 24 * time.Hour: "9145440000000",
	} {
		o := Order{Evidence: Evidence{TTLUnder: d, TTLOver: d}}
		if args := store.verdictArgs(&o, actUnlink); args[5] != want || args[6] != want {
			t.Errorf("%v: %v, want %s", d, args[5:7], want)
		}
	}
}
