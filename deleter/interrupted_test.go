package deleter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A run that is told to stop finishes the batch at hand, keeps its numbers,
// and leaves the rest to a later run, which the journal tells of it.
func TestCancelledInMidDrain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newBench(t, Abilities{})
	taken := 0
	b.opened = func(string) (*Opened, error) {
		o := b.steps(1000)
		o.Drainer.(*drainer).before = func() error {
			if taken++; taken == 3 {
				cancel()
			}
			return nil
		}
		return o, nil
	}
	if err := b.act(ctx, big("a"), big("b")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	b.wantOutcomes(Trashed)
	if r := b.results[0]; r.Elements != 30 || r.Batches != 3 || r.Reason == "" {
		t.Errorf("%+v", r)
	}
	open := b.open()
	if len(open) != 1 {
		t.Fatalf("the journal keeps %q, want the one that is in the trash", open)
	}

	// The later run.
	later := newBench(t, Abilities{})
	r, err := later.del.Finish(t.Context(), open[0])
	if err != nil || r.Outcome != Finished || r.Order.Key != "a" || r.Elements != 30 || r.Order.Type != "hash" {
		t.Errorf("%+v, %v", r, err)
	}
	if !slices.Equal(later.done, open) {
		t.Errorf("the journal still has %q", open)
	}
}

func TestCancelledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, can := range []Abilities{{}, modern} {
		b := newBench(t, can)
		if err := b.act(ctx, small("a"), big("b")); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		b.wantOutcomes()
		b.wantCalls()
		if len(b.open()) != 0 {
			t.Errorf("the journal keeps %q", b.open())
		}
	}
}

func TestFinish(t *testing.T) {
	leftover := namer.name("-", "a")
	for _, test := range []struct {
		name   string
		trash  string
		opened func() (*Opened, error)
		want   Outcome
		fatal  bool
		done   bool
	}{
		{"nothing left", leftover, func() (*Opened, error) { return nil, nil }, "", false, true},
		{"somebody's key", "a", nil, "", false, false},
		{"kept", keepForGood(leftover), nil, "", false, false},
		{"refused", leftover, func() (*Opened, error) { return nil, says("NOPERM no") }, Failed, false, false},
		{"lost", leftover, func() (*Opened, error) { return nil, errLost }, Failed, true, false},
		{"of a type for later", leftover, func() (*Opened, error) { return nil, keyError("a stream") }, Failed, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, modern)
			b.opened = func(string) (*Opened, error) { return test.opened() }
			r, err := b.del.Finish(t.Context(), test.trash)
			if r.Outcome != test.want || (err != nil) != test.fatal {
				t.Errorf("%+v, %v", r, err)
			}
			if test.done != slices.Equal(b.done, []string{test.trash}) {
				t.Errorf("journal: done with %q", b.done)
			}
			if test.opened == nil && len(b.calls) > 0 {
				t.Errorf("looked at it: %q", b.calls)
			}
		})
	}
}

// A drain that fails in the middle leaves the key in the trash and the name
// in the journal.
func TestDrainFails(t *testing.T) {
	for err, fatal := range map[error]bool{errLost: true, says("LOADING wait"): true, says("NOPERM no"): false, keyError("hidden"): false} {
		b := newBench(t, Abilities{})
		b.opened = func(string) (*Opened, error) {
			o := b.steps(5)
			o.Drainer.(*drainer).before = func() error { return err }
			return o, nil
		}
		if got := b.act(t.Context(), big("a")); (got != nil) != fatal {
			t.Errorf("%v: error %v", err, got)
		}
		b.wantOutcomes(Trashed)
		if len(b.open()) != 1 {
			t.Errorf("%v: the journal keeps %q", err, b.open())
		}
	}
}

// One pipeline frees little in the main thread, whatever the gate allows.
func TestChunks(t *testing.T) {
	order := func(typ string, elements, bytes int64) Order {
		return Order{Key: "k", Type: typ, Elements: elements, Bytes: bytes, Method: Auto}
	}
	for _, test := range []struct {
		name  string
		can   Abilities
		order Order
		want  int64 // orders in the first pipeline
	}{
		{"small ones", Abilities{}, order("hash", 5, 500), 100},
		{"DEL of many elements", Abilities{}, order("hash", 400, 500), 3},
		{"DEL of many bytes", Abilities{}, order("hash", 5, 1<<20), 9},
		{"DEL, bytes unknown", Abilities{}, order("hash", 5, Unknown), 100},
		{"strings", modern, order("string", Unknown, 4<<20), 3},
		{"UNLINK of many elements", modern, order("hash", 5_000_000, 1<<20), 65},
		{"UNLINK of many bytes", modern, order("hash", 5_000_000, 400<<20), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.can)
			if err := b.act(t.Context(), slices.Repeat([]Order{test.order}, 200)...); err != nil {
				t.Fatal(err)
			}
			n, elements, bytes := b.waits[0][0], max(0, test.order.Elements), max(0, test.order.Bytes)
			if want := [3]int64{test.want, test.want * elements, test.want * bytes}; b.waits[0] != want {
				t.Errorf("waited for %d commands, elements, bytes, want %d", b.waits[0], want)
			}
			if n != test.want || len(b.results) != 200 {
				t.Errorf("%d at once, want %d; %d results", n, test.want, len(b.results))
			}
		})
	}
}

// After 64 MiB were unlinked we wait until they are free, but not for ever.
func TestSettle(t *testing.T) {
	for _, test := range []struct {
		name    string
		bytes   int64
		freeing []int64
		want    time.Duration
		asked   int
	}{
		{"little", 64 << 20, []int64{1}, 0, 0},
		{"free at once", 64<<20 + 1, []int64{0}, 0, 1},
		{"does not tell", 64<<20 + 1, nil, 0, 1},
		{"free after a while", 64<<20 + 1, []int64{1, 1, 1, 0}, 60 * time.Millisecond, 4},
		{"never free", 64<<20 + 1, []int64{1}, 30 * time.Second, 1500},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, modern)
				b.freeing = test.freeing
				o := big("a")
				o.Bytes = test.bytes
				start := time.Now()
				if err := b.act(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took != test.want || len(b.calls)-1 != test.asked {
					t.Errorf("took %v, want %v; asked %d times, want %d", took, test.want, len(b.calls)-1, test.asked)
				}
			})
		})
	}
}

// A run that is told to stop does not wait for the server's queue.
func TestSettleIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := newBench(t, modern)
		b.freeing = []int64{1}
		o := big("a")
		o.Bytes = 1 << 30
		start := time.Now()
		if err := b.act(ctx, o); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
		b.wantOutcomes(Unlinked)
	})
}
