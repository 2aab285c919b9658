package jobs

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

func TestAllowance(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits config.Limits
		bytes  []int64
		takes  int
		limit  string
	}{
		{"no limit", config.Limits{}, []int64{1 << 60, 1 << 60}, 2, ""},
		{"keys", config.Limits{MaxKeys: 2}, []int64{1, 1, 1}, 2, "max_keys: 2"},
		{"as many as allowed", config.Limits{MaxKeys: 3}, []int64{1, 1, 1}, 3, ""},
		{"bytes", config.Limits{MaxBytes: 2048}, []int64{1024, 1024, 1}, 2, "max_bytes: 2.0 KiB"},
		{"one that is too large", config.Limits{MaxBytes: 1000}, []int64{1001}, 0, "max_bytes: 1000 B"},
		{"exactly", config.Limits{MaxBytes: 1000}, []int64{1000, 0}, 2, ""},
		{"keys before bytes", config.Limits{MaxKeys: 1, MaxBytes: 1000}, []int64{1000, 1000}, 1, "max_keys: 1"},
		{"bytes before keys", config.Limits{MaxKeys: 2, MaxBytes: 1000}, []int64{1000, 1000}, 1, "max_bytes: 1000 B"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &allowance{limits: c.limits}
			took, limit := 0, ""
			for _, b := range c.bytes {
				if limit = a.reserve(b); limit != "" {
					break
				}
				took++
			}
			if took != c.takes || limit != c.limit {
				t.Errorf("took %d, limit %q; want %d and %q", took, limit, c.takes, c.limit)
			}
			if by, over := a.stoppedBy(); by != "" || over {
				t.Error("a limit that was asked about has ended the run")
			}
		})
	}
}

func TestAllowanceGivesBack(t *testing.T) {
	a := &allowance{limits: config.Limits{MaxKeys: 1, MaxBytes: 10}}
	for range 3 {
		if limit := a.reserve(10); limit != "" {
			t.Fatalf("refused by %s after everything was given back", limit)
		}
		if a.reserve(0) == "" {
			t.Fatal("two keys under a limit of one")
		}
		a.release(10)
	}
}

// The first limit is the one that is named; one of a shard does not end the run.
func TestAllowanceNamesTheFirst(t *testing.T) {
	a := &allowance{}
	a.end("max_percent: 5% of 100 keys on s/0", false)
	if by, over := a.stoppedBy(); by == "" || over {
		t.Errorf("a shard's limit: %q, over %t", by, over)
	}
	a.end("time: 1h", true)
	if by, over := a.stoppedBy(); by != "max_percent: 5% of 100 keys on s/0" || !over {
		t.Errorf("stopped by %q, over %t", by, over)
	}
}

// Whatever shards do at once, no more is ever reserved than the limit.
func TestAllowanceAtOnce(t *testing.T) {
	a := &allowance{limits: config.Limits{MaxKeys: 50, MaxBytes: 400}}
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				if a.reserve(10) != "" {
					continue
				}
				n := held.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				held.Add(-1)
				a.release(10)
			}
		})
	}
	wg.Wait()
	if most.Load() > 40 {
		t.Errorf("%d keys of 10 bytes were reserved at once under 400 bytes", most.Load())
	}
	if a.keys != 0 || a.bytes != 0 {
		t.Errorf("%d keys of %d bytes stay reserved", a.keys, a.bytes)
	}
}

func TestPercentOf(t *testing.T) {
	for _, c := range []struct {
		p    float64
		n    int64
		want int64
	}{
		{5, 200, 10}, {5, 201, 11}, {0.1, 200, 1}, {0.1, 1000, 1}, {100, 7, 7}, {1, 0, 0}, {50, 1, 1}, {33, 100, 33},
		{0.07, 10_000, 7}, {1.1, 1000, 11}, {29, 100, 29}, {57, 100, 57}, {0.0001, 5, 1}, {5, 1 << 40, 54975581389},
	} {
		if got := percentOf(c.p, c.n); got != c.want {
			t.Errorf("%g%% of %d is %d, want %d", c.p, c.n, got, c.want)
		}
	}
}
