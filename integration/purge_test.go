package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/jobs"
)

// sweeps are the servers on which the step that removes a small key is also
// the first that looks at it.
func (b serverBinary) sweeps() bool { return b.hasUnlink() }

func (b serverBinary) hasStreams() bool { return b.since(5, 0) }

// mixed writes what a prefix may hold: small keys of all types and the odd
// ones among them.
func mixed(t *testing.T, d *deployment, small int) (removed []keyID) {
	t.Helper()
	add := func(key string) { removed = append(removed, keyID{0, key}) }
	loaders := map[*server]*loader{}
	at := func(key string) *loader {
		s := d.owner(key)
		if loaders[s] == nil {
			loaders[s] = newLoader(t, s.addr, 0)
		}
		return loaders[s]
	}
	fill := func(kind, key string, n int) { add(key); at(key).fill(kind, key, n) }
	for i := range small {
		kind := kinds[i%len(kinds)]
		fill(kind, fmt.Sprintf("p:%s:%d", kind, i), 1+i%90)
	}
	for _, kind := range aggregates {
		fill(kind, "p:large:"+kind, 5000)
		fill(kind, "p:just:"+kind, 1000)
		fill(kind, "p:one-more:"+kind, 1001)
	}
	// Few but huge elements, strings beside a mebibyte, an empty one.
	for i := range 5 {
		at("p:huge").cmd("HSET", "p:huge", fmt.Sprint(i), strings.Repeat("x", 400<<10))
	}
	add("p:huge")
	fill("string", "p:string:large", 3<<20)
	fill("string", "p:string:just", 1<<20)
	fill("string", "p:string:empty", 0)
	if d.bin.hasStreams() {
		for i := range 20 {
			at("p:stream").cmd("XADD", "p:stream", fmt.Sprint(i+1, "-1"), "field", "value")
		}
		add("p:stream")
	}
	for _, name := range hostileNames() {
		fill("list", "p:"+name, 3)
	}
	at("p:string:stalls").fill("string", "p:string:stalls", 40<<20)
	for i := range 50 {
		key := fmt.Sprintf("p:session:%d", i)
		at(key).fill("hash", key, 3)
	}
	for _, l := range loaders {
		l.close()
	}
	bystand(t, d, 0, 300)
	return removed
}

// What is removed by name alone, without a look beforehand, is what was
// removed when each key was measured first, and is told the same.
func TestPurgeMixed(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		t.Run("standalone", func(t *testing.T) { purgeMixed(t, standalone(t, b)) })
		if b.hasCluster() {
			t.Run("cluster", func(t *testing.T) { purgeMixed(t, startCluster(t, b)) })
		}
	})
}

func purgeMixed(t *testing.T, d *deployment) {
	t.Helper()
	const small = 2500
	var measured summary
	for _, lean := range []bool{false, true} {
		d.flush(t)
		removed := mixed(t, d, small)
		before := digestOf(t, d)
		o := newOperator(t)
		conf := o.file(t, "protect.yaml", "targets:\n  t: {addresses: [\""+d.masters[0].addr+"\"]}\nprotect: [\"p:session:*\"]\n")
		clean := args("clean", "--config", conf, "--target", "t", "--prefix", "p:", "--allow-stall", "2ms", "--execute", "--format", "json")
		if !lean { // what has a budget of elements is measured beforehand
			clean = append(clean, "--elements-per-second", "1000000000")
		}
		w := observe(t, d)
		s := o.run(t, clean...).exit(3).summary()
		w.nothingForbidden(t)
		mustEqual(t, before, digestOf(t, d), removed...)
		if got := s.Outcomes["protected"]; got != 50 {
			s.from.error("%d protected, want 50", got)
		}
		if got := s.Outcomes["failed"]; got != 1 {
			s.from.error("%d failed, want the one string that stalls", got)
		}
		if s.removed() != int64(len(removed)) {
			s.from.error("%d removed, %d are gone", s.removed(), len(removed))
		}
		s.complete(true)
		mustName(t, o, removed)
		told := false
		for _, f := range s.Findings {
			told = told || f.name(t) == "p:string:stalls" && f.Outcome == "failed" && strings.Contains(f.Reason, "--allow-stall")
			if f.Outcome == "unlinked" && (f.Type == "" || f.Bytes == nil && d.bin.hasMemoryUsage() || f.Elements == nil && f.Type != "string") {
				t.Errorf("a finding without what the act saw: %+v", f)
			}
		}
		if !told {
			t.Error("the string that stalls is not told")
		}
		if !lean {
			measured = s
			continue
		}
		if !maps.Equal(s.Outcomes, measured.Outcomes) || *s.ElementsRemoved != *measured.ElementsRemoved || s.KeysMatched != measured.KeysMatched {
			t.Errorf("lean: %v, %d elements of %d keys\nmeasured: %v, %d elements of %d keys",
				s.Outcomes, *s.ElementsRemoved, s.KeysMatched, measured.Outcomes, *measured.ElementsRemoved, measured.KeysMatched)
		}
		if off := *s.BytesReleased - *measured.BytesReleased; off > *measured.BytesReleased/10 || -off > *measured.BytesReleased/10 {
			t.Errorf("bytes released %d, measured %d", *s.BytesReleased, *measured.BytesReleased)
		}
		if calls := w.calls(t, "evalsha"); d.bin.sweeps() && !d.cluster && calls > small/3 {
			t.Errorf("%d scripts for %d keys", calls, small)
		}
	}
}

// mustName fails unless the audit has an intent for every key.
func mustName(t *testing.T, o *operator, want []keyID) {
	t.Helper()
	f, err := os.Open(filepath.Join(o.dir, "keyjanitor-state", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	named := map[string]bool{}
	for n, err := range jobs.NamesFromJSON(f, 0) {
		if err != nil {
			t.Fatal(err)
		}
		named[n.Name] = true
	}
	for _, k := range want {
		if !named[k.name] {
			t.Errorf("the audit has no intent for %s", k)
		}
	}
}

// Rules of all kinds select the same keys, looked at before or in the act.
func TestPurgeByRule(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		o := newOperator(t)
		for _, rule := range [][]string{
			{"--min-elements", "40"}, {"--min-bytes", "300B"}, {"--type", "hash", "--type", "string"},
			{"--no-ttl"}, {"--ttl-under", "2h"}, {"--ttl-over", "2h", "--min-elements", "5"}, {"--type", "list", "--min-elements", "1000"},
		} {
			if rule[0] == "--min-bytes" && !b.hasMemoryUsage() {
				continue
			}
			t.Run(strings.Join(rule, " "), func(t *testing.T) {
				d.flush(t)
				mixed(t, d, 1000)
				l := newLoader(t, d.masters[0].addr, 0)
				for i := range 1000 {
					if i%3 > 0 {
						l.cmd("EXPIRE", fmt.Sprintf("p:%s:%d", kinds[i%len(kinds)], i), fmt.Sprint(i%3*5000))
					}
				}
				l.close()
				before := digestOf(t, d)
				base := args("clean", "--url", d.url(), "--prefix", "p:", rule, "--format", "jsonl")
				found, _ := o.run(t, base...).exit(0, 3).stream()
				var want []keyID
				for _, f := range found {
					if f.Outcome == "would_act" {
						want = append(want, f.id(t))
					}
				}
				_, s := o.run(t, args(base, "--execute")...).exit(0, 3).stream()
				mustEqual(t, before, digestOf(t, d), want...)
				if s.removed() != int64(len(want)) || len(want) == 0 {
					t.Errorf("%d removed, want %d", s.removed(), len(want))
				}
			})
		}
	})
}

// Limits are exact although groups overlap.
func TestPurgeLimits(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		o := newOperator(t)
		for _, want := range []int64{1, 999, 1000, 1001, 2999, 4321} {
			d.flush(t)
			l := newLoader(t, d.masters[0].addr, 0)
			for i := range 5000 {
				l.fill(kinds[i%len(kinds)], fmt.Sprintf("p:%d", i), 2)
			}
			l.fill("hash", "p:large", 3000)
			l.close()
			before := d.size(t)
			s := o.run(t, "clean", "--url", d.url(), "--prefix", "p:", "--execute", "--format", "json",
				"--max-share", "100%", "--scan-share", "100%", "--max-keys", fmt.Sprint(want)).exit(4).summary()
			if gone := before - d.size(t); gone != want || s.removed() != want {
				s.from.error("%d are gone, %d told, the limit is %d", gone, s.removed(), want)
			}
		}
	})
}

// A signal ends a purge after the batch at hand, and its numbers are right.
func TestPurgeIsStopped(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		l := newLoader(t, d.masters[0].addr, 0)
		for i := range 20_000 {
			l.fill(kinds[i%len(kinds)], fmt.Sprintf("p:%d", i), 2)
		}
		l.close()
		o := newOperator(t)
		r := o.start(t, "clean", "--url", d.url(), "--prefix", "p:", "--execute", "--format", "json", "--commands-per-second", "4000")
		eventually(t, 30*time.Second, "a key is gone", func() bool { return d.size(t) < 20_000 || r.ended() })
		r.signal(syscall.SIGTERM)
		s := r.wait().exit(143).summary()
		if gone := 20_000 - d.size(t); s.removed() != gone || gone == 0 || gone == 20_000 {
			s.from.error("%d are gone, %d told", gone, s.removed())
		}
	})
}

// The script that removes many unmeasured keys judges each as the one for a
// single key does, whatever was guessed of its type.
func TestSweepJudges(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.sweeps, "has no UNLINK", func(t *testing.T, b serverBinary) {
		m := standalone(t, b).masters[0]
		can := deleter.Abilities{Unlink: true, Script: true, MemoryUsage: true}
		store := deleter.NewRedis(m.client(0), can)
		hour, minute := time.Hour, time.Minute
		type make func(l *loader, key string)
		fill := func(kind string, n int) make { return func(l *loader, key string) { l.fill(kind, key, n) } }
		ttl := func(seconds int) make {
			return func(l *loader, key string) { l.fill("set", key, 5); l.cmd("EXPIRE", key, fmt.Sprint(seconds)) }
		}
		huge := func(l *loader, key string) {
			for i := range 5 {
				l.cmd("HSET", key, fmt.Sprint(i), strings.Repeat("x", 400<<10))
			}
		}
		stream := func(l *loader, key string) { l.cmd("XADD", key, "1-1", "a", "b") }
		for i, c := range []struct {
			make     make
			typ      string
			evidence deleter.Evidence
			want     deleter.Status
		}{
			{fill("string", 5), "", deleter.Evidence{}, deleter.Acted},
			{fill("string", 0), "", deleter.Evidence{}, deleter.Acted},
			{fill("string", 1<<20), "", deleter.Evidence{}, deleter.Acted},
			{fill("string", 1<<20+1), "", deleter.Evidence{}, deleter.StillLarge},
			{fill("hash", 1000), "", deleter.Evidence{}, deleter.Acted},
			{fill("hash", 1001), "", deleter.Evidence{}, deleter.StillLarge},
			{fill("list", 1001), "list", deleter.Evidence{}, deleter.StillLarge},
			{fill("set", 1), "set", deleter.Evidence{}, deleter.Acted},
			{fill("zset", 9), "", deleter.Evidence{}, deleter.Acted},
			{huge, "", deleter.Evidence{}, deleter.StillLarge},
			{stream, "", deleter.Evidence{}, deleter.StillLarge},
			{stream, "hash", deleter.Evidence{}, deleter.Unmet},
			{func(*loader, string) {}, "", deleter.Evidence{}, deleter.StillGone},
			{func(*loader, string) {}, "hash", deleter.Evidence{MinElements: 1}, deleter.StillGone},
			{fill("set", 5), "hash", deleter.Evidence{}, deleter.Unmet},
			{fill("string", 5), "hash", deleter.Evidence{}, deleter.Unmet},
			{fill("hash", 5), "string", deleter.Evidence{}, deleter.Unmet},
			{fill("hash", 5), "", deleter.Evidence{MinElements: 6}, deleter.Unmet},
			{fill("hash", 6), "", deleter.Evidence{MinElements: 6}, deleter.Acted},
			{fill("string", 100), "", deleter.Evidence{MinElements: 1}, deleter.Unmet},
			{fill("string", 100), "", deleter.Evidence{MinBytes: 1000}, deleter.Unmet},
			{fill("string", 1000), "", deleter.Evidence{MinBytes: 1000}, deleter.Acted},
			{fill("list", 3), "", deleter.Evidence{MinBytes: 10_000}, deleter.Unmet},
			{ttl(100), "", deleter.Evidence{NoTTL: true}, deleter.Unmet},
			{fill("set", 5), "", deleter.Evidence{NoTTL: true}, deleter.Acted},
			{ttl(100), "", deleter.Evidence{TTLUnder: minute}, deleter.Unmet},
			{ttl(50), "", deleter.Evidence{TTLUnder: minute}, deleter.Acted},
			{ttl(100), "", deleter.Evidence{TTLOver: hour}, deleter.Unmet},
			{ttl(4000), "", deleter.Evidence{TTLOver: hour}, deleter.Acted},
			{ttl(4000), "", deleter.Evidence{TTLOver: hour, TTLUnder: 2 * hour}, deleter.Acted},
			{fill("set", 5), "", deleter.Evidence{TTLUnder: minute}, deleter.Unmet},
			{fill("set", 5), "", deleter.Evidence{TTLOver: hour}, deleter.Unmet},
		} {
			if fmt.Sprintf("%p", c.make) == fmt.Sprintf("%p", make(stream)) && !b.hasStreams() {
				continue
			}
			for guess := byte('0'); guess <= '5'; guess++ {
				key := fmt.Sprintf("key:%d:%c", i, guess)
				l := newLoader(t, m.addr, 0)
				c.make(l, key)
				c.make(l, key+":alone")
				l.close()
				o := deleter.Order{Key: key, Type: c.typ, Evidence: c.evidence}
				got := store.Sweep(t.Context(), []deleter.Order{o}, []byte{guess})[0]
				if got.Status != c.want || got.Err != nil {
					t.Errorf("case %d guessed %c: %+v, want %q", i, guess, got, c.want)
				}
				there := m.doInt(t, 0, "EXISTS", key)
				o.Key += ":alone"
				alone := store.Remove(t.Context(), []deleter.Order{o}, deleter.Unlink)[0]
				if c.want != deleter.StillLarge && alone.Status != got.Status || got.Status == deleter.Acted && got.Elements != alone.Elements {
					t.Errorf("case %d: %+v among many, %v alone", i, got, alone)
				}
				if gone := c.want == deleter.Acted || c.want == deleter.StillGone; gone == (there == 1) {
					t.Errorf("case %d guessed %c: %s, EXISTS %d", i, guess, got.Status, there)
				}
			}
		}
	})
}

// One script frees no more than one step may: what is beyond is not looked at.
func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.sweeps, "has no UNLINK", func(t *testing.T, b serverBinary) {
		m := standalone(t, b).masters[0]
		store := deleter.NewRedis(m.client(0), deleter.Abilities{Unlink: true, Script: true, MemoryUsage: true})
		for kind, c := range map[string]struct{ each, keys, most int }{"string": {1 << 20, 20, 8}, "zset": {900, 30, 11}} {
			l := newLoader(t, m.addr, 0)
			var orders []deleter.Order
			for i := range c.keys {
				key := fmt.Sprint(kind, i)
				l.fill(kind, key, c.each)
				orders = append(orders, deleter.Order{Key: key})
			}
			l.close()
			calls := 0
			for len(orders) > 0 {
				got := store.Sweep(t.Context(), orders, []byte(strings.Repeat("0", len(orders))))
				for i, r := range got {
					if r.Status != deleter.Acted || m.doInt(t, 0, "EXISTS", orders[i].Key) != 0 {
						t.Errorf("%s: %+v", orders[i].Key, r)
					}
				}
				if len(got) == 0 || len(got) > c.most {
					t.Fatalf("%d of %d keys in one step, at most %d", len(got), len(orders), c.most)
				}
				orders = orders[len(got):]
				if left := m.doInt(t, 0, "DBSIZE"); left != int64(len(orders)) {
					t.Errorf("%d are left, want %d", left, len(orders))
				}
				calls++
			}
			t.Logf("%d × %s in %d calls", c.keys, kind, calls)
		}
	})
}

// A user who may not run a command that a key needs loses that key only, and
// is told which command.
func TestPurgeRefused(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasACL, "has no ACL", func(t *testing.T, b serverBinary) {
		d := standalone(t, b, "user half on >half-9 ~* +@all -scard -zcard", "user part on >part-9 ~p:a* ~keyjanitor:* +@all")
		o := newOperator(t)
		for user, lost := range map[string]string{"half": "zset set", "part": ""} {
			d.flush(t)
			l := newLoader(t, d.masters[0].addr, 0)
			var removed []keyID
			for i := range 200 {
				kind := kinds[i%len(kinds)]
				key := fmt.Sprintf("p:%c:%d", 'a'+i%2, i)
				l.fill(kind, key, 4)
				if user == "half" && !strings.Contains(lost, kind) || user == "part" && i%2 == 0 {
					removed = append(removed, keyID{0, key})
				}
			}
			l.close()
			before := digestOf(t, d)
			url := strings.Replace(d.url(), "redis://", fmt.Sprintf("redis://%s:%s-9@", user, user), 1)
			r := o.run(t, "clean", "--url", url, "--prefix", "p:", "--execute", "--format", "json").exit(3)
			mustEqual(t, before, digestOf(t, d), removed...)
			s := r.summary()
			if s.removed() != int64(len(removed)) {
				r.error("%d told, %d are gone", s.removed(), len(removed))
			}
			text, _ := json.Marshal(s.Findings)
			if failed := s.Outcomes["failed"]; user == "half" && failed != int64(200-len(removed)) {
				r.error("%d failed: %s", failed, text)
			}
		}
	})
}
