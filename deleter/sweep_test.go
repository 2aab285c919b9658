package deleter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func unmeasured(keys ...string) []Order {
	out := make([]Order, len(keys))
	for i, key := range keys {
		out[i] = Order{ID: i, Key: key, Elements: Unknown, Bytes: Unknown, TTL: Unknown, Method: Auto}
	}
	return out
}

func nobodyKnows(n int) []byte { return []byte(strings.Repeat("0", n)) }

// acted is what the script answers for a key it removed.
func acted(bytes, length, kind int64) int64 { return (bytes*1024+length)*64 + kind*8 + 1 }

func TestSweepTranscript(t *testing.T) {
	store, s := newStore(t, byScript, inTurn(t, says("NOSCRIPT No matching script."),
		[]int64{acted(100, 0, 1), acted(1<<20, 1000, 5), 2, 3*1 + 8, 4, 0}))
	orders := unmeasured("a", "h", "gone", "changed", "stream", "odd", "not looked at")
	for i := range orders {
		orders[i].Evidence = everyFact
		orders[i].Evidence.MinBytes = 0
	}
	got := store.Sweep(t.Context(), orders, []byte("1500000"))
	want := []Status{Acted, Acted, StillGone, Unmet, StillLarge, ""}
	for i, r := range got {
		if r.Status != want[i] || (r.Err != nil) != (want[i] == "") {
			t.Errorf("%s: %+v, want %q", orders[i].Key, r, want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d answers, want %d", len(got), len(want))
	}
	if got[0].Type != "string" || got[0].Elements != 0 || got[0].Bytes != 100+1+stringOverhead ||
		got[1].Type != "hash" || got[1].Elements != 1000 || got[1].Bytes != 1<<20 || got[2].Bytes != Unknown {
		t.Errorf("seen %+v", got[:3])
	}
	s.golden("sweep")
}

// A size that is evidence is MEMORY USAGE and nothing else; where there is
// none, that of anything but a string is unknown.
func TestSweptSizes(t *testing.T) {
	for _, test := range []struct {
		can       Abilities
		minBytes  int64
		str, hash int64
	}{
		{byScript, 0, 100 + 1 + stringOverhead, 100},
		{byScript, 1, 100, 100},
		{Abilities{Script: true, Unlink: true}, 0, 100, Unknown},
	} {
		store, _ := newStore(t, test.can, inTurn(t, []int64{acted(100, 0, 1), acted(100, 5, 5)}))
		orders := unmeasured("a", "b")
		for i := range orders {
			orders[i].Evidence.MinBytes = test.minBytes
		}
		if got := store.Sweep(t.Context(), orders, nobodyKnows(2)); got[0].Bytes != test.str || got[1].Bytes != test.hash {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

// In a cluster the keys of one script must share a slot, so each goes by
// itself, all in one pipeline; only those that were not run go again.
func TestSweepInACluster(t *testing.T) {
	can := byScript
	can.Cluster = true
	store, s := newStore(t, can, inTurn(t, says("NOSCRIPT No matching script."), []int64{acted(100, 7, 3)},
		says("MOVED 1 host:1"), says("NOSCRIPT No matching script."), []int64{2}, []int64{acted(200, 0, 1)}))
	got := store.Sweep(t.Context(), unmeasured("a", "b", "c", "d"), nobodyKnows(4))
	if len(got) != 4 || got[0].Status != StillGone || got[1].Status != Acted || got[2].Err == nil || got[3].Status != Acted {
		t.Errorf("%+v", got)
	}
	s.golden("sweep_cluster")
}

// What the server says instead of an answer, about every key of the call.
func TestSweepRefused(t *testing.T) {
	for _, test := range []struct {
		answer any
		large  bool // nothing was run: each key goes by itself
		fatal  bool
	}{
		{says("NOPERM No permissions to access a key"), true, false},
		{says("NOPERM this user has no permissions to run the 'evalsha' command"), false, true}, // and then nothing answers EVAL
		{says("ERR something else"), false, false},
		{says("READONLY You can't write against a read only replica."), false, true},
		{errLost, false, true},
		{[]int64{}, false, true},
		{[]int64{2, 2, 2}, false, true},
	} {
		answers := []any{test.answer}
		if err, is := test.answer.(says); is && strings.Contains(string(err), "'evalsha'") {
			answers = append(answers, errLost)
		}
		store, _ := newStore(t, byScript, inTurn(t, answers...))
		for _, r := range store.Sweep(t.Context(), unmeasured("a", "b"), nobodyKnows(2)) {
			if (r.Status == StillLarge) != test.large || (r.Err == nil) != test.large || Fatal(r.Err) != test.fatal {
				t.Errorf("%v: %+v", test.answer, r)
			}
		}
	}
}

// sweeper is a server that answers for each key in its own words.
type sweeper struct {
	*bench
	most   int // keys that one call gets to; 0: all
	answer map[string]Swept
}

func (s *sweeper) Sweep(ctx context.Context, orders []Order, probably []byte) []Swept {
	if ctx.Err() != nil || len(probably) != len(orders) {
		s.t.Errorf("a call that nobody waited for, or %d guesses for %d keys", len(probably), len(orders))
	}
	var keys []string
	var out []Swept
	for i, o := range orders {
		if s.most > 0 && i == s.most {
			break
		}
		keys = append(keys, o.Key)
		r, told := s.answer[o.Key]
		if !told {
			r = Swept{Reply: Reply{Status: Acted, Elements: 3}, Type: "hash", Bytes: 100}
		}
		out = append(out, r)
	}
	s.calls = append(s.calls, fmt.Sprintf("sweep %s %s %s", orders[0].Type, strings.Join(keys, " "), probably))
	return out
}

func newSweeper(t *testing.T) *sweeper {
	s := &sweeper{bench: newBench(t, modern), answer: map[string]Swept{}}
	s.del.o.Sweeper = s
	return s
}

func (s *sweeper) sweep(ctx context.Context, orders ...Order) error {
	return s.del.Sweep(ctx, orders, func(r *Result) { s.results = append(s.results, *r) })
}

func TestSweepOutcomes(t *testing.T) {
	s := newSweeper(t)
	s.answer = map[string]Swept{
		"gone":    {Reply: Reply{Status: StillGone}, Bytes: Unknown},
		"changed": {Reply: Reply{Status: Unmet}, Type: "list", Bytes: Unknown},
		"large":   {Reply: Reply{Status: StillLarge}, Type: "zset", Bytes: Unknown},
		"refused": {Reply: Reply{Err: says("MOVED 1 host:1")}, Bytes: Unknown},
		"string":  {Reply: Reply{Status: Acted}, Type: "string", Bytes: 70},
	}
	err := s.sweep(t.Context(), unmeasured("session:1", "a", "string", "gone", "changed", "large", "refused")...)
	if err != nil {
		t.Fatal(err)
	}
	s.wantOutcomes(Protected, Unlinked, Unlinked, Gone, Changed, Large, Failed)
	s.wantCalls("sweep  a string gone changed large refused 000000")
	for i, r := range s.results {
		if r.Order.ID != i {
			t.Errorf("result %d is of order %d", i, r.Order.ID)
		}
		if acted := r.Outcome == Unlinked; acted != (r.Batches == 1) || acted != (r.Bytes > 0) || !acted && r.Order.Bytes != Unknown {
			t.Errorf("%+v", r)
		}
	}
	a, str := s.results[1], s.results[2]
	if a.Elements != 3 || a.Order.Elements != 3 || a.Order.Type != "hash" || a.Bytes != 100 || str.Order.Elements != Unknown || str.Elements != 0 {
		t.Errorf("%+v, %+v", a, str)
	}
}

// What one call did not get to goes with the next, and types go apart.
func TestSweepGoesOn(t *testing.T) {
	s := newSweeper(t)
	s.most = 2
	orders := unmeasured("a", "b", "c", "d", "e")
	for i, typ := range []string{"hash", "set", "hash", "set", "hash"} {
		orders[i].Type = typ
	}
	if err := s.sweep(t.Context(), orders...); err != nil {
		t.Fatal(err)
	}
	s.wantCalls("sweep hash a c 555", "sweep hash e 5", "sweep set b d 33")
	s.wantOutcomes(Unlinked, Unlinked, Unlinked, Unlinked, Unlinked)
}

// A name of the same shape as one that was removed is taken for the same type.
func TestSweepGuesses(t *testing.T) {
	s := newSweeper(t)
	s.batch = 2
	s.answer["user:2:a"] = Swept{Reply: Reply{Status: Acted}, Type: "string", Bytes: 9}
	if err := s.sweep(t.Context(), unmeasured("user:1", "user:2:a", "user:3", "user:44:a", "other", "user:")...); err != nil {
		t.Fatal(err)
	}
	s.wantCalls("sweep  user:1 user:2:a 00", "sweep  user:3 user:44:a 51", "sweep  other user: 05")
}

func TestSweepIsEnded(t *testing.T) {
	lost := Swept{Reply: Reply{Err: errLost}, Bytes: Unknown}
	s := newSweeper(t)
	s.batch = 2
	s.answer = map[string]Swept{"a": lost, "b": lost}
	if err := s.sweep(t.Context(), unmeasured("a", "b", "c")...); !errors.Is(err, errLost) {
		t.Errorf("error %v", err)
	}
	s.wantOutcomes(Failed, Failed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s = newSweeper(t)
	if err := s.sweep(ctx, unmeasured("a")...); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	s.wantOutcomes()
	s.wantCalls()
}

// The server has freed most of it before more is removed.
func TestSweepSettles(t *testing.T) {
	s := newSweeper(t)
	s.answer["a"] = Swept{Reply: Reply{Status: Acted}, Type: "hash", Bytes: most + 1}
	s.batch = 1
	if err := s.sweep(t.Context(), unmeasured("a", "b")...); err != nil {
		t.Fatal(err)
	}
	s.wantCalls("sweep  a 0", "freeing", "sweep  b 0")
}

func TestGuesses(t *testing.T) {
	var g guesses
	g.learn("user:1:name", "string")
	g.learn("user:1:tags", "set")
	g.learn("odd", "ReJSON-RL")
	for name, want := range map[string]byte{"user:77:name": '1', "user::tags": '3', "user:1:x": '0', "odd": '0', "": '0'} {
		if got := g.of(name); got != want {
			t.Errorf("%q is guessed as %c, want %c", name, got, want)
		}
	}
	if !slices.Contains(sweptTypes[:], "zset") {
		t.Error("the script's types are not those of the store")
	}
}
