package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slowPrefix = "slow:"
	slowListed = 20               // of what misses the goal
	target     = time.Millisecond // the default target_latency
	noted      = 100 * time.Microsecond
)

// noteMore is the line of a server's configuration that has its slow log note
// every command from noted on.
var noteMore = "slowlog-log-slower-than " + strconv.FormatInt(noted.Microseconds(), 10)

// slowLogs has keyjanitor remove keys of every type and size without UNLINK
// and tells what the server noted in its slow log.
func (b *bench) slowLogs(ctx context.Context, srv *server) error {
	sum := map[string]*slowCommand{}
	var entries []slowEntry
	var rehash []time.Duration
	keys := b.slowKeys(srv.bin.since(5))
	for i := range b.runs {
		b.say("slow log, run %d of %d", i+1, b.runs)
		step, err := b.rehashStep(ctx, srv)
		if err != nil {
			return err
		}
		rehash = append(rehash, step)
		for _, k := range keys {
			if err := k.load(ctx, srv.rdb, slowPrefix+k.name); err != nil {
				return fmt.Errorf("load %s: %w", k.name, err)
			}
		}
		stats, logs, err := b.slowClean(ctx, srv, len(keys))
		if err != nil {
			return err
		}
		entries = append(entries, gather(sum, stats, logs, i+1)...)
	}
	b.tellSlow(len(keys), sum, entries, rehash)
	return nil
}

// slowClean removes the keys and returns the server's figures of that alone.
func (b *bench) slowClean(ctx context.Context, srv *server, keys int) (map[string]stat, []redis.SlowLog, error) {
	if err := errors.Join(srv.resetStats(ctx), srv.resetSlowLog(ctx)); err != nil {
		return nil, nil, err
	}
	s, _, err := b.keyjanitor(ctx, srv, "clean", "--prefix", slowPrefix, "--execute", "--state-dir", b.stateDir())
	if err != nil {
		return nil, nil, err
	}
	if gone := s.Outcomes["deleted"] + s.Outcomes["drained"]; gone != int64(keys) {
		return nil, nil, fmt.Errorf("keyjanitor removed %d of %d keys: %v", gone, keys, s.Outcomes)
	}
	if err := srv.absent(ctx); err != nil {
		return nil, nil, err
	}
	logs, err := srv.rdb.SlowLogGet(ctx, 100_000).Result()
	if err != nil {
		return nil, nil, err
	}
	stats, err := srv.stats(ctx)
	return stats, logs, err
}

// slowCommand is what all runs had of one command.
type slowCommand struct {
	calls, over int64
	slowest     time.Duration
}

// slowEntry is one call that was over the target.
type slowEntry struct {
	run     int
	command string
	took    time.Duration
}

// gather adds up one run and returns its calls over the target. The bench's
// own commands are none of ours.
func gather(sum map[string]*slowCommand, stats map[string]stat, logs []redis.SlowLog, run int) (over []slowEntry) {
	own := func(name string) bool {
		return strings.HasPrefix(name, "slowlog") || name == "config|resetstat" || name == "dbsize"
	}
	of := func(name string) *slowCommand {
		if sum[name] == nil {
			sum[name] = &slowCommand{}
		}
		return sum[name]
	}
	for name, st := range stats {
		if !own(name) {
			of(name).calls += st.calls
		}
	}
	for _, l := range logs {
		name := strings.ToLower(l.Args[0])
		if len(l.Args) > 1 {
			if _, container := stats[name+"|"+strings.ToLower(l.Args[1])]; container {
				name += "|" + strings.ToLower(l.Args[1])
			}
		}
		if own(name) {
			continue
		}
		c := of(name)
		c.slowest = max(c.slowest, l.Duration)
		if l.Duration > target {
			c.over++
			over = append(over, slowEntry{run, abridged(l.Args), l.Duration})
		}
	}
	return over
}

// abridged is a command with the end of its key, which in the trash has the
// name at its end, and how many arguments more the log says there were.
func abridged(args []string) string {
	out := slices.Clone(args[:min(len(args), 3)])
	for i, a := range out {
		const long = 30
		if len(a) > long {
			a = "…" + a[len(a)-long:]
		}
		out[i] = strings.ToValidUTF8(strings.ReplaceAll(a, "\n", " "), "?")
	}
	if len(args) > 3 {
		out = append(out, "…", args[len(args)-1])
	}
	return strings.Join(out, " ")
}

func (b *bench) tellSlow(keys int, sum map[string]*slowCommand, entries []slowEntry, rehash []time.Duration) {
	b.printf("## What of ours the slow log notes\n\n`clean --execute` without UNLINK, at the default pace, of %d keys: hashes, sets, sorted sets, lists and streams of 10 to %s "+
		"elements (streams with entries pending in two groups), sets of numbers, sorted sets of one score, a few elements of up to 4 MiB, and strings of up to 16 MiB. "+
		"Calls are those of all %d runs.\n\n", keys, grouped(int64(b.fields)), b.runs)
	t := newTable("command", "calls", "over "+millis(target), "share of the calls", "slowest")
	names := slices.Collect(maps.Keys(sum))
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(sum[y].slowest, sum[x].slowest), cmp.Compare(x, y))
	})
	for _, name := range names {
		c := sum[name]
		slowest := millis(c.slowest)
		if c.slowest == 0 {
			slowest = "under " + millis(noted)
		}
		t.add(strings.ReplaceAll(name, "|", " "), grouped(c.calls), grouped(c.over), percent(float64(c.over)/float64(max(1, c.calls))), slowest)
	}
	b.printf("%s\n", t)

	limit := target + slices.Max(rehash)
	missed := slices.DeleteFunc(entries, func(e slowEntry) bool { return e.took <= limit })
	b.printf("The slowest HSET or HDEL of a single field, while a hash grows to %s fields and shrinks to none, took %s: "+
		"the longest is what one step of a rehash costs here, with the table that is made or freed.\n\n", grouped(int64(b.fields)), spread(rehash, millis))
	b.printf("Goal, nothing of ours over the target and one such step, %s: %s, %d calls over it.\n\n", millis(limit), verdict(len(missed) == 0), len(missed))
	if len(missed) == 0 {
		return
	}
	slices.SortFunc(missed, func(x, y slowEntry) int { return cmp.Compare(y.took, x.took) })
	list := newTable("run", "took", "command")
	for _, e := range missed[:min(len(missed), slowListed)] {
		list.add(strconv.Itoa(e.run), millis(e.took), "`"+e.command+"`")
	}
	b.printf("%s\n", list)
}

// rehashStep is the slowest command for a single field while a hash as large
// as the largest that is removed grows and shrinks.
func (b *bench) rehashStep(ctx context.Context, srv *server) (time.Duration, error) {
	if err := srv.resetSlowLog(ctx); err != nil {
		return 0, err
	}
	pipe := srv.rdb.Pipeline()
	for i := range b.fields {
		pipe.HSet(ctx, bigHash, fmt.Sprintf("member:%07d", i), filler[:20])
		if err := flush(ctx, pipe, 1000); err != nil {
			return 0, err
		}
	}
	for i := range b.fields {
		pipe.HDel(ctx, bigHash, fmt.Sprintf("member:%07d", i))
		if err := flush(ctx, pipe, 1000); err != nil {
			return 0, err
		}
	}
	if err := flush(ctx, pipe, 0); err != nil {
		return 0, err
	}
	return srv.longest(ctx)
}
