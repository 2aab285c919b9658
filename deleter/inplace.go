package deleter

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// InPlace is the method of a key that is drained under its own name, where
// the server lets nothing be set aside and the order consents.
const InPlace Method = "in_place"

// Shrinker is what a store can do to keys under their own names.
type Shrinker interface {
	// Shrink removes about n elements, or the key once it is small, if the
	// evidence holds; cursor is where it is in a hash or a set.
	Shrink(ctx context.Context, o Order, n int, cursor *uint64) Shortened
}

// inPlaceAll drains keys under their own names, one after another.
func (d *Deleter) inPlaceAll(ctx context.Context, orders []Order, done func(Result)) error {
	for _, o := range orders {
		r, err := d.inPlaceOne(ctx, o)
		if r.Outcome != "" {
			done(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inPlaceOne drains a key until it is gone. Each step is judged: the first by
// the whole evidence, the others by what steps do not change, and by the
// length: where it is another than the one that we left somebody else writes to
// the key, or has put a new one in its place.
func (d *Deleter) inPlaceOne(ctx context.Context, o Order) (Result, error) {
	r := Result{Order: o, Method: InPlace}
	kind := "drain " + o.Type
	d.gate.Anew(kind)
	var each int64
	if o.Bytes > 0 && o.Elements > 0 {
		each = o.Bytes / o.Elements
	}
	largest := int(max(1, replyBytes/max(1, each)))
	var cursor uint64
	stopped := func(why string) Result {
		r.Outcome, r.Reason = Changed, fmt.Sprintf("%s after %d elements were removed", why, r.Elements)
		return r
	}
	for {
		n := min(d.gate.Batch(kind), largest)
		if err := d.gate.Wait(ctx, 4, n, int64(n)*each); err != nil {
			if r.Batches == 0 {
				return Result{}, err
			}
			r.Outcome, r.Reason = Failed, fmt.Sprintf("interrupted after %d elements were removed; run it again", r.Elements)
			return r, err
		}
		start := time.Now()
		step := d.o.Shrinker.Shrink(context.WithoutCancel(ctx), o, n, &cursor)
		took := time.Since(start)
		removed := max(0, step.Elements-step.Left)
		d.gate.Observe(kind, int(removed), took)
		r.Took += took
		r.Slowest = max(r.Slowest, took)
		switch {
		case step.Status == Acted:
			r.Batches++
			r.Elements += removed
			r.Bytes += removed * each
		case step.Status == Rehearsed:
			return Result{Order: o, Method: InPlace, Outcome: WouldAct}, nil
		case step.Err != nil && d.gate.Again(ctx, step.Err):
			continue
		case step.Err != nil:
			r.Outcome, r.Reason = Failed, reason(step.Err)
			if Fatal(step.Err) {
				return r, step.Err
			}
			return r, nil
		case r.Batches == 0:
			return notActed(r, step.Reply), nil
		case step.Status == StillGone:
			return stopped("it is gone"), nil
		default:
			return stopped("it was written to"), nil
		}
		if step.Done {
			r.Outcome = Drained
			return r, nil
		}
		o.Evidence.MinElements, o.Evidence.MinBytes = 0, 0
		o.left = max(1, step.Left)
	}
}

// Shrink takes one step of a drain under the key's own name.
//
// Sends: HSCAN or SSCAN of n names, O(n); then as Remove does by WATCH, with
// LTRIM, ZREMRANGEBYRANK, HDEL or SREM of n elements, O(log(N)+n), or DEL of
// at most 1000, and the length.
func (s *Redis) Shrink(ctx context.Context, o Order, n int, cursor *uint64) Shortened {
	length := redis.NewIntCmd(ctx, lengths[o.Type], o.Key)
	switch err := s.rdb.Process(ctx, length); {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return Shortened{Reply: Reply{Status: Unmet}}
	case err != nil:
		return Shortened{Reply: Reply{Err: err}}
	}
	small := length.Val() <= SmallElements && (o.Bytes == Unknown || length.Val()*max(1, o.Bytes/max(1, o.Elements)) <= stepBytes)
	switch {
	case small:
		o.run = []any{"del"}
	case o.Type == "list":
		o.run = []any{"ltrim", n, -1}
	case o.Type == "zset":
		o.run = []any{"zremrangebyrank", 0, n - 1}
	default:
		names, err := s.names(ctx, &o, n, cursor)
		if err != nil {
			return Shortened{Reply: Reply{Err: err}}
		}
		if len(names) == 0 { // an empty page; the cursor goes on
			return Shortened{Reply: Reply{Status: Acted, Elements: length.Val(), Left: length.Val()}}
		}
		o.run = append([]any{map[string]string{"hash": "hdel", "set": "srem"}[o.Type]}, names...)
	}
	r := s.watchOne(ctx, o, actRun, "")
	return Shortened{Reply: r, Done: r.Status == Acted && (small || r.Left == 0)}
}

// names lists the next page of a hash or a set. A page that is larger than
// asked for is listed again from the same cursor.
func (s *Redis) names(ctx context.Context, o *Order, n int, cursor *uint64) ([]any, error) {
	m := &members{s: s, key: o.Key, typ: o.Type, most: n, cursor: *cursor}
	pipe := s.rdb.Pipeline()
	page := m.list(ctx, pipe, n)
	_, _ = pipe.Exec(ctx) // the reply is looked at below
	names, next, err := page.Result()
	if err != nil {
		return nil, err
	}
	if o.Type == "hash" && !s.can.NoValues {
		names = everySecond(names)
	}
	if len(names) <= n+n/4 {
		*cursor = next
	} else {
		names = names[:n]
	}
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = name
	}
	return out, nil
}

// Shrink looks at the key.
func (r *Rehearsal) Shrink(ctx context.Context, o Order, _ int, _ *uint64) Shortened {
	return Shortened{Reply: r.Remove(ctx, []Order{o}, Unlink)[0]}
}
