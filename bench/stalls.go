package main

import (
	"context"
	"fmt"
	"time"
)

const bigHash = "session:index"

// idleTime is how long the probe listens to a server with nothing to do.
const idleTime = 5 * time.Second

// drain has keyjanitor remove the big hash and returns the whole time and the
// time that the finding tells, which begins with the act.
func (b *bench) drain(ctx context.Context, srv *server, pace ...string) (whole, act time.Duration, err error) {
	return b.remove(ctx, srv, bigHash, b.fields, "drained", pace...)
}

// remove has keyjanitor remove a key of n elements, alone on its server.
func (b *bench) remove(ctx context.Context, srv *server, key string, n int, outcome string, pace ...string) (whole, act time.Duration, err error) {
	args := append([]string{"delete", "--key", key, "--execute", "--state-dir", b.stateDir()}, pace...)
	s, whole, err := b.keyjanitor(ctx, srv, args...)
	if err != nil {
		return 0, 0, err
	}
	if len(s.Findings) != 1 || s.Findings[0].Outcome != outcome || s.Removed != int64(n) {
		return 0, 0, fmt.Errorf("keyjanitor removed %d of %d elements: %+v", s.Removed, n, s.Findings)
	}
	return whole, duration(s.Findings[0].Took), srv.absent(ctx)
}

func duration(millis float64) time.Duration { return time.Duration(millis * float64(time.Millisecond)) }

func (b *bench) loop(ctx context.Context, srv *server) (time.Duration, error) {
	return loopAlone(ctx, srv, bigHash, b.fields)
}

// loopAlone has the plain loop remove a key of n elements.
func loopAlone(ctx context.Context, srv *server, key string, n int) (time.Duration, error) {
	removed, took, err := plainLoop(ctx, srv, key)
	if err == nil && removed != int64(n) {
		err = fmt.Errorf("the plain loop removed %d of %d elements", removed, n)
	}
	return took, err
}

// drains measures how fast a hash is gone.
func (b *bench) drains(ctx context.Context, srv *server) error {
	var whole, act, plain turns
	for i := range b.runs {
		b.say("drain, run %d of %d", i+1, b.runs)
		if err := loadBig(ctx, srv.rdb, "hash", bigHash, b.fields); err != nil {
			return err
		}
		err := whole.take(ctx, srv, func() (time.Duration, error) {
			took, inside, err := b.drain(ctx, srv, "--max-share", "100%")
			act.times = append(act.times, inside)
			return took, err
		})
		if err != nil {
			return err
		}
		if err := loadBig(ctx, srv.rdb, "hash", bigHash, b.fields); err != nil {
			return err
		}
		err = plain.take(ctx, srv, func() (time.Duration, error) { return b.loop(ctx, srv) })
		if err != nil {
			return err
		}
	}
	n := int64(b.fields)
	t := raceTable("fields")
	t.race("HSCAN COUNT 100, HDEL, one connection", n, &plain, &plain, 0)
	t.race("keyjanitor delete, full share", n, &whole, &plain, 1.4)
	t.race("of that the act (`took_ms`)", n, &act, &plain, 0)
	b.printf("## Draining a hash of %s fields without UNLINK\n\n"+
		"Fields of 14 bytes, values of 20. keyjanitor's time is that of the whole process; the loop's is without its start.\n\n%s\n",
		grouped(n), t)
	return nil
}

// stalls measures what others feel while the same hash is removed.
func (b *bench) stalls(ctx context.Context, srv *server) error {
	idle := &stallRow{name: "nothing happens"}
	paced := &stallRow{name: "keyjanitor delete, default pace"}
	full := &stallRow{name: "keyjanitor delete, full share"}
	loop := &stallRow{name: "HSCAN COUNT 100, HDEL"}
	del := &stallRow{name: "DEL"}
	contenders := []struct {
		row *stallRow
		do  func() error
	}{
		{idle, func() error { return sleep(ctx, idleTime) }},
		{paced, func() error { _, _, err := b.drain(ctx, srv); return err }},
		{loop, func() error { _, err := b.loop(ctx, srv); return err }},
		{full, func() error { _, _, err := b.drain(ctx, srv, "--max-share", "100%"); return err }},
		{del, func() error { return srv.rdb.Del(ctx, bigHash).Err() }},
	}
	for i := range b.runs {
		for _, c := range contenders {
			b.say("what others feel, run %d of %d: %s", i+1, b.runs, c.row.name)
			// The first contender leaves the hash as it is; to write it again
			// changes nothing.
			if err := loadBig(ctx, srv.rdb, "hash", bigHash, b.fields); err != nil {
				return err
			}
			if err := c.row.measure(ctx, srv, c.do); err != nil {
				return err
			}
		}
	}
	b.printf("## What others feel while a hash of %s fields is removed without UNLINK\n\n%s%s\n",
		grouped(int64(b.fields)), probeText, b.delNote(ctx, srv))
	b.printf("%s\n", stallTable([]stallRow{*idle, *paced, *full, *loop, *del}))
	// The default pace takes longer, so more of the machine's own hiccups fall
	// into it: only a share of the PINGs compares, a maximum does not.
	b.printf("Goal, at the default pace no longer stall than the loop causes: %s, judged by p99.9, %s beside %s. "+
		"The maximum is %s beside %s; with nothing going on it is %s in %s.\n\n",
		verdict(paced.p999() <= loop.p999()), millis(paced.p999()), millis(loop.p999()), millis(paced.most()), millis(loop.most()), millis(idle.most()), idleTime)
	return nil
}

const probeText = "A client sends PING every millisecond, whether or not the last one was answered. " +
	"Each figure is the median of the runs; the longest command, by the server's slow log, is that of all runs.\n"

// delNote says where DEL is not what it was.
func (b *bench) delNote(ctx context.Context, srv *server) string {
	if srv.lazyDel(ctx) {
		return "This server's DEL frees in the background by its own default (lazyfree-lazy-user-del yes).\n"
	}
	return ""
}

func (r *stallRow) measure(ctx context.Context, srv *server, do func() error) error {
	var took time.Duration
	l, err := felt(ctx, srv, func() error {
		start := time.Now()
		err := do()
		took = time.Since(start)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	r.took, r.felt = append(r.took, took), append(r.felt, l)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kinds are the types that are drained.
var kinds = []string{"hash", "set", "zset", "list"}

// length is how many members the big key of a type has.
func (b *bench) length(kind string) int {
	if kind == "list" {
		return b.fields / 2
	}
	return b.fields
}

func (b *bench) loadKinds(ctx context.Context, srv *server) error {
	for _, kind := range kinds {
		if err := loadBig(ctx, srv.rdb, kind, "big:"+kind, b.length(kind)); err != nil {
			return err
		}
	}
	return nil
}

// cleans measures what others feel while one big key of each type is found
// and removed.
func (b *bench) cleans(ctx context.Context, srv *server) error {
	clean := &stallRow{name: "keyjanitor clean, default pace"}
	all := &stallRow{name: "DEL, one after another"}
	act, slowest, del := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	batches := map[string][]int64{}
	for i := range b.runs {
		b.say("clean, run %d of %d", i+1, b.runs)
		if err := b.loadKinds(ctx, srv); err != nil {
			return err
		}
		var s summary
		err := clean.measure(ctx, srv, func() (err error) {
			s, _, err = b.keyjanitor(ctx, srv, "clean", "--min-elements", fmt.Sprint(min(100_000, b.fields/2)),
				"--all-keys", "--execute", "--state-dir", b.stateDir())
			return err
		})
		if err != nil {
			return err
		}
		if len(s.Findings) != len(kinds) {
			return fmt.Errorf("clean named %d keys instead of %d", len(s.Findings), len(kinds))
		}
		for _, f := range s.Findings {
			if f.Outcome != "drained" {
				return fmt.Errorf("%s was %s", f.Key, f.Outcome)
			}
			act[f.Type] = append(act[f.Type], duration(f.Took))
			slowest[f.Type] = append(slowest[f.Type], duration(f.Slowest))
			batches[f.Type] = append(batches[f.Type], f.Batches)
		}
		if err := srv.absent(ctx); err != nil {
			return err
		}
		if err := b.loadKinds(ctx, srv); err != nil {
			return err
		}
		err = all.measure(ctx, srv, func() error {
			for _, kind := range kinds {
				start := time.Now()
				if err := srv.rdb.Del(ctx, "big:"+kind).Err(); err != nil {
					return err
				}
				del[kind] = append(del[kind], time.Since(start))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	idle := &stallRow{name: "nothing happens"}
	for range b.runs {
		if err := idle.measure(ctx, srv, func() error { return sleep(ctx, idleTime) }); err != nil {
			return err
		}
	}
	b.printf("## What others feel while one key of each type is removed without UNLINK\n\n%s: hash, set and zset (half of it with one score) of %s, list of %s. %s%s\n%s\n",
		"`clean --min-elements … --all-keys --execute`", grouped(int64(b.fields)), grouped(int64(b.length("list"))),
		probeText, b.delNote(ctx, srv), stallTable([]stallRow{*idle, *clean, *all}))
	t := newTable("type", "drained in", "batches", "slowest batch, as we saw it", "DEL took")
	for _, kind := range kinds {
		t.add(kind, spread(act[kind], seconds), spread(batches[kind], grouped), spread(slowest[kind], millis), spread(del[kind], millis))
	}
	b.printf("%s\n", t)
	return nil
}
