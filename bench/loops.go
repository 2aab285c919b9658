package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// loopCommand makes this program be the plain loop, in a process of its own,
// as keyjanitor is: so its work is not in the way of the clock here.
const loopCommand = "plain-loop"

// allKeys, where the plain loop takes a key, makes it remove every key.
const allKeys = "*"

// plainLoop removes a key, or with allKeys every key, in another process; the
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

// pageSize is what one writes by hand.
const pageSize = 100

// loop is what one writes by hand to remove one key: HSCAN COUNT 100, HDEL of
// the page, until the cursor is 0 again; SREM and ZREM likewise; of a list
// LTRIM of 100 entries until none is left.
func loop(ctx context.Context, rdb *redis.Client, key string) (removed int64, err error) {
	typ, err := rdb.Type(ctx, key).Result()
	if err != nil {
		return 0, err
	}
	if typ == "list" {
		return trimLoop(ctx, rdb, key)
	}
	for cursor := uint64(0); ; {
		names, next, err := page(ctx, rdb, typ, key, cursor)
		if err != nil {
			return removed, err
		}
		if len(names) > 0 {
			n, err := removePage(ctx, rdb, typ, key, names)
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

// page lists the next names of a hash, a set or a sorted set.
func page(ctx context.Context, rdb *redis.Client, typ, key string, cursor uint64) (names []string, next uint64, err error) {
	var pairs []string
	switch typ {
	case "hash":
		pairs, next, err = rdb.HScan(ctx, key, cursor, "", pageSize).Result()
	case "zset":
		pairs, next, err = rdb.ZScan(ctx, key, cursor, "", pageSize).Result()
	case "set":
		return rdb.SScan(ctx, key, cursor, "", pageSize).Result()
	default:
		return nil, 0, fmt.Errorf("no loop for a key of type %s", typ)
	}
	for i := 0; i < len(pairs); i += 2 {
		names = append(names, pairs[i])
	}
	return names, next, err
}

func removePage(ctx context.Context, rdb *redis.Client, typ, key string, names []string) (int64, error) {
	if typ == "hash" {
		return rdb.HDel(ctx, key, names...).Result()
	}
	members := make([]any, len(names))
	for i, name := range names {
		members[i] = name
	}
	if typ == "set" {
		return rdb.SRem(ctx, key, members...).Result()
	}
	return rdb.ZRem(ctx, key, members...).Result()
}

func trimLoop(ctx context.Context, rdb *redis.Client, key string) (removed int64, err error) {
	for {
		n, err := rdb.LLen(ctx, key).Result()
		if err != nil || n == 0 {
			return removed, err
		}
		if err := rdb.LTrim(ctx, key, pageSize, -1).Err(); err != nil {
			return removed, err
		}
		removed += min(n, pageSize)
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
