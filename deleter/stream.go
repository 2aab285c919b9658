package deleter

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// asyncStream is how many entries a stream must have for UNLINK to free it in
// the background whatever its groups hold: the server counts nodes of 100
// entries each and gives up above 64, but of what is pending it counts the
// first group alone. A million entries pending elsewhere were measured to
// take 0.2 to 0.8 s when they are freed in the main thread.
const asyncStream = 64 * 100

// stream is drained in three steps: what its groups have pending is
// acknowledged, for XTRIM would leave it; then the entries are trimmed; then
// the empty stream is dropped.
type stream struct {
	s      *Redis
	key    string
	length int64
	groups []string // with entries pending; nil: not asked yet
	asked  bool
	ids    []string // pending in groups[0], to be acknowledged next
}

func (x *stream) Kind() string {
	if !x.asked || len(x.groups) > 0 {
		return "acknowledge"
	}
	return "drain stream"
}

// Next takes one step.
//
// Sends: XINFO GROUPS once, O(groups); then XACK of n entries and XPENDING of
// the next n, each O(n), until nothing is pending; then XTRIM MAXLEN that
// removes n entries, O(n), and XLEN; at last UNLINK or DEL, O(1). On servers
// where removing a stream whose groups were destroyed may crash them (5.0,
// 6.0 before 6.0.14, 6.2 before 6.2.4) the last is MULTI, XGROUP CREATE, DEL,
// EXEC.
func (x *stream) Next(ctx context.Context, n int) (Step, error) {
	switch {
	case !x.asked:
		return Step{}, x.askGroups(ctx)
	case len(x.groups) > 0:
		handled, err := x.acknowledge(ctx, n)
		return Step{Handled: handled}, err
	case x.length > 0:
		removed, err := x.trim(ctx, n)
		return removing(removed, false), err
	}
	err := x.drop(ctx)
	return Step{Done: err == nil}, err
}

func (x *stream) askGroups(ctx context.Context) error {
	groups, err := x.s.rdb.XInfoGroups(ctx, x.key).Result()
	if err != nil {
		return err
	}
	x.asked = true
	for _, g := range groups {
		if g.Pending > 0 {
			x.groups = append(x.groups, g.Name)
		}
	}
	return nil
}

// acknowledge takes n entries off the pending list of the first group, looks
// up the next n, and returns how many those were: the larger number of the two.
func (x *stream) acknowledge(ctx context.Context, n int) (int64, error) {
	pipe := x.s.rdb.Pipeline()
	var acked *redis.IntCmd
	if len(x.ids) > 0 {
		acked = pipe.XAck(ctx, x.key, x.groups[0], x.ids...)
	}
	pending := pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: x.key, Group: x.groups[0], Start: "-", End: "+", Count: int64(n)})
	_, _ = pipe.Exec(ctx)
	if acked != nil && acked.Err() != nil {
		return 0, acked.Err()
	}
	entries, err := pending.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	handled := max(len(x.ids), len(entries))
	x.ids = x.ids[:0]
	for _, e := range entries {
		x.ids = append(x.ids, e.ID)
	}
	if len(x.ids) == 0 {
		x.groups = x.groups[1:]
	}
	return int64(handled), nil
}

func (x *stream) trim(ctx context.Context, n int) (int64, error) {
	pipe := x.s.rdb.Pipeline()
	removed := pipe.XTrimMaxLen(ctx, x.key, max(0, x.length-int64(n)))
	left := pipe.XLen(ctx, x.key)
	_, _ = pipe.Exec(ctx)
	if err := removed.Err(); err != nil {
		return 0, err
	}
	x.length -= removed.Val()
	if err := left.Err(); err != nil {
		return removed.Val(), err
	}
	x.length = left.Val()
	return removed.Val(), nil
}

func (x *stream) drop(ctx context.Context) error {
	if x.s.can.StreamUnlink {
		return x.s.drop(ctx, x.key)
	}
	tx := x.s.rdb.TxPipeline()
	tx.XGroupCreate(ctx, x.key, "keyjanitor", "$")
	tx.Del(ctx, x.key)
	queued, err := tx.Exec(ctx)
	err = refusal(err, queued...)
	if redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil // there was a group, which is all that DEL needs
	}
	return err
}
