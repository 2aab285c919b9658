package throttle

import (
	"slices"
	"time"
)

// Bounds of a batch. Below 16 elements the cost of a round trip is all there
// is to measure. Above 10,000 even the cheapest removal (LTRIM: 10,000 small
// entries in 10 µs on 7.0) frees more than one step should.
const (
	minBatch   = 16
	maxBatch   = 10_000
	firstBatch = 100 // start slow: 100 fields of a hash take 0.2 ms
)

// window is how many measurements decide the next size, by the longest but
// one: what exceeds the target is rare, and one fork, rehash or scheduling
// hiccup changes nothing.
const window = 7

// batch steers the size of one kind of command toward a time on the server.
type batch struct {
	size  int
	costs []time.Duration // time per 1024 elements of the last calls
	next  int             // where in costs the next one goes
}

func newBatch() *batch { return &batch{size: firstBatch} }

// anew begins with other elements: slowly, and without what those before took.
func (b *batch) anew() {
	b.size = max(min(b.size, firstBatch), b.size/4)
	b.costs, b.next = b.costs[:0], 0
}

// perMany is the unit of a cost: a single element takes less than a
// time.Duration can hold precisely.
const perMany = 1024

// observe takes in that n elements took the server t.
//
// The next size is what the highest cost but one makes of the target, at most
// doubled at once. A call over four times the target halves the next batch
// whatever the others say; if the one after it is as slow, the size follows,
// and if not, it was not the batch.
func (b *batch) observe(n int, t, target time.Duration) {
	if n <= 0 {
		return
	}
	if n < b.size/2 && t < target {
		return // a short rest says little about a full batch
	}
	cost := t * perMany / time.Duration(n)
	if len(b.costs) < window {
		b.costs = append(b.costs, cost)
	} else {
		b.costs[b.next%window] = cost
	}
	b.next++
	if t > 4*target {
		b.size = max(minBatch, min(b.size, n)/2)
		return
	}
	sorted := slices.Sorted(slices.Values(b.costs))
	high := max(1, sorted[max(0, len(sorted)-2)])
	want := int(min(int64(target)*perMany/int64(high), maxBatch))
	b.size = min(max(want, minBatch), 2*b.size)
}
