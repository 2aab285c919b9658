package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// mix is what the small keys are, said in the report.
const mix = "70 % strings of 20 to 220 bytes, 12 % hashes of 3 to 14 fields, 6 % each of lists, sets and sorted sets of 3 to 22"

// The two keys among the small ones that a scan has to find.
const (
	bigString     = "report:2024:full"
	bigStringSize = 2 << 20
	bigList       = "queue:mail:failed"
	bigListLength = 150_000
)

var filler = strings.Repeat("0123456789abcdef", 16)

// loadSmall fills a server with n small keys of all types and two big ones.
func loadSmall(ctx context.Context, rdb *redis.Client, n int) error {
	if err := loadMix(ctx, rdb, "", n); err != nil {
		return err
	}
	if err := rdb.Set(ctx, bigString, strings.Repeat(filler, bigStringSize/len(filler)), 0).Err(); err != nil {
		return fmt.Errorf("load data: %w", err)
	}
	return loadBig(ctx, rdb, "list", bigList, bigListLength)
}

// loadMix writes n small keys of all types whose names begin with prefix.
func loadMix(ctx context.Context, rdb *redis.Client, prefix string, n int) error {
	pipe := rdb.Pipeline()
	for i := range n {
		few := 3 + i*7%20
		switch kind := i * 37 % 100; {
		case kind < 70:
			pipe.Set(ctx, fmt.Sprintf(prefix+"cache:user:%d:profile", i), filler[:20+i*13%200], 0)
		case kind < 82:
			pipe.HSet(ctx, fmt.Sprintf(prefix+"session:%d", i), numbered(3+i*7%12, "field:%d", filler[:8+i%24])...)
		case kind < 88:
			pipe.RPush(ctx, fmt.Sprintf(prefix+"queue:%d", i), numbered(few, "job:%d")...)
		case kind < 94:
			pipe.SAdd(ctx, fmt.Sprintf(prefix+"tags:%d", i), numbered(few, "tag:%d")...)
		default:
			pipe.ZAdd(ctx, fmt.Sprintf(prefix+"board:%d", i), scored(few)...)
		}
		if err := flush(ctx, pipe, 1000); err != nil {
			return err
		}
	}
	return flush(ctx, pipe, 0)
}

// numbered is a list of n names, each followed by what is given besides.
func numbered(n int, format string, besides ...any) []any {
	out := make([]any, 0, n*(1+len(besides)))
	for i := range n {
		out = append(append(out, fmt.Sprintf(format, i)), besides...)
	}
	return out
}

// scored are n members of a sorted set, the odd ones with scores of their
// own and the others with one and the same.
func scored(n int) []redis.Z {
	out := make([]redis.Z, n)
	for i := range out {
		out[i] = redis.Z{Score: float64(i * (i % 2)), Member: fmt.Sprintf("member:%07d", i)}
	}
	return out
}

// bigScript writes the members from ARGV[2] to before ARGV[3] into a key of
// the type ARGV[1]: a hash has the value ARGV[4] for each, and of a sorted set
// every second member has a score of its own.
var bigScript = redis.NewScript(`
local add = {hash='HMSET', set='SADD', list='RPUSH', zset='ZADD'}
local kind, to, args = ARGV[1], tonumber(ARGV[3]), {}
for k = tonumber(ARGV[2]), to - 1 do
  if kind == 'zset' then args[#args + 1] = k * (k % 2) end
  args[#args + 1] = string.format('member:%07d', k)
  if kind == 'hash' then args[#args + 1] = ARGV[4] end
  if #args >= 1000 or k == to - 1 then
    redis.call(add[kind], KEYS[1], unpack(args))
    args = {}
  end
end`)

// loadBig writes one key of n members. A script does it in a third of the time
// that pipelines take, and the largest keys have ten million.
func loadBig(ctx context.Context, rdb *redis.Client, kind, key string, n int) error {
	const batch = 100_000
	for i := 0; i < n; i += batch {
		err := bigScript.Run(ctx, rdb, []string{key}, kind, i, min(i+batch, n), filler[:20]).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("load data: %w", err)
		}
	}
	return nil
}

// flush sends what a pipeline holds if it is at least n commands.
func flush(ctx context.Context, pipe redis.Pipeliner, n int) error {
	if pipe.Len() == 0 || pipe.Len() < n {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("load data: %w", err)
	}
	return nil
}
