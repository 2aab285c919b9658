package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// newerCLI names a second redis-cli, of a version that knows --count and
// --keystats.
const newerCLI = "KEYJANITOR_BENCH_CLI"

// scanner is one way to scan, with what it took and what others felt.
type scanner struct {
	name string
	turns
	felt stallRow
	do   func(context.Context, *server) error
}

// scanGoal is how many times as fast one way is to be as another.
type scanGoal struct {
	is, than string
	times    float64
}

// The ways, by name: goals speak of them.
const (
	floorLoop  = "SCAN COUNT 1000, no probes (the floor)"
	cliMemkeys = "redis-cli --memkeys"
	cliBigkeys = "redis-cli --bigkeys"
	newMemkeys = "newer redis-cli --memkeys --count 1000"
	newStats   = "newer redis-cli --keystats"
)

// scans fills a server with small keys and measures the ways asked for.
func (b *bench) scans(ctx context.Context, bin serverBinary, wants func(string) bool) error {
	return b.with(ctx, bin, func(srv *server) error {
		b.say("loading %s small keys", grouped(int64(b.keys)))
		if err := loadSmall(ctx, srv.rdb, b.keys); err != nil {
			return err
		}
		total, err := srv.rdb.DBSize(ctx).Result()
		if err != nil {
			return err
		}
		ways, goals := b.waysToScan(wants, total)
		idle := &stallRow{name: "nothing happens"}
		for i := range b.runs {
			if err := idle.measure(ctx, srv, func() error { return sleep(ctx, idleTime) }); err != nil {
				return err
			}
			for _, w := range ways {
				b.say("scan, run %d of %d: %s", i+1, b.runs, w.name)
				// A neighbour that pings keeps the processors awake, which makes
				// whoever waits for round trips faster: it has a turn of its own.
				err := w.take(ctx, srv, func() (time.Duration, error) {
					start := time.Now()
					err := w.do(ctx, srv)
					return time.Since(start), err
				})
				if err == nil {
					err = w.felt.measure(ctx, srv, func() error { return w.do(ctx, srv) })
				}
				if err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
			}
		}
		b.tellScans(total, ways, goals, idle)
		return nil
	})
}

// waysToScan are the contenders, and who is to be how much faster than whom.
func (b *bench) waysToScan(wants func(string) bool, total int64) (ways []*scanner, goals []scanGoal) {
	add := func(name string, do func(context.Context, *server) error) {
		ways = append(ways, &scanner{name: name, felt: stallRow{name: name}, do: do})
	}
	ours := func(name string, found int64, args ...string) {
		add(name, func(ctx context.Context, srv *server) error {
			s, _, err := b.keyjanitor(ctx, srv, append([]string{"scan"}, args...)...)
			if err == nil && (s.KeysScanned < total || s.KeysMatched != found) {
				err = fmt.Errorf("it saw %d of %d keys and named %d instead of %d", s.KeysScanned, total, s.KeysMatched, found)
			}
			return err
		})
	}
	cli := func(name, program string, args ...string) {
		add(name, func(ctx context.Context, srv *server) error {
			host, port := split(srv.addr)
			_, _, err := command(ctx, program, append([]string{"-h", host, "-p", port}, args...)...)
			return err
		})
	}
	paces := []struct {
		name  string
		flags []string
	}{
		{"default", nil},
		{"full share, 1 ms pages", []string{"--scan-share", "100%"}},
		{"full share, 5 ms pages", []string{"--scan-share", "100%", "--target-latency", "5ms"}},
	}
	add(floorLoop, scanLoop)
	newer := os.Getenv(newerCLI)
	if wants("bytes") {
		rule := []string{"--min-bytes", "1MiB"}
		for _, p := range paces {
			ours("keyjanitor by bytes, "+p.name, 2, append(rule, p.flags...)...)
		}
		ours("keyjanitor by bytes, --script, full share, 1 ms pages", 2, append(rule, "--script", "--scan-share", "100%")...)
		cli(cliMemkeys, "redis-cli", "--memkeys")
		goals = append(goals,
			scanGoal{"keyjanitor by bytes, full share, 1 ms pages", cliMemkeys, 8},
			scanGoal{"keyjanitor by bytes, full share, 5 ms pages", cliMemkeys, 10},
			scanGoal{"keyjanitor by bytes, --script, full share, 1 ms pages", "keyjanitor by bytes, full share, 1 ms pages", 1.3},
		)
		if newer != "" {
			cli(newMemkeys, newer, "--memkeys", "--count", "1000")
			cli(newStats, newer, "--keystats")
			goals = append(goals, scanGoal{"keyjanitor by bytes, full share, 5 ms pages", newMemkeys, 1.5})
		}
	}
	if wants("elements") {
		for _, p := range paces {
			ours("keyjanitor by elements, "+p.name, 1, append([]string{"--min-elements", "100000"}, p.flags...)...)
		}
		cli(cliBigkeys, "redis-cli", "--bigkeys")
		goals = append(goals, scanGoal{"keyjanitor by elements, full share, 1 ms pages", cliBigkeys, 8})
	}
	if wants("bytes") && wants("elements") {
		ours("keyjanitor by both, full share, 1 ms pages", 1, "--min-bytes", "100KiB", "--min-elements", "100000", "--scan-share", "100%")
	}
	return ways, goals
}

// scanLoop is a scan that asks about no key.
func scanLoop(ctx context.Context, srv *server) error {
	for cursor := uint64(0); ; {
		_, next, err := srv.rdb.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// tellScans writes the tables, the goals, and how near the floor each way is.
func (b *bench) tellScans(total int64, ways []*scanner, goals []scanGoal, idle *stallRow) {
	b.printf("## Scanning %s keys\n\n%s; with them a string of 2 MiB and a list of %s entries, which must be found. "+
		"Times are those of the whole process, its start and the report included. %s\n", grouped(total), mix, grouped(bigListLength), probeText)
	byName := map[string]*scanner{}
	t := newTable("way", "time", "keys/s", "server CPU per key", "of the floor's speed", "PING p99", "PING p99.9", "PING max")
	t.add(append([]string{idle.name, "", "", "", ""}, idle.pings()[1:]...)...)
	for _, w := range ways {
		byName[w.name] = w
		cpu := strconv.FormatFloat(float64(median(w.cpu).Nanoseconds())/1000/float64(total), 'f', 2, 64) + " µs"
		near := strconv.FormatFloat(100*median(ratios(w.times, ways[0].times)), 'f', 0, 64) + "%"
		t.add(append([]string{w.name, spread(w.times, seconds), perSecond(median(rates(total, w.times))), cpu, near}, w.felt.pings()[1:]...)...)
	}
	b.printf("%s\n", t)
	if len(goals) == 0 {
		return
	}
	g := newTable("goal", "ratio, run by run", "verdict")
	for _, want := range goals {
		ratio := ratios(byName[want.is].times, byName[want.than].times)
		g.add(want.is+" beside "+want.than, spread(ratio, times), goal(want.times, median(ratio)))
	}
	b.printf("%s\n", g)
}
