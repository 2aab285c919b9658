package jobs

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func num(n int64) *int64 { return &n }

func sized(name string, bytes, elements int64) Finding {
	return Finding{Name: name, Shard: "s/0", Bytes: optional(bytes), Elements: optional(elements)}
}

// The n largest are exactly those that sorting everything would give, however
// often SCAN repeats a key.
func TestTopAgainstSorting(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		n, keys := r.IntN(40), r.IntN(200)
		all := make([]Finding, keys)
		for i := range all {
			all[i] = sized(fmt.Sprint("key:", i), int64(r.IntN(100)), int64(i)) // elements settle ties
		}
		got := newTop(n, byBytes)
		for range 3 {
			for _, i := range r.Perm(keys) {
				got.add(all[i])
			}
		}
		slices.SortFunc(all, func(a, b Finding) int {
			return cmp.Or(-cmp.Compare(*a.Bytes, *b.Bytes), -cmp.Compare(*a.Elements, *b.Elements))
		})
		var want, have []string
		for _, f := range all[:min(n, keys)] {
			want = append(want, f.Name)
		}
		for _, f := range got.sorted() {
			have = append(have, f.Name)
		}
		if !slices.Equal(have, want) {
			t.Fatalf("seed %d: top %d of %d is %v, want %v", seed, n, keys, have, want)
		}
		if len(got.names) > n {
			t.Fatalf("seed %d: %d names are remembered for the top %d", seed, len(got.names), n)
		}
	}
}

func TestTopEdges(t *testing.T) {
	none := newTop(0, byBytes)
	none.add(sized("a", 1, 1))
	if len(none.sorted()) != 0 || len(none.names) != 0 {
		t.Error("a top of none keeps something")
	}
	// Of equals the first stays: there is nothing to choose between them.
	tie := newTop(2, byBytes)
	for _, name := range []string{"a", "b", "c"} {
		tie.add(sized(name, 5, 5))
	}
	if got := tie.sorted(); len(got) != 2 || got[0].Name == "c" || got[1].Name == "c" {
		t.Errorf("of three equals are kept %v", got)
	}
	// What is not known is the smallest.
	unknown := newTop(1, byBytes)
	unknown.add(Finding{Name: "unknown"})
	unknown.add(sized("zero", 0, 0))
	if got := unknown.sorted(); got[0].Name != "zero" {
		t.Errorf("an unknown size stands before 0: %v", got)
	}
	// The same name on two shards is two keys.
	two := newTop(5, byBytes)
	two.add(Finding{Name: "a", Shard: "s/0"})
	two.add(Finding{Name: "a", Shard: "s/1"})
	if len(two.sorted()) != 2 {
		t.Error("a key of another database is taken for a repeat")
	}
	// A failure is shown before anything larger that went well.
	bad := newTop(1, failedFirst(byBytes))
	bad.add(sized("large", 1000, 1))
	f := sized("failed", 1, 1)
	f.Outcome = "failed"
	bad.add(f)
	if got := bad.sorted(); got[0].Name != "failed" {
		t.Errorf("shown first is %q", got[0].Name)
	}
}

// Merging the shards' tallies gives the same as one tally of everything.
func TestTallyMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	one, parts := newTally(7, byBytes), []*tally{newTally(7, byBytes), newTally(7, byBytes), newTally(7, byBytes)}
	for i := range 500 {
		f := sized(fmt.Sprintf("p%c:%d", 'a'+i%26, i), int64(r.IntN(1<<30)), int64(i))
		f.Type, f.TTLMillis = []string{"hash", "list"}[i%2], num(int64(i-2)*1000)
		one.add(f)
		parts[i%3].add(f)
	}
	all := newTally(7, byBytes)
	for _, p := range parts {
		all.merge(p)
	}
	var want, got Summary
	one.into(&want)
	all.into(&got)
	if len(got.Findings) != 7 {
		t.Fatalf("%d findings, want 7", len(got.Findings))
	}
	for i := range want.Findings {
		if got.Findings[i].Name != want.Findings[i].Name {
			t.Errorf("finding %d is %s, want %s", i, got.Findings[i].Name, want.Findings[i].Name)
		}
	}
	for i, pair := range [][2][]Group{{got.Types, want.Types}, {got.Prefixes, want.Prefixes}, {got.TTL, want.TTL}, {got.Sizes, want.Sizes}} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("table %d merged is %+v, want %+v", i, pair[0], pair[1])
		}
	}
	if got.KeysMatched != 500 || got.BytesMatched != want.BytesMatched {
		t.Errorf("%d keys of %d bytes, want 500 of %d", got.KeysMatched, got.BytesMatched, want.BytesMatched)
	}
}

func TestPrefixOf(t *testing.T) {
	for name, want := range map[string]string{
		"session:123":                 "session:",
		"user:42:cart":                "user:",
		"user42:cart":                 "user#:",
		"2024-11-04":                  "#-",
		"a.b:c":                       "a.b:",
		"queue/mail":                  "queue/",
		"a|b":                         "a|",
		"plain":                       "plain",
		"counter1234567":              "counter#",
		"v1.2.3":                      "v#.",
		":leading":                    ":",
		"":                            "",
		"with space":                  "with ",
		strings.Repeat("x", 100):      strings.Repeat("x", 32),
		strings.Repeat("x", 50) + ":": strings.Repeat("x", 32),
		"\xff\xfe:1":                  `"\xff\xfe:"`,
		"héé:1":                       "héé:",
		strings.Repeat("x", 31) + "é": `"` + strings.Repeat("x", 31) + `\xc3"`,
	} {
		if got := prefixOf(name); got != want {
			t.Errorf("prefixOf(%q) = %q, want %q", name, got, want)
		}
	}
}

// A million prefixes are a thousand rows, whether one shard has them or many,
// and every key is counted in one of them.
func TestPrefixesAreBounded(t *testing.T) {
	letters := func(i int) string { // digits would be folded
		return string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26)}) + ":"
	}
	shards := []*tally{newTally(1, byBytes), newTally(1, byBytes)}
	const each = 3000
	for s, shard := range shards {
		for i := range each {
			shard.add(sized(letters(i+s*each), int64(i), 1))
		}
		if len(shard.prefixes) > maxGroups+1 {
			t.Errorf("a shard tells %d prefixes apart", len(shard.prefixes))
		}
	}
	for _, n := range []int{1, 2} {
		all := newTally(1, byBytes)
		var keys, bytes int64
		for _, shard := range shards[:n] {
			all.merge(shard)
			keys += shard.matched
			bytes += shard.bytes
		}
		var s Summary
		all.into(&s)
		if len(s.Prefixes) != maxGroups {
			t.Errorf("%d shards: %d rows, want %d", n, len(s.Prefixes), maxGroups)
		}
		others := 0
		for i, g := range s.Prefixes {
			keys -= g.Keys
			bytes -= g.Bytes
			if g.Prefix == otherPrefixes {
				others++
				if i != len(s.Prefixes)-1 {
					t.Errorf("%d shards: the row of all others is number %d", n, i)
				}
			}
		}
		if others != 1 {
			t.Errorf("%d shards: %d rows of all others", n, others)
		}
		if keys != 0 || bytes != 0 {
			t.Errorf("%d shards: %d keys of %d bytes are in no row", n, keys, bytes)
		}
		if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "1000") {
			t.Errorf("%d shards: notes %q do not say that prefixes share a row", n, s.Notes)
		}
	}
}

func TestBands(t *testing.T) {
	const m, h, d = 60_000, 3_600_000, 86_400_000
	for v, want := range map[int64]string{
		-1: "none", 0: "under 1m", m - 1: "under 1m", m: "1m to 1h", h - 1: "1m to 1h", h: "1h to 1d",
		d - 1: "1h to 1d", d: "1d to 7d", 7*d - 1: "1d to 7d", 7 * d: "7d to 30d", 30*d - 1: "7d to 30d",
		30 * d: "30d and over", noLimit: "30d and over",
	} {
		if got := band(ttlBands, v); got != want {
			t.Errorf("a TTL of %d ms is in %q, want %q", v, got, want)
		}
	}
	for v, want := range map[int64]string{
		0: "under 1KiB", 1023: "under 1KiB", 1024: "1KiB to 10KiB", 10<<10 - 1: "1KiB to 10KiB", 10 << 10: "10KiB to 100KiB",
		1<<20 - 1: "100KiB to 1MiB", 1 << 20: "1MiB to 10MiB", 1<<30 - 1: "100MiB to 1GiB", 1 << 30: "1GiB and over",
		noLimit: "1GiB and over",
	} {
		if got := band(sizeBands, v); got != want {
			t.Errorf("%d bytes are in %q, want %q", v, got, want)
		}
	}
}

// What is not known is in no table and adds nothing, as if it were 0.
func TestTallyOfUnknown(t *testing.T) {
	tl := newTally(3, byBytes)
	tl.add(Finding{Name: "x:1"})
	var s Summary
	tl.into(&s)
	if len(s.Types)+len(s.TTL)+len(s.Sizes) != 0 || len(tl.longest.items) != 0 {
		t.Errorf("a key of which nothing is known is in %+v", s)
	}
	if s.KeysMatched != 1 || s.BytesMatched != 0 || len(s.Prefixes) != 1 || s.Prefixes[0].NoTTL != nil && *s.Prefixes[0].NoTTL != 0 {
		t.Errorf("matched %d of %d bytes, prefixes %+v", s.KeysMatched, s.BytesMatched, s.Prefixes)
	}
}
