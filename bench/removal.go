package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Limits of a section that takes long: it loads and removes 26 million
// elements eleven times a run.
const (
	removalRuns   = 3
	removalWindow = 2 * time.Second // of the load alone, before and after
	removalKey    = "big:key"
)

var removalLoad = load{Clients: 20, Depth: 1}

// removalShapes are the keys that are removed, at scale 1.
var removalShapes = []struct {
	kind string
	n    int
}{{"hash", 1_000_000}, {"hash", 10_000_000}, {"list", 5_000_000}, {"set", 5_000_000}, {"zset", 5_000_000}}

// The ways to remove a key, by name: goals speak of them.
const (
	wayDel      = "DEL"
	wayUnlink   = "UNLINK"
	wayLoop     = "the plain loop"
	wayUnlinked = "keyjanitor with UNLINK, default pace"
	wayPaced    = "keyjanitor without UNLINK, default pace"
	wayFull     = "keyjanitor without UNLINK, full pace"
)

// remover is one way to remove a key, with what it took and what others felt.
type remover struct {
	name   string
	unlink bool // on the server that has UNLINK
	// do removes a key of n elements. By its own clock that took so long; 0
	// where nothing but the whole is worth telling.
	do func(ctx context.Context, srv *server, n int) (time.Duration, error)

	turns          // the whole, beside the probe, until the memory is free
	felt  stallRow // in the same turns
	own   []time.Duration
	busy  []float64 // share of that in which the server ran its commands
	load  []pressure
}

// act are the times in which elements were removed.
func (w *remover) act() []time.Duration {
	if len(w.own) > 0 {
		return w.own
	}
	return w.times
}

// contest is one key's.
type contest struct {
	kind string
	n    int
	lazy bool // DEL is an UNLINK
	idle stallRow
	ways []*remover
}

func (c *contest) way(name string) *remover {
	return c.ways[slices.IndexFunc(c.ways, func(w *remover) bool { return w.name == name })]
}

// removal measures every way to remove one big key of each type, on a server
// that has UNLINK and on one that has not; only one of the two is busy.
func (b *bench) removal(ctx context.Context, bin serverBinary) error {
	runs := min(b.runs, removalRuns)
	var contests []*contest
	for _, shape := range removalShapes {
		c := b.newContest(shape.kind, int(float64(shape.n)*b.scale))
		contests = append(contests, c)
		// New servers for each: no key is to find the memory of another.
		err := b.with(ctx, bin, func(with *server) error {
			return b.with(ctx, bin, func(without *server) error {
				c.lazy = without.lazyDel(ctx)
				for i := range runs {
					if err := b.contest(ctx, c, with, without, fmt.Sprintf("run %d of %d", i+1, runs)); err != nil {
						return err
					}
				}
				return nil
			}, noUnlink)
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", c.kind, grouped(int64(c.n)), err)
		}
	}
	b.tellRemoval(contests, runs)
	return nil
}

func (b *bench) newContest(kind string, n int) *contest {
	c := &contest{kind: kind, n: n, idle: stallRow{name: "nothing happens"}}
	add := func(name string, unlink bool, do func(ctx context.Context, srv *server, n int) (time.Duration, error)) {
		c.ways = append(c.ways, &remover{name: name, unlink: unlink, do: do, felt: stallRow{name: name}})
	}
	add(wayDel, false, func(ctx context.Context, srv *server, _ int) (time.Duration, error) {
		return 0, srv.rdb.Del(ctx, removalKey).Err()
	})
	add(wayUnlink, true, func(ctx context.Context, srv *server, _ int) (time.Duration, error) {
		return 0, srv.rdb.Unlink(ctx, removalKey).Err()
	})
	add(wayLoop, false, func(ctx context.Context, srv *server, n int) (time.Duration, error) {
		return loopAlone(ctx, srv, removalKey, n)
	})
	add(wayUnlinked, true, func(ctx context.Context, srv *server, n int) (time.Duration, error) {
		_, _, err := b.remove(ctx, srv, removalKey, n, "unlinked")
		return 0, err
	})
	drain := func(pace ...string) func(context.Context, *server, int) (time.Duration, error) {
		return func(ctx context.Context, srv *server, n int) (time.Duration, error) {
			_, act, err := b.remove(ctx, srv, removalKey, n, "drained", pace...)
			return act, err
		}
	}
	add(wayPaced, false, drain())
	add(wayFull, false, drain("--max-share", "100%"))
	return c
}

// contest gives each way its two turns of a run.
func (b *bench) contest(ctx context.Context, c *contest, with, without *server, run string) error {
	load := func(srv *server) error { return loadBig(ctx, srv.rdb, c.kind, removalKey, c.n) }
	if err := load(without); err != nil {
		return err
	}
	if err := c.idle.measure(ctx, without, func() error { return sleep(ctx, idleTime) }); err != nil {
		return err
	}
	for _, w := range c.ways {
		b.say("removal of a %s of %s, %s: %s", c.kind, grouped(int64(c.n)), run, w.name)
		srv := without
		if w.unlink {
			srv = with
		}
		if err := load(srv); err != nil {
			return err
		}
		err := w.beside(ctx, srv, c.n)
		if err == nil {
			err = load(srv)
		}
		if err == nil {
			err = w.loaded(ctx, srv, c.n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// whole removes the key and waits until its memory is free.
func (w *remover) whole(ctx context.Context, srv *server, n int) (own time.Duration, err error) {
	if own, err = w.do(ctx, srv, n); err != nil {
		return 0, err
	}
	if err := srv.settle(ctx); err != nil {
		return 0, err
	}
	return own, srv.absent(ctx)
}

// beside is a turn with the probe.
func (w *remover) beside(ctx context.Context, srv *server, n int) error {
	if err := srv.resetStats(ctx); err != nil {
		return err
	}
	var own time.Duration
	err := w.take(ctx, srv, func() (time.Duration, error) {
		err := w.felt.measure(ctx, srv, func() (err error) {
			own, err = w.whole(ctx, srv, n)
			return err
		})
		if err != nil {
			return 0, err
		}
		return w.felt.took[len(w.felt.took)-1], nil
	})
	if err != nil || own == 0 {
		return err
	}
	stats, err := srv.stats(ctx)
	w.own = append(w.own, own)
	w.busy = append(w.busy, busy(stats).Seconds()/own.Seconds())
	return err
}

// loaded is a turn with the load.
func (w *remover) loaded(ctx context.Context, srv *server, n int) error {
	p, err := underLoad(ctx, srv, removalLoad, removalWindow, func() error {
		_, err := w.whole(ctx, srv, n)
		return err
	})
	w.load = append(w.load, p)
	return err
}
