package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// slowKey is a key of the section slowlog.
type slowKey struct {
	name string
	load func(ctx context.Context, rdb *redis.Client, key string) error
}

// slowKeys are of every type, in the small encodings and the large ones, and
// of shapes that make a single element or step expensive.
func (b *bench) slowKeys(streams bool) (out []slowKey) {
	add := func(name string, load func(context.Context, *redis.Client, string) error) {
		out = append(out, slowKey{name, load})
	}
	sizes := []int{10, 100, 1000, 10_000, 100_000}
	if !slices.Contains(sizes, b.fields) {
		sizes = append(sizes, b.fields)
	}
	for _, n := range sizes {
		for _, kind := range kinds {
			add(fmt.Sprintf("%s:%d", kind, n), func(ctx context.Context, rdb *redis.Client, key string) error {
				return loadBig(ctx, rdb, kind, key, n)
			})
		}
		for _, kind := range []string{"stream", "numbers", "ties"} {
			if kind == "stream" && !streams {
				continue
			}
			add(fmt.Sprintf("%s:%d", kind, n), func(ctx context.Context, rdb *redis.Client, key string) error {
				return loadOdd(ctx, rdb, kind, key, n)
			})
		}
	}
	for _, kind := range kinds {
		add("huge:"+kind, func(ctx context.Context, rdb *redis.Client, key string) error { return loadHuge(ctx, rdb, kind, key) })
	}
	for _, size := range []int{10, 10 << 10, 1 << 20, 16 << 20} {
		add(fmt.Sprintf("string:%d", size), func(ctx context.Context, rdb *redis.Client, key string) error {
			return rdb.Set(ctx, key, strings.Repeat("x", size), 0).Err()
		})
	}
	return out
}

// oddScript writes what bigScript does not: a stream, of which one group has
// half of the entries pending and another a tenth; a set of numbers; a sorted
// set of one score.
var oddScript = redis.NewScript(`
local kind, from, to, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
for k = from, to - 1 do
  if kind == 'stream' then redis.call('XADD', KEYS[1], (k + 1) .. '-0', 'member', string.format('%07d', k)) end
  if kind == 'numbers' then redis.call('SADD', KEYS[1], k) end
  if kind == 'ties' then redis.call('ZADD', KEYS[1], 1, string.format('member:%07d', k)) end
end
if kind ~= 'stream' or to < n then return end
for group, share in pairs({first=2, second=10}) do
  redis.call('XGROUP', 'CREATE', KEYS[1], group, 0)
  for k = 1, n / share, 1000 do
    redis.call('XREADGROUP', 'GROUP', group, 'consumer', 'COUNT', math.min(1000, n / share), 'STREAMS', KEYS[1], '>')
  end
end`)

func loadOdd(ctx context.Context, rdb *redis.Client, kind, key string, n int) error {
	const batch = 100_000
	for i := 0; i < n; i += batch {
		err := oddScript.Run(ctx, rdb, []string{key}, kind, i, min(i+batch, n), n).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

// loadHuge writes a key of eight elements: values of 4 MiB, or members of 1.
func loadHuge(ctx context.Context, rdb *redis.Client, kind, key string) error {
	for i := range 8 {
		value := fmt.Sprintf("%d%s", i, strings.Repeat("x", 1<<20))
		var err error
		switch kind {
		case "hash":
			err = rdb.HSet(ctx, key, fmt.Sprintf("field:%d", i), strings.Repeat("x", 4<<20)).Err()
		case "list":
			err = rdb.RPush(ctx, key, strings.Repeat("x", 4<<20)).Err()
		case "set":
			err = rdb.SAdd(ctx, key, value).Err()
		case "zset":
			err = rdb.ZAdd(ctx, key, redis.Z{Score: float64(i), Member: value}).Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
