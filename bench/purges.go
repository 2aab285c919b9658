package main

import (
	"context"
	"fmt"
	"time"
)

// purgePrefix begins the names of all keys of a purge.
const purgePrefix = "p:"

// purges measures how fast many small keys are gone.
func (b *bench) purges(ctx context.Context, srv *server) error {
	var byName, byBytes, byElements, paced, loop, cli turns
	clean := func(args ...string) func() (time.Duration, error) {
		return func() (time.Duration, error) { return b.purge(ctx, srv, args...) }
	}
	full := []string{"--max-share", "100%", "--scan-share", "100%"}
	contenders := []struct {
		name string
		of   *turns
		do   func() (time.Duration, error)
		all  bool // no rule leaves strings, which have no elements, out
	}{
		{"the plain loop", &loop, func() (time.Duration, error) {
			n, took, err := plainLoop(ctx, srv, allKeys)
			if err == nil && n != int64(b.keys) {
				err = fmt.Errorf("the plain loop removed %d of %d keys", n, b.keys)
			}
			return took, err
		}, true},
		{"by name", &byName, clean(full...), true},
		{"by bytes", &byBytes, clean(append(full, "--min-bytes", "1B")...), true},
		{"by elements", &byElements, clean(append(full, "--min-elements", "1")...), false},
		{"redis-cli and xargs", &cli, func() (time.Duration, error) { return xargs(ctx, srv, purgePrefix+"*") }, true},
		{"by name, default pace", &paced, clean(), true},
	}
	for i := range b.runs {
		for _, c := range contenders {
			b.say("purge, run %d of %d: %s", i+1, b.runs, c.name)
			if _, err := unlinkLoop(ctx, srv.rdb); err != nil {
				return err
			}
			if err := loadMix(ctx, srv.rdb, purgePrefix, b.keys); err != nil {
				return err
			}
			if err := c.of.take(ctx, srv, c.do); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if !c.all {
				continue
			}
			if err := srv.absent(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	n := int64(b.keys)
	t := raceTable("keys")
	t.race("SCAN COUNT 1000, pipelined UNLINK, one connection", n, &loop, &loop, 0)
	t.race("keyjanitor clean by name, full share", n, &byName, &loop, 0.8)
	t.race("keyjanitor clean by bytes, full share", n, &byBytes, &loop, 0.4)
	t.race("keyjanitor clean by elements (a third of the keys has any), full share", n, &byElements, &loop, 0.4)
	t.race("keyjanitor clean by name, default pace", n, &paced, &loop, 0)
	t.race("redis-cli --scan, xargs -n 1000 redis-cli unlink", n, &cli, &loop, 0)
	t.race("keyjanitor clean by name, beside that", n, &byName, &cli, 1.5)
	b.printf("## Purging %s small keys\n\n%s, all under one prefix. keyjanitor judges each key in the step that removes it and keeps its audit; "+
		"its time and redis-cli's are those of the whole process, the loop's is without its start.\n\n%s\n", grouped(n), mix, t)
	return nil
}

// purge has keyjanitor remove the keys and checks its numbers.
func (b *bench) purge(ctx context.Context, srv *server, args ...string) (time.Duration, error) {
	args = append([]string{"clean", "--prefix", purgePrefix, "--execute", "--state-dir", b.stateDir()}, args...)
	s, took, err := b.keyjanitor(ctx, srv, args...)
	if err != nil {
		return 0, err
	}
	left, err := srv.rdb.DBSize(ctx).Result()
	if gone := s.Outcomes["unlinked"] + s.Outcomes["deleted"]; err == nil && gone != int64(b.keys)-left {
		err = fmt.Errorf("keyjanitor tells of %d keys, %d of %d are left", gone, left, b.keys)
	}
	return took, err
}
