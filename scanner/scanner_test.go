package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func newScanner(t *testing.T, s *server, g *gate, o Options) *Scanner {
	s.t = t
	if o.Own == nil {
		o.Own = func(name string) bool { return strings.HasPrefix(name, "keyjanitor:") }
	}
	return New(s.client(), g, o)
}

// walk collects the pages of a walk from the start.
func walk(t *testing.T, s *Scanner) ([]Page, error) {
	t.Helper()
	var pages []Page
	err := s.Walk(t.Context(), 0, func(p Page) error {
		pages = append(pages, p)
		return nil
	})
	return pages, err
}

func keyNames(pages []Page) []string {
	out := []string{}
	for _, p := range pages {
		for i := range p.Keys {
			out = append(out, p.Keys[i].Name)
		}
	}
	return out
}

var (
	everything = Abilities{MemoryUsage: true, Encoding: true}
	// A cursor above 2^63, an empty page, a page that repeats a name.
	threePages = map[uint64]reply{
		0:         {[]string{"hash:10", "list:500", "string:90", "hash:10", "keyjanitor:trash:x"}, 1<<63 + 5},
		1<<63 + 5: {nil, 7},
		7:         {[]string{"zset:500", "stream:0", "set:20", "orphan:9"}, 0},
	}
)

func TestWalkTranscripts(t *testing.T) {
	for _, test := range []struct {
		name string
		rule Rule
		can  Abilities
		want []string
	}{
		{"all", Rule{}, everything, []string{"hash:10", "list:500", "string:90", "zset:500", "stream:0", "set:20"}},
		{"bytes", Rule{MinBytes: 5000}, everything, []string{"list:500", "string:90", "zset:500"}},
		{"elements", Rule{MinElements: 100}, everything, []string{"list:500", "zset:500"}},
		{"elements_old", Rule{MinElements: 100}, Abilities{}, []string{"list:500", "zset:500"}},
		{"bytes_old", Rule{MinBytes: 50}, Abilities{}, []string{"string:90"}},
		{"types", Rule{Types: []string{"set"}, Match: []string{"s*"}}, everything, []string{"set:20"}},
		{"ttl", Rule{TTLUnder: 1000}, everything, []string{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, g := &server{pages: threePages}, &gate{}
			orphan := func(name string) bool { return strings.HasPrefix(name, "orphan:") }
			pages, err := walk(t, newScanner(t, s, g, Options{Rule: test.rule, Can: test.can, Orphan: orphan}))
			if err != nil {
				t.Fatal(err)
			}
			if got := keyNames(pages); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
			first, last := pages[0], pages[2]
			if first.Seen != 4 || !slices.Equal(first.Own, []string{"keyjanitor:trash:x"}) || first.Next != 1<<63+5 {
				t.Errorf("first page %+v", first)
			}
			if last.Seen != 4 || last.Orphans != 1 || last.Next != 0 {
				t.Errorf("last page %+v", last)
			}
			if want := []int{4, 1, 4}; !slices.Equal(g.seen, want) {
				t.Errorf("the gate saw pages of %d, want %d", g.seen, want)
			}
			if sent := strings.Count(s.sent.String(), "\n") - strings.Count(s.sent.String(), "\n\n"); g.waits < sent {
				t.Errorf("waited for %d commands, sent %d", g.waits, sent)
			}
			s.golden("walk_" + test.name)
		})
	}
}

// Where the act looks itself only what the rule needs is asked.
func TestLeanWalks(t *testing.T) {
	for _, test := range []struct {
		name string
		rule Rule
		can  Abilities
		want []string
	}{
		{"all", Rule{Match: []string{"*"}}, everything, []string{"hash:10", "list:500", "string:90", "zset:500", "stream:0", "set:20"}},
		{"bytes", Rule{MinBytes: 5000}, everything, []string{"list:500", "string:90", "zset:500"}},
		{"bytes_old", Rule{MinBytes: 50}, Abilities{}, []string{"string:90"}},
		{"elements", Rule{MinElements: 100}, everything, []string{"list:500", "zset:500"}},
		{"types", Rule{Types: []string{"set", "stream"}}, everything, []string{"stream:0", "set:20"}},
		{"much", Rule{Types: []string{"list", "set"}, MinBytes: 5000, MinElements: 30, NoTTL: true}, everything, []string{"list:500"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, g := &server{pages: threePages}, &gate{}
			orphan := func(name string) bool { return strings.HasPrefix(name, "orphan:") }
			pages, err := walk(t, newScanner(t, s, g, Options{Rule: test.rule, Can: test.can, Orphan: orphan, Lean: true}))
			if err != nil {
				t.Fatal(err)
			}
			if got := keyNames(pages); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
			if want := []int{4, 1, 4}; !slices.Equal(g.seen, want) {
				t.Errorf("the gate saw pages of %d, want %d", g.seen, want)
			}
			if sent := strings.Count(s.sent.String(), "\n") - strings.Count(s.sent.String(), "\n\n"); g.waits < sent {
				t.Errorf("waited for %d commands, sent %d", g.waits, sent)
			}
			s.golden("lean_" + test.name)
		})
	}
}

// A key that is measured carries all that was learned, and nothing else.
func TestWhatIsLearned(t *testing.T) {
	s := &server{pages: map[uint64]reply{0: {[]string{"hash:10", "string:90"}, 0}}}
	pages, err := walk(t, newScanner(t, s, &gate{}, Options{Can: everything}))
	want := []Key{
		{Name: "hash:10", Type: "hash", Encoding: "encoded", Bytes: 1000, Elements: 10, TTL: NoTTL, Idle: Unknown, Freq: Unknown},
		{Name: "string:90", Type: "string", Encoding: "encoded", Bytes: 9000, Elements: Unknown, TTL: NoTTL, Idle: Unknown, Freq: Unknown},
	}
	if err != nil || !slices.Equal(pages[0].Keys, want) {
		t.Errorf("%+v, %v, want %+v", pages, err, want)
	}
}

// What one key's replies say about the key, and about the walk.
func TestRepliesToProbes(t *testing.T) {
	for _, test := range []struct {
		name   string
		on     string // the command that answers so for the key "list:5"
		answer any
		want   Page // counts only
		found  bool
		ends   bool
	}{
		{"gone before TYPE", "type", "none", Page{}, false, false},
		{"gone before LLEN", "llen", int64(0), Page{}, false, false},
		{"another by then", "llen", says("WRONGTYPE Operation"), Page{}, false, false},
		{"gone before MEMORY USAGE", "memory", nil, Page{}, false, false},
		{"gone before PTTL", "pttl", int64(-2), Page{}, false, false},
		{"gone before OBJECT", "object", nil, Page{}, false, false},
		{"gone, in words", "object", says("ERR no such key"), Page{}, false, false},
		{"refused", "memory", says("NOPERM No permissions to access a key"), Page{Refused: 1}, false, false},
		{"moved", "llen", says("MOVED 1 host:1"), Page{Moved: 1}, false, false},
		{"moving", "type", says("ASK 1 host:1"), Page{Moved: 1}, false, false},
		{"try again", "type", says("TRYAGAIN Multiple"), Page{Moved: 1}, false, false},
		{"loading", "llen", says("LOADING Redis is loading"), Page{}, false, true},
		{"no password any more", "type", says("NOAUTH Authentication required."), Page{}, false, true},
		{"no such command", "memory", says("ERR unknown command 'memory'"), Page{}, false, true},
		{"lost", "pttl", errLost, Page{}, false, true},
		{"nothing", "", nil, Page{}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &server{pages: map[uint64]reply{0: {[]string{"hash:7", "list:5", "set:9"}, 0}}}
			s.answer = func(args []string) any {
				if args[0] == test.on && args[len(args)-1] == "list:5" {
					return test.answer
				}
				return keyspace(args)
			}
			pages, err := walk(t, newScanner(t, s, &gate{}, Options{Can: everything}))
			if (err != nil) != test.ends {
				t.Fatalf("error %v", err)
			}
			if test.ends {
				if want, _ := test.answer.(error); !errors.Is(err, want) || len(pages) > 0 {
					t.Errorf("%v after %d pages, want %v", err, len(pages), want)
				}
				return
			}
			p := pages[0]
			if p.Refused != test.want.Refused || p.Moved != test.want.Moved || (p.RefusedErr != nil) != (p.Refused > 0) {
				t.Errorf("%+v, want %+v", p, test.want)
			}
			want := []string{"hash:7", "set:9"}
			if test.found {
				want = []string{"hash:7", "list:5", "set:9"}
			}
			if got := keyNames(pages); !slices.Equal(got, want) {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
}

// Where bytes decide and the server can't tell them, the report says so.
func TestUnmeasured(t *testing.T) {
	s := &server{pages: map[uint64]reply{0: {[]string{"hash:7", "string:90", "string:2"}, 0}}}
	pages, err := walk(t, newScanner(t, s, &gate{}, Options{Rule: Rule{MinBytes: 50}}))
	if err != nil || pages[0].Unmeasured != 1 || !slices.Equal(keyNames(pages), []string{"string:90"}) {
		t.Errorf("%+v, %v", pages, err)
	}
}

func TestScanFails(t *testing.T) {
	for name, fault := range map[string]error{"loading": says("LOADING wait"), "lost": errLost, "refused": says("NOPERM no")} {
		for _, cursor := range []string{"0", "1"} { // the first page, the one after it
			t.Run(name+" at "+cursor, func(t *testing.T) {
				s := &server{pages: map[uint64]reply{0: {[]string{"hash:7"}, 1}}}
				s.answer = func(args []string) any {
					if args[0] == "scan" && args[1] == cursor {
						return fault
					}
					return keyspace(args)
				}
				pages, err := walk(t, newScanner(t, s, &gate{}, Options{Can: everything}))
				if !errors.Is(err, fault) || len(pages) != 0 {
					t.Errorf("%v after %d pages", err, len(pages))
				}
			})
		}
	}
}

// A cursor that comes back as it was sent would be followed for ever.
func TestCursorThatStands(t *testing.T) {
	for name, names := range map[string][]string{"empty pages": nil, "the same page": {"hash:7"}} {
		t.Run(name, func(t *testing.T) {
			s := &server{pages: map[uint64]reply{0: {nil, 5}, 5: {names, 5}}}
			pages, err := walk(t, newScanner(t, s, &gate{}, Options{}))
			if err == nil || len(pages) > 10 {
				t.Errorf("%v after %d pages", err, len(pages))
			}
		})
	}
}

func TestWalkIsEnded(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct{ by, want error }{
		"cleanly":   {ErrStop, nil},
		"wrapped":   {fmt.Errorf("limit: %w", ErrStop), nil},
		"by others": {boom, boom},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			err := newScanner(t, &server{pages: threePages}, &gate{}, Options{}).Walk(t.Context(), 0, func(Page) error {
				n++
				return test.by
			})
			if !errors.Is(err, test.want) || test.want == nil && err != nil || n != 1 {
				t.Errorf("%v after %d pages, want %v", err, n, test.want)
			}
		})
	}
}

// Every pipeline is preceded by a Wait, and what the gate says ends the walk.
func TestGateEndsTheWalk(t *testing.T) {
	boom := errors.New("lock lost")
	all := &server{pages: threePages}
	if _, err := walk(t, newScanner(t, all, &gate{}, Options{Can: everything})); err != nil {
		t.Fatal(err)
	}
	trips := strings.Count(all.sent.String(), "\n\n")
	for i := range trips {
		s := &server{pages: threePages}
		_, err := walk(t, newScanner(t, s, &gate{left: i + 1, err: boom}, Options{Can: everything}))
		if sent := strings.Count(s.sent.String(), "\n\n"); !errors.Is(err, boom) || sent != i {
			t.Errorf("refused at wait %d: %v after %d round trips", i+1, err, sent)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &server{}
	if err := newScanner(t, s, &gate{}, Options{}).Walk(ctx, 0, nil); !errors.Is(err, context.Canceled) || s.sent.Len() > 0 {
		t.Errorf("cancelled: %v, sent %q", err, s.sent.String())
	}
}

// COUNT is in keys: as many as take the target, in no more commands than one
// pipeline may hold.
func TestCount(t *testing.T) {
	for _, test := range []struct {
		rule        Rule
		batch, pipe int
		want        string
	}{
		{Rule{}, 300, 0, "300"},
		{Rule{MinBytes: 1}, 300, 0, "300"},
		{Rule{}, 300, 100, "25"},
		{Rule{MinBytes: 1}, 300, 100, "100"},
		{Rule{}, 300, 1, "1"},
	} {
		s := &server{pages: map[uint64]reply{0: {nil, 0}}}
		g := &gate{batch: test.batch, pipe: test.pipe}
		if _, err := walk(t, newScanner(t, s, g, Options{Rule: test.rule, Can: everything})); err != nil {
			t.Fatal(err)
		}
		if want := "scan 0 count " + test.want + "\n"; !strings.HasPrefix(s.sent.String(), want) {
			t.Errorf("%+v: sent %q, want %q", test, s.sent.String(), want)
		}
	}
}

func TestMeasure(t *testing.T) {
	s := &server{answer: func(args []string) any {
		switch {
		case args[len(args)-1] == "gone":
			return map[string]any{"type": "none", "pttl": int64(-2)}[args[0]]
		case args[len(args)-1] == "secret":
			return says("NOPERM no")
		}
		return keyspace(args)
	}}
	// The rule of the scanner does not matter, nor whose the name is.
	m := newScanner(t, s, &gate{batch: 2}, Options{Rule: Rule{MinBytes: 1 << 40}, Can: everything, Lean: true})
	got, err := m.Measure(t.Context(), []string{"hash:10", "gone", "secret", "keyjanitor:5", "string:3"})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, k := range got {
		told = append(told, fmt.Sprintf("%s=%s", k.Name, k.Type))
	}
	if want := []string{"hash:10=hash", "gone=none", "secret=", "keyjanitor:5=keyjanitor", "string:3=string"}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
	if got[0].Elements != 10 || got[0].Bytes != 1000 {
		t.Errorf("%+v", got[0])
	}
	s.golden("measure")
}
