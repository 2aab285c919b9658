package throttle

import (
	"testing"
	"time"
)

// run lets a batch take calls of its own size on a server that needs so long
// for an element, and returns the size after each.
func run(b *batch, calls int, each, target time.Duration) []int {
	sizes := make([]int, calls)
	for i := range sizes {
		b.observe(b.size, time.Duration(b.size)*each, target)
		sizes[i] = b.size
	}
	return sizes
}

func TestBatchConvergesToTheTarget(t *testing.T) {
	const target = time.Millisecond
	for _, test := range []struct {
		each time.Duration
		want int
	}{
		{time.Microsecond, 1000}, {10 * time.Microsecond, 100}, {250 * time.Nanosecond, 4000},
		{time.Nanosecond, maxBatch}, {200 * time.Microsecond, minBatch}, {time.Second, minBatch}, {0, maxBatch},
	} {
		b := newBatch()
		sizes := run(b, 20, test.each, target)
		if got := sizes[len(sizes)-1]; got < test.want*9/10 || got > test.want*11/10 {
			t.Errorf("%v an element: batches %d, want %d", test.each, sizes, test.want)
		}
		last := firstBatch
		for _, size := range sizes {
			if size > 2*last {
				t.Errorf("%v an element: from %d to %d at once", test.each, last, size)
			}
			last = size
			if size < minBatch || size > maxBatch {
				t.Errorf("%v an element: %d is out of bounds", test.each, size)
			}
		}
	}
}

func TestBatchFollowsTheServer(t *testing.T) {
	b := newBatch()
	run(b, 20, time.Microsecond, time.Millisecond)
	if sizes := run(b, 2*window, 5*time.Microsecond, time.Millisecond); sizes[len(sizes)-1] != 200 {
		t.Errorf("five times as slow: %d, want 200", sizes)
	}
	if sizes := run(b, 2*window, time.Microsecond, time.Millisecond); sizes[len(sizes)-1] < 900 {
		t.Errorf("as fast as before: %d, want 1000", sizes)
	}
}

// One fork or rehash is not the batch's fault.
func TestOneSlowCallHalvesOnlyTheNext(t *testing.T) {
	b := newBatch()
	run(b, 20, time.Microsecond, time.Millisecond)
	before := b.size
	b.observe(before, 50*time.Millisecond, time.Millisecond)
	if b.size != before/2 {
		t.Errorf("after a slow call %d, want %d", b.size, before/2)
	}
	if sizes := run(b, 1, time.Microsecond, time.Millisecond); sizes[0] != before {
		t.Errorf("after the next %d, want %d", sizes[0], before)
	}
}

func TestShortRestsAreIgnored(t *testing.T) {
	b := newBatch()
	run(b, 20, time.Microsecond, time.Millisecond)
	before := b.size
	for range 2 * window {
		b.observe(before/2-1, 900*time.Microsecond, time.Millisecond)
		b.observe(0, time.Hour, time.Millisecond)
	}
	if b.size != before {
		t.Errorf("%d, want %d", b.size, before)
	}
	for range window {
		b.observe(before/2-1, 2*time.Millisecond, time.Millisecond)
	}
	if b.size >= before {
		t.Errorf("slow however short: %d, want less than %d", b.size, before)
	}
}

// Batches are sized by the slow ones among those that come by.
func TestBatchGoesByTheSlowOnes(t *testing.T) {
	b := newBatch()
	for i := range 10 * window {
		each := time.Microsecond
		if i%window < 2 {
			each = 2 * time.Microsecond
		}
		b.observe(b.size, time.Duration(b.size)*each, time.Millisecond)
	}
	if b.size != 500 {
		t.Errorf("%d, want the 500 that two in %d allow", b.size, window)
	}
}

// What the elements of one key took says little about those of the next.
func TestBatchBeginsAnew(t *testing.T) {
	b := newBatch()
	b.anew()
	if b.size != firstBatch {
		t.Errorf("%d, want %d: nothing is slower than the start", b.size, firstBatch)
	}
	run(b, 20, time.Microsecond, time.Millisecond)
	b.anew()
	if b.size != 250 {
		t.Errorf("%d, want a quarter of 1000", b.size)
	}
	if sizes := run(b, 1, 10*time.Microsecond, time.Millisecond); sizes[0] != 100 {
		t.Errorf("%d, want the 100 that the first call of these allows", sizes)
	}
}
