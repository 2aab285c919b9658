package throttle

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestShareIsKept(t *testing.T) {
	for _, test := range []struct {
		share float64
		busy  time.Duration
		away  time.Duration
	}{
		{1, 10 * time.Millisecond, 0},
		{0.5, 10 * time.Millisecond, 10 * time.Millisecond},
		{0.2, 10 * time.Millisecond, 40 * time.Millisecond},
		{0.01, time.Millisecond, 99 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := New(Options{Target: time.Millisecond, Share: test.share})
			for range 3 {
				time.Sleep(test.busy)
				g.Observe("a", 100, test.busy)
				start := time.Now()
				if err := g.Wait(t.Context(), 1, 1, 1); err != nil {
					t.Fatal(err)
				}
				if away := time.Since(start); (away - test.away).Abs() > time.Microsecond {
					t.Errorf("share %g: away for %v after %v, want %v", test.share, away, test.busy, test.away)
				}
			}
		})
	}
}

// The network's part of a call is not the server's.
func TestRoundTripIsNotTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Target: time.Millisecond, Share: 0.5})
		g.SetRoundTrip(9 * time.Millisecond)
		for _, took := range []time.Duration{10 * time.Millisecond, 5 * time.Millisecond} {
			g.Observe("a", firstBatch, took)
			start := time.Now()
			if err := g.Wait(t.Context(), 1, 0, 0); err != nil {
				t.Fatal(err)
			}
			if away := time.Since(start); away != max(0, took-9*time.Millisecond) {
				t.Errorf("away for %v after %v", away, took)
			}
		}
		if got := g.Batch("a"); got < firstBatch {
			t.Errorf("a batch of %d after calls within the target", got)
		}
	})
}

// Calls that overlap are all paid for.
func TestShareOfCallsThatOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Target: time.Millisecond, Share: 0.5})
		g.Observe("a", 100, 10*time.Millisecond)
		g.Observe("b", 100, time.Millisecond)
		start := time.Now()
		if err := g.Wait(t.Context(), 1, 0, 0); err != nil || time.Since(start) != 11*time.Millisecond {
			t.Errorf("away for %v, %v, want 11ms", time.Since(start), err)
		}
	})
}

func TestKindsHaveTheirOwnBatches(t *testing.T) {
	g := New(Options{Target: time.Millisecond, Share: 1})
	g.Observe("slow", firstBatch, time.Second)
	g.Observe("fast", firstBatch, 100*time.Microsecond)
	if slow, fast, other := g.Batch("slow"), g.Batch("fast"), g.Batch("other"); slow >= other || fast <= other || other != firstBatch {
		t.Errorf("slow %d, fast %d, other %d", slow, fast, other)
	}
}

func TestWaitIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, g := range map[string]*Gate{
			"share":  New(Options{Target: time.Millisecond, Share: 0.01}),
			"budget": New(Options{Target: time.Millisecond, Share: 1, Budgets: []*Budget{NewBudget(1, 0, 0)}}),
		} {
			g.Observe("a", 100, time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start := time.Now()
			if err := g.Wait(ctx, 1000, 0, 0); !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(start))
			}
			if err := g.Wait(ctx, 1, 0, 0); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: a cancelled run may go on: %v", what, err)
			}
		}
		open := New(Options{Target: time.Millisecond, Share: 1})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := open.Wait(ctx, 1, 0, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("an open gate lets a cancelled run go on: %v", err)
		}
	})
}

// rateOf is how many a second pass in half a minute.
func rateOf(t *testing.T, wait func() (int64, error)) float64 {
	t.Helper()
	start := time.Now()
	n := int64(0)
	for time.Since(start) < 30*time.Second {
		k, err := wait()
		if err != nil {
			t.Error(err)
			break
		}
		n += k
	}
	return float64(n) / time.Since(start).Seconds()
}

func TestBudgets(t *testing.T) {
	for _, test := range []struct {
		name   string
		budget func() *Budget
		want   float64
		n      int64 // at once
	}{
		{"commands", func() *Budget { return NewBudget(1000, 0, 0) }, 1000, 10},
		{"elements", func() *Budget { return NewBudget(0, 1000, 0) }, 1000, 10},
		{"bytes", func() *Budget { return NewBudget(0, 0, 1000) }, 1000, 10},
		{"the tightest", func() *Budget { return NewBudget(5000, 100, 900) }, 100, 10},
		{"above the burst", func() *Budget { return NewBudget(1000, 0, 0) }, 1000, 5000},
		{"one a second", func() *Budget { return NewBudget(1, 0, 0) }, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := test.budget()
				got := rateOf(t, func() (int64, error) { return test.n, b.Wait(t.Context(), int(test.n), int(test.n), test.n) })
				if math.Abs(got-test.want) > test.want/20 {
					t.Errorf("%.1f a second, want %.0f", got, test.want)
				}
			})
		})
	}
}

// Gates that share a budget share its rate.
func TestSharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := NewBudget(0, 1000, 0)
		var (
			wg    sync.WaitGroup
			total float64
			mu    sync.Mutex
		)
		for range 4 {
			wg.Go(func() {
				g := New(Options{Target: time.Millisecond, Share: 1, Budgets: []*Budget{shared, NewBudget(0, 0, 0)}})
				got := rateOf(t, func() (int64, error) { return 50, g.Wait(t.Context(), 1, 50, 0) })
				mu.Lock()
				total += got
				mu.Unlock()
			})
		}
		wg.Wait()
		if math.Abs(total-1000) > 50 {
			t.Errorf("%.1f a second together, want 1000", total)
		}
	})
}

// A small budget becomes small batches and pipelines, but never none.
func TestBatchesFitTheBudget(t *testing.T) {
	for _, test := range []struct {
		perSecond int64
		want      int
	}{
		{0, firstBatch}, {1_000_000, firstBatch}, {100, 25}, {4, 1}, {1, 1},
	} {
		g := New(Options{Target: time.Millisecond, Share: 1, Budgets: []*Budget{NewBudget(0, 0, 0), NewBudget(test.perSecond, test.perSecond, 0)}})
		if batch, pipe := g.Batch("a"), g.Pipeline(firstBatch); batch != test.want || pipe != test.want {
			t.Errorf("%d a second: batches of %d, pipelines of %d, want %d", test.perSecond, batch, pipe, test.want)
		}
	}
}

// What began to hold while the budget was waited for holds, too.
func TestHoldWhileTheBudgetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Target: time.Millisecond, Share: 1, Budgets: []*Budget{NewBudget(0, 100, 0)}})
		h := NewHealth([]Line{{Signal: "paused"}}, nil)
		g.SetHealth(h)
		passed := make(chan error, 1)
		go func() { passed <- g.Wait(t.Context(), 1, 60, 0) }() // 35 of them wait for 0.35 s
		synctest.Wait()
		h.Take(Vitals{"paused": {1, "paused"}}, time.Now())
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case err := <-passed:
			t.Fatalf("it passed: %v", err)
		default:
		}
		h.Take(Vitals{"paused": {}}, time.Now())
		if err := <-passed; err != nil {
			t.Error(err)
		}
	})
}

// A budget that is set counts for those that wait already.
func TestBudgetIsSetWhileOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(0, 0, 1)
		passed := make(chan error, 1)
		go func() { passed <- b.Wait(t.Context(), 1, 1, 1000) }() // for a quarter of an hour
		synctest.Wait()
		start := time.Now()
		b.Set(0, 0, 1<<30)
		if err := <-passed; err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
