package scanner

import (
	"reflect"
	"testing"
	"time"
)

func TestMatchName(t *testing.T) {
	for _, test := range []struct {
		name string
		rule Rule
		key  string
		want bool
	}{
		{"no filter", Rule{}, "", true},
		{"match", Rule{Match: []string{"x*", "a*"}}, "abc", true},
		{"no match", Rule{Match: []string{"x*", "b*"}}, "abc", false},
		{"prefix", Rule{Prefix: []string{"x", "ab"}}, "abc", true},
		{"prefix is literal", Rule{Prefix: []string{"a*"}}, "abc", false},
		{"prefix as the name", Rule{Prefix: []string{"abc"}}, "abc", true},
		{"longer than the name", Rule{Prefix: []string{"abcd"}}, "abc", false},
		{"both", Rule{Match: []string{"*c"}, Prefix: []string{"a"}}, "abc", true},
		{"one of both", Rule{Match: []string{"*d"}, Prefix: []string{"a"}}, "abc", false},
		{"excluded", Rule{Match: []string{"a*"}, Exclude: []string{"x", "*b*"}}, "abc", false},
		{"not excluded", Rule{Exclude: []string{"b*"}}, "abc", true},
	} {
		if got := test.rule.MatchName(test.key); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

func TestSelects(t *testing.T) {
	known := Key{Name: "a", Type: "hash", Bytes: 1000, Elements: 10, TTL: 60_000}
	with := func(change func(*Key)) Key {
		k := known
		change(&k)
		return k
	}
	forever := with(func(k *Key) { k.TTL = NoTTL })
	str := with(func(k *Key) { k.Type, k.Elements = "string", Unknown })
	for _, test := range []struct {
		name string
		rule Rule
		key  Key
		want bool
	}{
		{"nothing asked, nothing known", Rule{}, *blankKey("a"), true},
		{"name", Rule{Match: []string{"b"}}, known, false},
		{"type", Rule{Types: []string{"list", "hash"}}, known, true},
		{"other type", Rule{Types: []string{"list"}}, known, false},
		{"type unknown", Rule{Types: []string{"list"}}, *blankKey("a"), false},
		{"elements", Rule{MinElements: 10}, known, true},
		{"one too few", Rule{MinElements: 11}, known, false},
		{"elements of a string", Rule{MinElements: 1}, str, false},
		{"elements unknown", Rule{MinElements: 1}, *blankKey("a"), false},
		{"bytes", Rule{MinBytes: 1000}, known, true},
		{"one byte less", Rule{MinBytes: 1001}, known, false},
		{"bytes unknown", Rule{MinBytes: 1}, *blankKey("a"), false},
		{"bytes of a string", Rule{MinBytes: 1000}, str, true},
		{"no TTL", Rule{NoTTL: true}, forever, true},
		{"has one", Rule{NoTTL: true}, known, false},
		{"TTL unknown", Rule{NoTTL: true}, *blankKey("a"), false},
		{"under", Rule{TTLUnder: time.Minute + time.Millisecond}, known, true},
		{"not under", Rule{TTLUnder: time.Minute}, known, false},
		{"never is not under", Rule{TTLUnder: time.Hour}, forever, false},
		{"over", Rule{TTLOver: time.Minute - time.Millisecond}, known, true},
		{"not over", Rule{TTLOver: time.Minute}, known, false},
		{"never is not over", Rule{TTLOver: time.Minute}, forever, false},
		{"TTL unknown, under", Rule{TTLUnder: time.Hour}, *blankKey("a"), false},
		{"all", Rule{Types: []string{"hash"}, MinElements: 5, MinBytes: 5, TTLUnder: time.Hour, TTLOver: time.Second}, known, true},
		{"all but one", Rule{Types: []string{"hash"}, MinElements: 5, MinBytes: 5000, TTLUnder: time.Hour}, known, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.rule.Selects(&test.key); got != test.want {
				t.Errorf("%t", got)
			}
			if test.want && test.rule.rejects(&test.key) {
				t.Error("selected and rejected")
			}
		})
	}
}

func blankKey(name string) *Key {
	k := blank(name)
	return &k
}

// Probes go from what decides cheapest to the rest, and ask for nothing that
// the server would refuse.
func TestPlan(t *testing.T) {
	var (
		all  = Abilities{MemoryUsage: true, Encoding: true}
		none = Abilities{}
	)
	for _, test := range []struct {
		name string
		rule Rule
		can  Abilities
		want [][]probe
	}{
		{"bytes", Rule{MinBytes: 1, MinElements: 1}, all, [][]probe{{askBytes}, {askType, askTTL, askEncoding}, {askLength}}},
		{"bytes, no MEMORY USAGE", Rule{MinBytes: 1}, none, [][]probe{{askType}, {askLength}, {askTTL}}},
		{"elements", Rule{MinElements: 1}, all, [][]probe{{askType}, {askLength}, {askBytes, askTTL, askEncoding}}},
		{"elements, old", Rule{MinElements: 1}, none, [][]probe{{askType}, {askLength}, {askTTL}}},
		{"type", Rule{Types: []string{"hash"}}, all, [][]probe{{askType}, {askBytes, askTTL, askEncoding}, {askLength}}},
		{"TTL", Rule{NoTTL: true}, all, [][]probe{{askTTL}, {askType, askBytes, askEncoding}, {askLength}}},
		{"TTL under", Rule{TTLUnder: 1}, none, [][]probe{{askTTL}, {askType}, {askLength}}},
		{"name", Rule{Match: []string{"a"}}, all, [][]probe{{askType, askBytes, askTTL, askEncoding}, {askLength}}},
		{"anything, old", Rule{}, none, [][]probe{{askType, askTTL}, {askLength}}},
		{"no encoding", Rule{}, Abilities{MemoryUsage: true}, [][]probe{{askType, askBytes, askTTL}, {askLength}}},
	} {
		if got := plan(&test.rule, test.can); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
