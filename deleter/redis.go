package deleter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis is the Store of one shard on a real server. It never retries: a
// command whose reply was lost may have run, or may still run later.
type Redis struct {
	rdb *redis.Client
	can Abilities
}

// NewRedis returns a store that acts through rdb, a plain client of exactly
// the shard's node and database with retries off.
func NewRedis(rdb *redis.Client, can Abilities) *Redis {
	return &Redis{rdb: rdb, can: can}
}

// Remove removes keys in one step each, UNLINK or DEL, provided the evidence
// still holds; a DEL also only while the key is small.
//
// Sends: one EVALSHA a key, all in one pipeline, where scripts replicate by
// effect; else WATCH, TYPE, length, PTTL and MEMORY USAGE as the evidence
// needs and MULTI in one pipeline, UNLINK or DEL and EXEC (or DISCARD) in
// another, together for all keys outside a cluster and key by key in one.
// O(1) a key in the main thread, but for what a small key takes to free.
func (s *Redis) Remove(ctx context.Context, orders []Order, how Method) []Reply {
	if s.can.Script {
		return s.judge(ctx, orders, actOf(how), nil)
	}
	out := make([]Reply, len(orders))
	together := !s.can.Cluster && len(orders) > 1
	if together {
		out = s.watch(ctx, orders, actOf(how), nil)
	}
	for i := range out {
		// Where one of the keys was written to meanwhile, or refused, none was
		// removed, and each is judged again by itself.
		if !together || out[i].Err != nil && !Fatal(out[i].Err) {
			out[i] = s.watchOne(ctx, orders[i], actOf(how), "")
		}
	}
	return out
}

// attempts is how often a key is judged that others write to: at a thousand
// writes a second and 0.2 ms from the look to the act one in five attempts
// fails, and one key in three thousand.
const attempts = 5

func (s *Redis) watchOne(ctx context.Context, o Order, what act, trash string) (r Reply) {
	for range attempts {
		r = s.watch(ctx, []Order{o}, what, []string{trash})[0]
		if !errors.Is(r.Err, redis.TxFailedErr) {
			break
		}
	}
	return r
}

// SetAside renames a key to a trash name and takes its TTL away, provided the
// evidence still holds.
//
// Sends: as Remove does, RENAMENX and PERSIST in place of UNLINK; O(1).
func (s *Redis) SetAside(ctx context.Context, o Order, trash string) Reply {
	if s.can.Script {
		return s.judge(ctx, []Order{o}, actAside, []string{trash})[0]
	}
	if o.Evidence.IdleOver > 0 {
		return s.asideIdle(ctx, o, trash)
	}
	return s.watchOne(ctx, o, actAside, trash)
}

// Freeing is how many unlinked keys the server's background thread has still
// to free; known is false where it does not tell.
//
// Sends: INFO memory (lazyfree_pending_objects, since 4.0).
func (s *Redis) Freeing(ctx context.Context) (objects int64, known bool) {
	info, err := s.rdb.Info(ctx, "memory").Result()
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "lazyfree_pending_objects:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// act is what is done to a key that the evidence still condemns.
type act string

const (
	actUnlink act = "unlink"
	actDel    act = "del"
	actAside  act = "aside"
	actRun    act = "run" // the command that the order carries
	actTies   act = "ties"
	actStream act = "stream"
)

func actOf(m Method) act {
	switch m {
	case Unlink:
		return actUnlink
	case Expire:
		return actRun
	}
	return actDel
}

// Status says how far a store got with one key.
type Status string

// The states of a reply. Every other value is a fault.
const (
	Acted     Status = "acted"
	StillGone Status = "gone"
	Unmet     Status = "changed" // the evidence no longer holds
	Grown     Status = "large"   // too large by now for DEL
	Enough    Status = "enough"  // nothing in it may be removed
	Rehearsed Status = "look"    // would have acted
)

// Reply is the server's answer about one key.
type Reply struct {
	Status   Status
	Elements int64 // of the key when it was judged; 0 for what has none
	Left     int64 // of what was shortened: elements right after
	Err      error // the reply or failure that left the key as it was, or in doubt
}

func (r Reply) err() error { return r.Err }

func (r Reply) String() string { return fmt.Sprintf("%s %d %v", r.Status, r.Elements, r.Err) }

// lengths is the command that counts a type's elements, each O(1).
var lengths = map[string]string{"list": "llen", "hash": "hlen", "set": "scard", "zset": "zcard", "stream": "xlen"}
