// Package throttle decides whether a shard may be given more work, how much
// at once, and when. A gate stands before every page of a scan and every
// batch of a removal. It promises that a batch is sized by what the ones
// before it took the server, that we stay away from the server for as long
// as the share we may use demands, and that budgets are kept. It sends
// nothing itself.
package throttle

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Options make a gate.
type Options struct {
	Target  time.Duration // server time one page or batch may take, above 0
	Share   float64       // share of the server's main thread, above 0, at most 1
	Budgets []*Budget     // each must allow what passes; shared or not
}

// Gate paces one kind of work on one shard. It is safe for concurrent use,
// though a shard's work is sequential.
type Gate struct {
	o Options

	health *Health // nil: nobody looks

	mu        sync.Mutex
	roundTrip time.Duration
	free      time.Time // before this moment we stay away
	batches   map[string]*batch
}

// New returns a gate that is open.
func New(o Options) *Gate {
	return &Gate{o: o, batches: map[string]*batch{}}
}

// SetHealth makes the gate wait while the health of the server holds work. It
// is for the time before the gate is used.
func (g *Gate) SetHealth(h *Health) { g.health = h }

// SetPace changes the target and the share, for the calls to come.
func (g *Gate) SetPace(target time.Duration, share float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o.Target, g.o.Share = target, share
}

// SetRoundTrip tells the gate what an idle PING takes, so that the network is
// not taken for the server's work.
func (g *Gate) SetRoundTrip(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roundTrip = d
}

// Wait blocks until so many commands, which remove so many elements and
// release so many bytes, may be sent, or ctx is done: then its error says so
// and nothing may be sent. Whether work is held is asked last, too: the rest
// may have taken hours.
func (g *Gate) Wait(ctx context.Context, commands, elements int, bytes int64) error {
	if err := g.healthy(ctx); err != nil {
		return err
	}
	if err := g.afford(ctx, commands, elements, bytes); err != nil {
		return err
	}
	return g.healthy(ctx)
}

func (g *Gate) healthy(ctx context.Context) error {
	if g.health == nil {
		return nil
	}
	return g.health.Wait(ctx)
}

// afford waits for the budgets and the share.
func (g *Gate) afford(ctx context.Context, commands, elements int, bytes int64) error {
	for _, b := range g.o.Budgets {
		if err := b.Wait(ctx, commands, elements, bytes); err != nil {
			return err
		}
	}
	g.mu.Lock()
	away := time.Until(g.free)
	g.mu.Unlock()
	if away <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(away)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return fmt.Errorf("wait for share: %w", ctx.Err())
	}
}

// Batch is how many elements the next call of a kind should take, at least 1.
func (g *Gate) Batch(kind string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.kind(kind).size
	for _, b := range g.o.Budgets {
		_, elements, _ := b.limits()
		n = burst(elements, n)
	}
	return n
}

// Anew tells the gate that the next call of a kind is about another key, whose
// elements may take another time: it starts slow again.
func (g *Gate) Anew(kind string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kind(kind).anew()
}

// Pipeline is how many commands one pipeline may hold, at least 1 and at most n.
func (g *Gate) Pipeline(n int) int {
	for _, b := range g.o.Budgets {
		commands, _, _ := b.limits()
		n = burst(commands, n)
	}
	return n
}

// Observe tells the gate that a call of a kind for n elements took so long.
// What exceeds the round trip was the server's; for it we stay away
// t·(1/share − 1), so that over time the share is kept. Where the wait before
// the call took longer than it was to (a timer is late by up to a
// millisecond), that counts toward the next.
func (g *Gate) Observe(kind string, n int, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := max(0, took-g.roundTrip)
	away := time.Duration(float64(t) * (1/g.o.Share - 1))
	if now := time.Now(); g.free.Before(now) {
		late := now.Add(-took).Sub(g.free)
		if late < 0 || late > g.o.Target {
			late = 0 // it was not the timer: there was nothing to do
		}
		g.free = now.Add(-late)
	}
	g.free = g.free.Add(away)
	g.kind(kind).observe(n, t, g.o.Target)
}

func (g *Gate) kind(name string) *batch {
	b := g.batches[name]
	if b == nil {
		b = newBatch()
		g.batches[name] = b
	}
	return b
}
