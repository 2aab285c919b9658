package deleter

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

// hashed is a hash or set that lists its names in pages, whatever COUNT says.
type hashed struct {
	t      *testing.T
	typ    string
	pages  [][]string // by cursor
	hidden int64      // what the length counts besides
	left   map[string]bool

	counts   []int // that were asked for
	removals []int // names in each command that removes
	cursors  []uint64
	dropped  bool
}

func newHashed(t *testing.T, typ string, pages ...[]string) *hashed {
	h := &hashed{t: t, typ: typ, pages: pages, left: map[string]bool{}}
	for _, names := range pages {
		for _, name := range names {
			h.left[name] = true
		}
	}
	return h
}

func names(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("field:%d", from+i)
	}
	return out
}

func (h *hashed) answer(args []string) any {
	switch args[0] {
	case "type":
		return h.typ
	case "hlen", "scard":
		return int64(len(h.left)) + h.hidden
	case "del", "unlink":
		h.dropped = true
		return int64(1)
	case "hdel", "srem":
		h.removals = append(h.removals, len(args)-2)
		n := int64(0)
		for _, name := range args[2:] {
			if h.left[name] {
				delete(h.left, name)
				n++
			}
		}
		return n
	}
	cursor, _ := strconv.ParseUint(args[2], 10, 64)
	count, _ := strconv.Atoi(args[4])
	h.cursors, h.counts = append(h.cursors, cursor), append(h.counts, count)
	next := (cursor + 1) % uint64(len(h.pages))
	out := page{next: next}
	for _, name := range h.pages[cursor] {
		if !h.left[name] {
			continue
		}
		out.names = append(out.names, name)
		if h.typ == "hash" && args[len(args)-1] != "novalues" {
			out.names = append(out.names, "value of "+name)
		}
	}
	return out
}

func TestDrainHashesAndSets(t *testing.T) {
	for _, typ := range []string{"hash", "set"} {
		for _, can := range []Abilities{{}, {NoValues: true}} {
			t.Run(fmt.Sprintf("%s, NOVALUES %t", typ, can.NoValues), func(t *testing.T) {
				// A page larger than a step, one that repeats what is removed meanwhile, empty ones,
				// and more on the way back.
				h := newHashed(t, typ, names(0, 2500), names(2000, 600), nil, nil, names(5000, 100), nil)
				store, _ := newStore(t, can, h.answer)
				if got := drain(t, open(t, store), always(1000)); got != 2700 {
					t.Errorf("removed %d, want 2700", got)
				}
				if want := []uint64{0, 1, 2, 3, 4, 5}; !slices.Equal(h.cursors, want) {
					t.Errorf("cursors %d, want %d", h.cursors, want)
				}
				if want := []int{1000, 1000, 500, 600, 100}; !slices.Equal(h.removals, want) {
					t.Errorf("%d names at once, want %d", h.removals, want)
				}
				if h.dropped {
					t.Error("dropped what was empty")
				}
				if h.counts[0] != 1 || slices.Max(h.counts) > 1000 {
					t.Errorf("COUNT %d: starts at 1 where sizes are unknown, never above the step", h.counts)
				}
			})
		}
	}
}

// The commands of a drain, for each way to list.
func TestDrainTranscripts(t *testing.T) {
	for name, can := range map[string]Abilities{"hash": {}, "hash_novalues": {NoValues: true, Unlink: true}, "set": {}} {
		typ := name[:min(len(name), 4)]
		h := newHashed(t, typ, []string{"a", "\xff b"}, []string{"c"}, nil)
		h.hidden = 3
		store, s := newStore(t, can, h.answer)
		if got := drain(t, open(t, store), always(2)); got != 6 || !h.dropped {
			t.Errorf("%s: removed %d with the rest, want 6; dropped %t", name, got, h.dropped)
		}
		s.golden("drain_" + name)
	}
}

// Where many are left at the end of a pass another one begins, as long as
// passes remove something.
func TestDrainPasses(t *testing.T) {
	t.Run("more were added", func(t *testing.T) {
		h := newHashed(t, "set", names(0, 100), names(100, 100))
		h.hidden = SmallElements + 1
		store, _ := newStore(t, Abilities{}, func(args []string) any {
			if args[0] == "scard" && h.hidden > 0 && len(h.cursors) > 0 {
				defer func() { h.hidden = 0; h.left["field:5"] = true }()
			}
			return h.answer(args)
		})
		drain(t, open(t, store), always(500))
		if want := []uint64{0, 1, 0, 1}; !slices.Equal(h.cursors, want) || len(h.left) != 0 {
			t.Errorf("cursors %d, want %d; %d left", h.cursors, want, len(h.left))
		}
	})
	t.Run("more in every pass", func(t *testing.T) {
		h := newHashed(t, "set", names(0, 1))
		passes := 0
		store, _ := newStore(t, Abilities{}, func(args []string) any {
			if args[0] == "scard" && len(h.cursors) > 0 {
				if passes++; passes < 6 {
					h.left["field:0"] = true
					return int64(SmallElements + 1)
				}
			}
			return h.answer(args)
		})
		drain(t, open(t, store), always(500))
		if len(h.cursors) != 6 {
			t.Errorf("%d passes, want 6", len(h.cursors))
		}
	})
	t.Run("none can be listed", func(t *testing.T) {
		h := newHashed(t, "hash", nil, nil)
		h.hidden = SmallElements + 1
		store, _ := newStore(t, Abilities{}, h.answer)
		key := open(t, store)
		var err error
		steps := 0
		for ; err == nil && steps < 100; steps++ {
			_, err = key.Next(t.Context(), 100)
		}
		if err == nil || h.dropped || Fatal(err) {
			t.Errorf("after %d steps: %v, dropped %t", steps, err, h.dropped)
		}
	})
}

// Values that come with the names bound the next page by their bytes.
func TestLargeValuesGoFewAtATime(t *testing.T) {
	var all [][]string
	for i := range 40 {
		all = append(all, names(i*100, 100))
	}
	h := newHashed(t, "hash", all...)
	value := string(make([]byte, 256<<10)) // four of them are a reply
	store, _ := newStore(t, Abilities{}, func(args []string) any {
		p, listing := h.answer(args).(page)
		if !listing {
			return h.answer(args)
		}
		n := min(len(p.names), 2*h.counts[len(h.counts)-1])
		p.names = slices.Clone(p.names[:n])
		for i := 1; i < n; i += 2 {
			p.names[i] = value
		}
		return p
	})
	key := open(t, store)
	for range 30 {
		if _, err := key.Next(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if h.counts[0] != 1 || slices.Max(h.counts) != 4-1 {
		t.Errorf("COUNT %d, want 1 and then no more than fit into %d bytes", h.counts, replyBytes)
	}
}
