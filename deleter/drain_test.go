package deleter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// drain takes steps until the key is gone and returns how many elements that
// removed.
func drain(t *testing.T, d Drainer, step func() int) (removed int64) {
	t.Helper()
	for range 10_000 {
		did, err := d.Next(t.Context(), step())
		if err != nil {
			t.Fatal(err)
		}
		if removed += did.Removed; did.Done {
			return removed
		}
	}
	t.Fatal("no end of the drain")
	return 0
}

func always(n int) func() int { return func() int { return n } }

func open(t *testing.T, store *Redis) *Opened {
	t.Helper()
	key, err := store.Open(t.Context(), "trash")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestDrainList(t *testing.T) {
	left := int64(250)
	store, s := newStore(t, byWatch, func(args []string) any {
		switch args[0] {
		case "type":
			return "list"
		case "memory":
			return left * 10
		case "ltrim":
			n, _ := strconv.ParseInt(args[2], 10, 64)
			left = max(0, left-n)
			return "OK"
		}
		return left
	})
	key := open(t, store)
	if key.Type != "list" || key.Each != 10 || key.Largest != stepBytes/10 {
		t.Errorf("%+v", key)
	}
	if got := drain(t, key, always(100)); got != 250 {
		t.Errorf("removed %d, want 250", got)
	}
	s.golden("drain_list")
}

// sorted is a sorted set with these scores.
type sorted struct {
	t      *testing.T
	scores []int
	most   int // the most that one command may remove
}

func (z *sorted) answer(args []string) any {
	n := 0 // to remove
	switch args[0] {
	case "type":
		return "zset"
	case "zcard":
		return int64(len(z.scores))
	case "zrange":
		rank, _ := strconv.Atoi(args[2])
		if rank < 0 || rank >= len(z.scores) {
			return []string{}
		}
		return []string{"member", strconv.Itoa(z.scores[rank])}
	case "zremrangebyrank":
		last, _ := strconv.Atoi(args[3])
		n = min(last+1, len(z.scores))
	case "zremrangebyscore":
		n = len(z.scores)
		if top, err := strconv.Atoi(args[3]); err == nil {
			n, _ = slices.BinarySearch(z.scores, top+1)
		}
	}
	if n > z.most {
		z.t.Errorf("%q removes %d, more than %d", args, n, z.most)
	}
	z.scores = z.scores[n:]
	return int64(n)
}

func scores(distinct, tied int) []int {
	out := make([]int, 0, distinct+tied)
	for i := range distinct {
		out = append(out, i)
	}
	for range tied {
		out = append(out, distinct/2)
	}
	slices.Sort(out)
	return out
}

// A step never asks for more than it may remove, whatever ties there are and
// however the steps change.
func TestDrainSortedSet(t *testing.T) {
	for _, test := range []struct {
		name           string
		distinct, tied int
	}{
		{"one", 1, 0}, {"two", 2, 0}, {"distinct", 500, 0}, {"all ties", 0, 500}, {"half ties", 250, 250}, {"few ties", 480, 20},
	} {
		for _, n := range []int{1, 2, 3, 10, 100, 1000} {
			t.Run(fmt.Sprintf("%s by %d", test.name, n), func(t *testing.T) {
				z := &sorted{t: t, scores: scores(test.distinct, test.tied), most: n}
				store, s := newStore(t, Abilities{}, z.answer)
				if got := drain(t, open(t, store), always(n)); got != int64(test.distinct+test.tied) {
					t.Errorf("removed %d, want %d", got, test.distinct+test.tied)
				}
				if n == 100 && test.name == "half ties" {
					s.golden("drain_zset")
				}
			})
		}
	}
	t.Run("smaller steps", func(t *testing.T) {
		z := &sorted{t: t, scores: scores(500, 500), most: 0}
		store, _ := newStore(t, Abilities{}, z.answer)
		n := 128
		drain(t, open(t, store), func() int {
			if n = n / 2; n == 0 {
				n = 128
			}
			z.most = n
			return n
		})
	})
}

func TestOpen(t *testing.T) {
	for _, test := range []struct {
		name    string
		can     Abilities
		answers []any
		largest int
		gone    bool
		fails   bool
	}{
		{"gone", byWatch, []any{"none"}, 0, true, false},
		{"refused", byWatch, []any{says("NOPERM no")}, 0, false, true},
		{"string", byWatch, []any{"string"}, 1 << 30, false, false},
		{"module", byWatch, []any{"ReJSON-RL"}, 1 << 30, false, false},
		{"stream", byWatch, []any{"stream", int64(5), int64(500)}, 8 << 20 / 100, false, false},
		{"gone after TYPE", byWatch, []any{"list", int64(0), nil}, 1 << 30, false, false},
		{"hash with huge values", byWatch, []any{"hash", int64(10), int64(10 << 20), []string{"a"}}, 1, false, false},
		{"hash with values", byWatch, []any{"hash", int64(1000), int64(10 << 20)}, 100, false, false},
		{"hash without", Abilities{MemoryUsage: true, NoValues: true}, []any{"hash", int64(10), int64(10 << 20)}, 8, false, false},
		{"set", byWatch, []any{"set", int64(1000), int64(1000 << 10)}, 1024, false, false},
		{"size unknown", Abilities{}, []any{"list", int64(10)}, 1 << 30, false, false},
		{"length refused", byWatch, []any{"list", says("NOPERM no"), int64(1)}, 0, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, _ := newStore(t, test.can, inTurn(t, test.answers...))
			key, err := store.Open(t.Context(), "trash")
			if (err != nil) != test.fails || Fatal(err) || (key == nil) != (test.gone || test.fails) {
				t.Fatalf("%+v, %v", key, err)
			}
			if key != nil && key.Largest != test.largest {
				t.Errorf("%d at once, want %d", key.Largest, test.largest)
			}
		})
	}
}

// What has no elements goes in one command.
func TestDrainWhole(t *testing.T) {
	for cmd, can := range map[string]Abilities{"unlink": {Unlink: true}, "del": {}} {
		store, s := newStore(t, can, inTurn(t, "string", int64(1)))
		drain(t, open(t, store), always(100))
		s.wantCommands("type", cmd)
	}
}

// A step that failed is no end, and a lost reply is not counted.
func TestDrainStepFails(t *testing.T) {
	for _, typ := range []string{"list", "zset", "hash", "set"} {
		for _, fault := range []error{errLost, says("LOADING wait")} {
			opening := true
			store, _ := newStore(t, Abilities{}, func(args []string) any {
				switch {
				case args[0] == "type":
					return typ
				case opening:
					opening = false
					return int64(100)
				}
				return fault
			})
			did, err := open(t, store).Next(t.Context(), 10)
			if did != (Step{}) || !errors.Is(err, fault) || !Fatal(err) {
				t.Errorf("%s: %+v, %v", typ, did, err)
			}
		}
	}
}

// A last step that the server refused was not the last one.
func TestRefusedDropIsNotTheEnd(t *testing.T) {
	for _, typ := range []string{"string", "hash", "stream"} {
		const refusal = says("MISCONF Errors writing to the AOF file")
		refused := false
		store, _ := newStore(t, Abilities{StreamUnlink: true}, func(args []string) any {
			switch args[0] {
			case "type":
				return typ
			case "del":
				if !refused {
					refused = true
					return refusal
				}
				return int64(1)
			case "hscan":
				return page{} // of fields that have expired
			case "xinfo":
				return []redis.XInfoGroup{}
			case "hlen":
				return int64(3)
			}
			return int64(0)
		})
		key := open(t, store)
		var last Step
		var removed int64
		for i := 0; !last.Done && i < 10; i++ {
			did, err := key.Next(t.Context(), 10)
			if err != nil && (did != Step{} || !errors.Is(err, refusal)) {
				t.Errorf("%s: %+v, %v", typ, did, err)
			}
			removed += did.Removed
			last = did
		}
		if want := map[string]int64{"hash": 3}[typ]; !refused || !last.Done || removed != want {
			t.Errorf("%s: refused %t, then %+v, removed %d of %d", typ, refused, last, removed, want)
		}
	}
}
