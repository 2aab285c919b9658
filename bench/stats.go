package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stat is what a server tells of one command since its figures were reset.
type stat struct {
	calls int64
	took  time.Duration // without reading the command and writing the answer
}

// stats are a server's figures by command, in lower case.
func (s *server) stats(ctx context.Context) (map[string]stat, error) {
	text, err := s.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, fmt.Errorf("read the server's figures: %w", err)
	}
	out := map[string]stat{}
	for line := range strings.Lines(text) {
		name, values, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":")
		if !ok {
			continue // the heading
		}
		var st stat
		for part := range strings.SplitSeq(values, ",") {
			field, value, _ := strings.Cut(part, "=")
			n, err := strconv.ParseFloat(value, 64)
			switch {
			case err != nil:
				return nil, fmt.Errorf("read the server's figures: %q", line)
			case field == "calls":
				st.calls = int64(n)
			case field == "usec":
				st.took = time.Duration(n) * time.Microsecond
			}
		}
		out[strings.ToLower(name)] = st
	}
	return out, nil
}

func (s *server) resetStats(ctx context.Context) error {
	return s.rdb.ConfigResetStat(ctx).Err()
}

// besides are the commands that remove nothing. Those that run scripts are
// among them because what a script calls is counted by itself.
var besides = []string{
	"ping", "hello", "auth", "client", "select", "info", "config", "slowlog", "latency", "command", "acl",
	"role", "time", "dbsize", "get", "set", "eval", "evalsha", "evalsha_ro", "eval_ro", "script", "multi", "exec", "watch",
}

// busy is how long commands that remove, or look at what is removed, took.
func busy(stats map[string]stat) (sum time.Duration) {
	for name, st := range stats {
		name, _, _ = strings.Cut(name, "|")
		if !slices.Contains(besides, name) {
			sum += st.took
		}
	}
	return sum
}

// settle waits until the server's background thread has freed everything.
func (s *server) settle(ctx context.Context) error {
	for {
		text, err := s.rdb.Info(ctx, "memory").Result()
		if err != nil {
			return fmt.Errorf("wait for memory to be freed: %w", err)
		}
		if !strings.Contains(text, "lazyfree_pending_objects:") || strings.Contains(text, "lazyfree_pending_objects:0\r") {
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
