package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// stepLimit bounds one turn of one contender; the longest, a scan of a
// million keys by redis-cli, takes half a minute.
const stepLimit = 5 * time.Minute

// summary is what the bench reads of keyjanitor's JSON.
type summary struct {
	Complete    bool  `json:"complete"`
	KeysScanned int64 `json:"keys_scanned"`
	KeysMatched int64 `json:"keys_matched"`
	Removed     int64 `json:"elements_removed"`
	Outcomes    map[string]int64
	Findings    []finding `json:"findings"`
}

type finding struct {
	Key     string  `json:"key"`
	Type    string  `json:"type"`
	Outcome string  `json:"outcome"`
	Batches int64   `json:"batches"`
	Took    float64 `json:"took_ms"`
	Slowest float64 `json:"slowest_ms"`
}

// keyjanitor runs the binary and returns its report and the time from its
// start to its end.
func (b *bench) keyjanitor(ctx context.Context, srv *server, args ...string) (summary, time.Duration, error) {
	var s summary
	args = append(args, "--url", "redis://"+srv.addr, "--format", "json", "--quiet")
	text, took, err := command(ctx, b.janitor, args...)
	if err != nil {
		return s, 0, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, 0, fmt.Errorf("read keyjanitor's report: %w", err)
	}
	if !s.Complete {
		return s, 0, errors.New("keyjanitor did not finish")
	}
	return s, took, nil
}

// stateDir is a new folder for one run that acts.
func (b *bench) stateDir() string {
	b.stateDirs++
	return filepath.Join(b.dir, "state-"+strconv.Itoa(b.stateDirs))
}

// command runs a program to its end.
func command(ctx context.Context, name string, args ...string) (stdout []byte, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	dieWithUs(cmd)
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err = cmd.Run()
	took = time.Since(start)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, 0, fmt.Errorf("%s %v: %w\n%s", filepath.Base(name), args, err, errs.String())
	}
	return out.Bytes(), took, nil
}

func split(addr string) (host, port string) {
	for i := len(addr) - 1; i >= 0; i-- {
		if addr[i] == ':' {
			return addr[:i], addr[i+1:]
		}
	}
	return addr, ""
}

// loopCommand makes this program be the plain loop, in a process of its own,
// as keyjanitor is: so its work is not in the way of the clock here.
const loopCommand = "plain-loop"

// allKeys, where the plain loop takes a key, makes it remove every key.
const allKeys = "*"

// plainLoop removes a hash, or with allKeys every key, in another process; the
// time is the loop's own, without the start of that process.
func plainLoop(ctx context.Context, srv *server, key string) (removed int64, took time.Duration, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	text, _, err := command(ctx, self, loopCommand, srv.addr, key)
	if err != nil {
		return 0, 0, err
	}
	var ns int64
	if _, err := fmt.Sscan(string(text), &removed, &ns); err != nil {
		return 0, 0, fmt.Errorf("read what the plain loop said: %w", err)
	}
	return removed, time.Duration(ns), nil
}

// loopProcess is the other side of plainLoop.
func loopProcess(ctx context.Context, addr, key string, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	rdb := client(addr)
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	start := time.Now()
	remove := func() (int64, error) { return loop(ctx, rdb, key) }
	if key == allKeys {
		remove = func() (int64, error) { return unlinkLoop(ctx, rdb) }
	}
	n, err := remove()
	if err != nil {
		return fmt.Errorf("plain loop: %w", err)
	}
	fmt.Fprintln(stdout, n, time.Since(start).Nanoseconds())
	return nil
}

// loop is what one writes by hand: HSCAN COUNT 100, HDEL of the page, until
// the cursor is 0 again.
func loop(ctx context.Context, rdb *redis.Client, key string) (removed int64, err error) {
	for cursor := uint64(0); ; {
		pairs, next, err := rdb.HScan(ctx, key, cursor, "", 100).Result()
		if err != nil {
			return removed, err
		}
		fields := make([]string, 0, len(pairs)/2)
		for i := 0; i < len(pairs); i += 2 {
			fields = append(fields, pairs[i])
		}
		if len(fields) > 0 {
			n, err := rdb.HDel(ctx, key, fields...).Result()
			if err != nil {
				return removed, err
			}
			removed += n
		}
		if cursor = next; cursor == 0 {
			return removed, nil
		}
	}
}

// unlinkLoop is what one writes by hand to remove many small keys: SCAN COUNT
// 1000, a pipeline of UNLINKs for the page, until the cursor is 0 again.
func unlinkLoop(ctx context.Context, rdb *redis.Client) (removed int64, err error) {
	for cursor := uint64(0); ; {
		names, next, err := rdb.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			return removed, err
		}
		if len(names) > 0 {
			pipe := rdb.Pipeline()
			for _, name := range names {
				pipe.Unlink(ctx, name)
			}
			cmds, err := pipe.Exec(ctx)
			if err != nil {
				return removed, err
			}
			for _, cmd := range cmds {
				removed += cmd.(*redis.IntCmd).Val()
			}
		}
		if cursor = next; cursor == 0 {
			return removed, nil
		}
	}
}

// xargs removes every key of a pattern with redis-cli alone.
func xargs(ctx context.Context, srv *server, pattern string) (time.Duration, error) {
	host, port := split(srv.addr)
	cli := "redis-cli -h " + host + " -p " + port
	_, took, err := command(ctx, "sh", "-c", cli+" --scan --pattern '"+pattern+"' | xargs -n 1000 "+cli+" unlink")
	return took, err
}
