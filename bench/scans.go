package main

import (
	"context"
	"fmt"
	"time"
)

// scanRace is keyjanitor's scan by one measure against redis-cli's.
type scanRace struct {
	name, rival      string
	rule             []string
	found            []string // the keys that the scan has to name
	goal             float64
	ours, paced, cli turns
}

// scans fills a server with small keys and measures the races asked for.
func (b *bench) scans(ctx context.Context, bin serverBinary, wants func(string) bool) error {
	races := []*scanRace{
		{name: "bytes", rival: "--memkeys", rule: []string{"--min-bytes", "1MiB"}, found: []string{bigString, bigList}, goal: 6},
		{name: "elements", rival: "--bigkeys", rule: []string{"--min-elements", "100000"}, found: []string{bigList}, goal: 5},
	}
	return b.with(ctx, bin, func(srv *server) error {
		b.say("loading %s small keys", grouped(int64(b.keys)))
		if err := loadSmall(ctx, srv.rdb, b.keys); err != nil {
			return err
		}
		total, err := srv.rdb.DBSize(ctx).Result()
		if err != nil {
			return err
		}
		b.printf("## Scanning %s keys\n\n%s; with them a string of 2 MiB and a list of %s entries, which must be found.\n"+
			"Times are those of the whole process, its start and the report included.\n\n", grouped(total), mix, grouped(bigListLength))
		t := raceTable("keys")
		for _, r := range races {
			if !wants(r.name) {
				continue
			}
			for i := range b.runs {
				b.say("scan by %s, run %d of %d", r.name, i+1, b.runs)
				if err := b.raceScan(ctx, srv, r, total); err != nil {
					return err
				}
			}
			t.race("redis-cli "+r.rival, total, &r.cli, &r.cli, 0)
			t.race("keyjanitor by "+r.name+", full share", total, &r.ours, &r.cli, r.goal)
			t.race("keyjanitor by "+r.name+", default share", total, &r.paced, &r.cli, 0)
		}
		b.printf("%s\n", t)
		return nil
	})
}

// raceScan gives each contender its turn.
func (b *bench) raceScan(ctx context.Context, srv *server, r *scanRace, total int64) error {
	scan := func(args ...string) (time.Duration, error) {
		s, took, err := b.keyjanitor(ctx, srv, append(append([]string{"scan"}, r.rule...), args...)...)
		if err == nil && (s.KeysScanned < total || s.KeysMatched != int64(len(r.found))) {
			err = fmt.Errorf("scan by %s saw %d of %d keys and named %d instead of %d",
				r.name, s.KeysScanned, total, s.KeysMatched, len(r.found))
		}
		return took, err
	}
	for _, turn := range []struct {
		of *turns
		do func() (time.Duration, error)
	}{
		{&r.ours, func() (time.Duration, error) { return scan("--scan-share", "100%") }},
		{&r.cli, func() (time.Duration, error) { return redisCLI(ctx, srv, r.rival) }},
		{&r.paced, func() (time.Duration, error) { return scan() }},
	} {
		if err := turn.of.take(ctx, srv, turn.do); err != nil {
			return err
		}
	}
	return nil
}
