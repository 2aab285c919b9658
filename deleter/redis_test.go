package deleter

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	byScript = Abilities{Unlink: true, Script: true, MemoryUsage: true}
	byWatch  = Abilities{Unlink: true, MemoryUsage: true, WatchSeesPersist: true}
)

// everyFact is evidence of every kind.
var everyFact = Evidence{MinElements: 10, MinBytes: 1000, TTLUnder: time.Hour, TTLOver: time.Second}

func statuses(replies []Reply) []Status {
	out := make([]Status, len(replies))
	for i, r := range replies {
		out[i] = r.Status
	}
	return out
}

func TestRemoveByScript(t *testing.T) {
	store, s := newStore(t, byScript, inTurn(t,
		[]any{"acted", int64(12)}, []any{"gone", int64(0)}, says("NOSCRIPT No matching script."), []any{"changed", int64(3)},
		[]any{"acted", int64(7)},
	))
	orders := []Order{
		{Key: "a b", Type: "hash", Evidence: everyFact},
		{Key: "\xff\x00", Type: "list", Evidence: Evidence{MinElements: 10, NoTTL: true}},
		{Key: "", Type: "set"},
		{Key: "string", Type: "string", Evidence: Evidence{MinBytes: 5}},
	}
	got := store.Remove(t.Context(), orders, Unlink)
	if want := []Status{Acted, StillGone, Acted, Unmet}; !slices.Equal(statuses(got), want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got[2].Elements != 7 {
		t.Errorf("%d elements of the key that was asked about twice, want 7", got[2].Elements)
	}
	s.golden("remove_by_script")
}

func TestScriptReplies(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer any
		want   Reply
	}{
		{"grown", []any{"large", int64(1001)}, Reply{Status: Grown, Elements: 1001}},
		{"taken", []any{"taken", int64(1)}, Reply{Err: errTaken}},
		{"refused", says("NOPERM no"), Reply{Err: says("NOPERM no")}},
		{"lost", errLost, Reply{Err: errLost}},
		{"short", []any{"acted"}, Reply{}},
		{"strange", []any{"done", int64(1)}, Reply{}},
		{"number", int64(1), Reply{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, s := newStore(t, byScript, inTurn(t, test.answer))
			got := store.Remove(t.Context(), []Order{{Key: "a", Type: "hash"}}, Del)[0]
			if test.want == (Reply{}) {
				if got.Status != "" || got.Err == nil {
					t.Errorf("%v, want an error and no status", got)
				}
			} else if got.Status != test.want.Status || got.Elements != test.want.Elements || !errors.Is(got.Err, test.want.Err) {
				t.Errorf("%v, want %v", got, test.want)
			}
			s.wantCommands("evalsha")
		})
	}
}

func TestSetAsideByScript(t *testing.T) {
	store, s := newStore(t, byScript, inTurn(t, says("NOSCRIPT No matching script."), []any{"acted", int64(5)}))
	got := store.SetAside(t.Context(), Order{Key: "a", Type: "zset", Evidence: everyFact}, "trash of a")
	if got.Status != Acted || got.Elements != 5 {
		t.Errorf("%v", got)
	}
	s.golden("set_aside_by_script")
}

func TestFreeing(t *testing.T) {
	for _, test := range []struct {
		info  any
		n     int64
		known bool
	}{
		{"# Memory\r\nused_memory:1\r\nlazyfree_pending_objects:3\r\nlazyfreed_objects:9\r\n", 3, true},
		{"# Memory\r\nlazyfree_pending_objects:0\r\n", 0, true},
		{"# Memory\r\nused_memory:1\r\n", 0, false},
		{"lazyfree_pending_objects:many\r\n", 0, false},
		{says("NOPERM no"), 0, false},
	} {
		store, s := newStore(t, byScript, inTurn(t, test.info))
		if n, known := store.Freeing(t.Context()); n != test.n || known != test.known {
			t.Errorf("%q: %d, %t", test.info, n, known)
		}
		if got := s.sent.String(); got != "info memory\n\n" {
			t.Errorf("sent %q", got)
		}
	}
}

// A rehearsal sends nothing that writes, and says what the act would.
func TestRehearsal(t *testing.T) {
	store, s := newStore(t, byWatch, func(args []string) any {
		switch {
		case args[0] == "type" && args[1] == "gone":
			return "none"
		case args[0] == "type":
			return "hash"
		case args[len(args)-1] == "refused":
			return says("NOPERM no")
		case args[len(args)-1] == "gone":
			return nil
		case args[0] == "hlen" && args[1] == "small":
			return int64(5)
		case args[0] == "pttl":
			return int64(60_000)
		}
		return int64(2000)
	})
	var orders []Order
	for _, key := range []string{"big", "small", "gone", "refused"} {
		orders = append(orders, Order{Key: key, Type: "hash", Evidence: everyFact})
	}
	r := NewRehearsal(store)
	got := r.Remove(t.Context(), orders, Unlink)
	if want := []Status{Rehearsed, Unmet, StillGone, ""}; !slices.Equal(statuses(got), want) || got[3].Err == nil {
		t.Errorf("%v, want %v", got, want)
	}
	if got := r.Remove(t.Context(), orders[:1], Del)[0]; got.Status != Grown {
		t.Errorf("DEL of 2000 elements: %v", got)
	}
	if got := r.SetAside(t.Context(), orders[0], "trash"); got.Status != Rehearsed {
		t.Errorf("set aside: %v", got)
	}
	if key, err := r.Open(t.Context(), "trash"); key != nil || err != nil {
		t.Errorf("opened %v, %v", key, err)
	}
	if n, known := r.Freeing(t.Context()); n != 0 || !known {
		t.Errorf("freeing %d, %t", n, known)
	}
	reads := []string{"type", "hlen", "pttl", "memory"}
	for _, cmd := range s.commands() {
		if !slices.Contains(reads, cmd) {
			t.Errorf("a rehearsal sent %s", cmd)
		}
	}
	s.golden("rehearsal")
}

// Without a script the same orders go by WATCH: all in one MULTI outside a
// cluster, one by one in it.
func TestRemoveByWatch(t *testing.T) {
	answer := func(args []string) any {
		switch args[0] {
		case "type":
			return "list"
		case "llen":
			return int64(50)
		case "pttl":
			return int64(60_000)
		case "memory":
			return int64(5000)
		case "exec":
			return []any{int64(1)}
		}
		return "OK"
	}
	orders := []Order{{Key: "a", Type: "list", Evidence: everyFact}, {Key: "b", Type: "list"}}
	t.Run("standalone", func(t *testing.T) {
		store, s := newStore(t, byWatch, func(args []string) any {
			if args[0] == "exec" {
				return []any{int64(1), int64(0)}
			}
			return answer(args)
		})
		got := store.Remove(t.Context(), orders, Unlink)
		if want := []Status{Acted, StillGone}; !slices.Equal(statuses(got), want) {
			t.Errorf("%v, want %v", got, want)
		}
		s.golden("remove_by_watch")
	})
	t.Run("cluster", func(t *testing.T) {
		can := byWatch
		can.Cluster = true
		store, s := newStore(t, can, answer)
		got := store.Remove(t.Context(), orders, Del)
		if want := []Status{Acted, Acted}; !slices.Equal(statuses(got), want) {
			t.Errorf("%v, want %v", got, want)
		}
		s.golden("remove_by_watch_cluster")
	})
}

var _ redis.Hook = (*server)(nil)

// Where PERSIST is refused the script must end before the rename: an error
// stands for a key that was left as it was.
func TestScriptPersistsBeforeItRenames(t *testing.T) {
	first, rename := strings.Index(verdict, "'PERSIST'"), strings.Index(verdict, "'RENAMENX'")
	if first < 0 || first > rename || strings.Count(verdict, "'PERSIST'") != 2 {
		t.Errorf("PERSIST at %d and RENAMENX at %d", first, rename)
	}
}
