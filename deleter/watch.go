package deleter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// watch judges orders by WATCH, a look, and MULTI … EXEC on one connection:
// when a key was written to between the look and the act, nothing is done
// and the reply is redis.TxFailedErr. In a cluster it takes one order at a
// time, for EXEC refuses keys of several slots.
//
// MULTI travels with the look, and nothing is sent after it unless it was
// accepted: behind one that was refused (BUSY, LOADING, no permission) the
// acts would run at once, watched or not.
//
// What WATCH does not notice (PERSIST before 6.0.7) is judged by a PTTL
// inside the same MULTI, and a key that was set aside against the evidence
// is given back; plan sees to it that such keys are never removed in one step.
func (s *Redis) watch(ctx context.Context, orders []Order, what act, trash []string) []Reply {
	out := make([]Reply, len(orders))
	fail := func(err error) []Reply {
		for i := range out {
			out[i] = Reply{Err: err}
		}
		return out
	}
	conn := s.rdb.Conn()
	defer conn.Close()

	pipe := conn.Pipeline()
	watched := pipe.Do(ctx, watchArgs(orders)...)
	seen := s.look(ctx, pipe, orders)
	var old *redis.IntCmd
	if what == actTies {
		old = pipe.ZCount(ctx, orders[0].Key, "-inf", orders[0].run[1].(string))
	}
	multi := pipe.Do(ctx, "multi")
	_, _ = pipe.Exec(ctx) // each reply is looked at below
	switch {
	case multi.Err() != nil:
		// The watch may stay: all it can do is to make a later EXEC fail.
		return fail(cmp.Or(watched.Err(), multi.Err()))
	case watched.Err() != nil:
		return fail(cmp.Or(discard(ctx, conn), watched.Err()))
	}

	pipe = conn.Pipeline()
	queued := make([][]*redis.Cmd, len(orders))
	for i, facts := range seen() {
		o := &orders[i]
		if out[i] = verdictOf(o, facts, what); out[i].Status != Acted {
			continue
		}
		switch {
		case what == actAside:
			queued[i] = []*redis.Cmd{
				pipe.Do(ctx, "pttl", o.Key), pipe.Do(ctx, "renamenx", o.Key, trash[i]), pipe.Do(ctx, "persist", trash[i]),
			}
		case what == actTies && old.Val() == 0:
			out[i].Status = Enough
		case what == actTies:
			most := min(int64(o.run[0].(int)), old.Val())
			queued[i] = []*redis.Cmd{pipe.Do(ctx, "zremrangebyrank", o.Key, 0, most-1), pipe.Do(ctx, lengths[o.Type], o.Key)}
		case what == actRun:
			queued[i] = []*redis.Cmd{pipe.Do(ctx, append([]any{o.run[0], o.Key}, o.run[1:]...)...)}
			if length := lengths[o.Type]; length != "" {
				queued[i] = append(queued[i], pipe.Do(ctx, length, o.Key))
			}
		default:
			queued[i] = []*redis.Cmd{pipe.Do(ctx, string(what), o.Key)}
		}
	}
	if pipe.Len() == 0 {
		if err := discard(ctx, conn); err != nil {
			return fail(err)
		}
		return out
	}
	results, err := exec(ctx, pipe)
	for i, cmds := range queued {
		if len(cmds) == 0 {
			continue
		}
		if err != nil {
			out[i] = Reply{Err: refusal(err, cmds...)}
			continue
		}
		mine := results[:len(cmds)]
		results = results[len(cmds):]
		out[i] = settled(out[i], mine, what)
		if ttl, _ := mine[0].(int64); what == actAside && out[i].Status == Acted && !orders[i].Evidence.ttlHolds(ttl) {
			out[i] = s.giveBack(ctx, conn, &orders[i], trash[i], ttl)
		}
	}
	return out
}

func watchArgs(orders []Order) []any {
	args := make([]any, 1, len(orders)+1)
	args[0] = "watch"
	for i := range orders {
		args = append(args, orders[i].Key)
	}
	return args
}

// discard leaves a MULTI that has nothing to do. A connection that can't may
// not be used again, so that is an error in doubt.
func discard(ctx context.Context, conn *redis.Conn) error {
	if err := conn.Do(ctx, "discard").Err(); err != nil {
		return fmt.Errorf("discard: %v", err)
	}
	return nil
}

// exec ends the MULTI that the commands in pipe are queued in. Where EXEC did
// nothing the error is redis.TxFailedErr or EXECABORT; anything else leaves
// open what was done and is no redis.Error, even in the server's words: the
// client library gives up in the middle of the array on some of them.
func exec(ctx context.Context, pipe redis.Pipeliner) ([]any, error) {
	n := pipe.Len()
	cmd := redis.NewSliceCmd(ctx, "exec")
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx)
	results, err := cmd.Result()
	var reply redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil, redis.TxFailedErr
	case redis.HasErrorPrefix(err, "EXECABORT"):
		return nil, err
	case errors.As(err, &reply):
		return nil, fmt.Errorf("exec: %v", err)
	case err == nil && len(results) != n:
		return nil, fmt.Errorf("exec: %d replies to %d commands", len(results), n)
	}
	return results, err
}

// refusal is why commands were not carried out: what was said to one of them
// when it was queued, else EXEC's error.
func refusal[C redis.Cmder](exec error, queued ...C) error {
	if redis.HasErrorPrefix(exec, "EXECABORT") {
		for _, cmd := range queued {
			if cmd.Err() != nil {
				return cmd.Err()
			}
		}
	}
	return exec
}

// settled turns what EXEC answered about one key into its reply.
func settled(r Reply, results []any, what act) Reply {
	for _, v := range results {
		switch err, failed := v.(error); {
		case !failed:
		case redis.HasErrorPrefix(err, "no such key"): // it expired after the look
			return Reply{Status: StillGone}
		default:
			return Reply{Err: fmt.Errorf("exec: %v", err)}
		}
	}
	switch {
	case what == actAside && results[1] == int64(0):
		return Reply{Err: errTaken}
	case what == actRun, what == actTies:
		if len(results) > 1 {
			r.Left, _ = results[1].(int64)
		}
	case what != actAside && results[0] == int64(0):
		return Reply{Status: StillGone}
	}
	return r
}

// giveBack undoes a rename that the evidence did not cover.
//
// Sends: MULTI, PEXPIRE and PERSIST if there was a TTL, RENAMENX, EXEC; where
// the name was taken meanwhile RENAMENX to a name that waits; O(1).
func (s *Redis) giveBack(ctx context.Context, conn *redis.Conn, o *Order, trash string, ttl int64) Reply {
	tx := conn.TxPipeline()
	if ttl != NoTTL {
		tx.Do(ctx, "pexpire", trash, max(1, ttl)) // 0 is less than a millisecond
	}
	back := tx.RenameNX(ctx, trash, o.Key)
	if ttl != NoTTL {
		// Where the name was taken meanwhile the key stays in the trash, and
		// must not expire there in one blow.
		tx.Persist(ctx, trash)
	}
	if _, err := tx.Exec(ctx); err != nil {
		return Reply{Err: fmt.Errorf("give back %q, which is in the trash as %q: %w", o.Key, trash, err)}
	}
	if back.Val() {
		return Reply{Status: Unmet}
	}
	// No run may take it for a leftover.
	kept := keepForGood(trash)
	if err := conn.RenameNX(ctx, trash, kept).Err(); err != nil {
		return Reply{Err: fmt.Errorf("keep %q, which is in the trash as %q: %w", o.Key, trash, err)}
	}
	return Reply{Err: keyError(fmt.Sprintf("give back %q: the name was taken meanwhile; the key is in the trash as %q", o.Key, kept))}
}
