package deleter

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// errTaken should not happen: a trash name ends in 64 random bits.
var errTaken = errors.New("the trash name is taken")

// watch judges orders by WATCH, a look, and MULTI … EXEC on one connection:
// when a key was written to between the look and the act, nothing is done
// and the reply is redis.TxFailedErr. In a cluster it takes one order at a
// time, for EXEC refuses keys of several slots.
//
// What WATCH does not notice (PERSIST before 6.0.7) is judged by a PTTL
// inside the same MULTI, and a key that was set aside against the evidence
// is given back; plan sees to it that such keys are never removed in one step.
func (s *Redis) watch(ctx context.Context, orders []Order, what act, trash []string) []Reply {
	out := make([]Reply, len(orders))
	fail := func(err error) []Reply {
		for i := range out {
			if out[i].Status == "" {
				out[i] = Reply{Err: err}
			}
		}
		return out
	}
	conn := s.rdb.Conn()
	defer conn.Close()

	keys := make([]string, len(orders))
	for i := range orders {
		keys[i] = orders[i].Key
	}
	seen, err := s.look(ctx, conn, orders, keys)
	if err != nil {
		return fail(err)
	}
	tx := conn.TxPipeline()
	acts := make([]redis.Cmder, len(orders))
	ttls := make([]*redis.IntCmd, len(orders))
	any := false
	for i := range orders {
		o := &orders[i]
		if out[i] = verdictOf(o, seen[i], what); out[i].Status != Acted {
			continue
		}
		any = true
		switch what {
		case actUnlink:
			acts[i] = tx.Unlink(ctx, o.Key)
		case actDel:
			acts[i] = tx.Del(ctx, o.Key)
		case actAside:
			ttls[i] = pttl(ctx, tx, o.Key)
			acts[i] = tx.RenameNX(ctx, o.Key, trash[i])
			tx.Persist(ctx, trash[i])
		}
	}
	if !any {
		if err := conn.Do(ctx, "unwatch").Err(); err != nil {
			return fail(err)
		}
		return out
	}
	_, err = tx.Exec(ctx)
	for i := range orders {
		if acts[i] == nil {
			continue
		}
		out[i] = s.settled(ctx, &orders[i], out[i], acts[i], ttls[i], err)
		if what == actAside && out[i].Status == Acted && !orders[i].Evidence.ttlHolds(ttls[i].Val()) {
			out[i] = s.giveBack(ctx, conn, &orders[i], trash[i], ttls[i].Val())
		}
	}
	return out
}

// settled turns what EXEC said about one key into its reply.
func (s *Redis) settled(ctx context.Context, o *Order, r Reply, cmd redis.Cmder, ttl *redis.IntCmd, exec error) Reply {
	if errors.Is(exec, redis.TxFailedErr) {
		return Reply{Err: exec}
	}
	if err := cmd.Err(); err != nil {
		if redis.HasErrorPrefix(err, "no such key") { // it expired after the look
			return Reply{Status: StillGone}
		}
		return Reply{Err: err}
	}
	switch c := cmd.(type) {
	case *redis.IntCmd:
		if c.Val() == 0 {
			return Reply{Status: StillGone}
		}
	case *redis.BoolCmd:
		if !c.Val() {
			return Reply{Err: errTaken}
		}
		if err := ttl.Err(); err != nil {
			return Reply{Err: err}
		}
	}
	return r
}

// giveBack undoes a rename that the evidence did not cover.
//
// Sends: MULTI, PEXPIRE if there was a TTL, RENAMENX, EXEC; O(1).
func (s *Redis) giveBack(ctx context.Context, conn *redis.Conn, o *Order, trash string, ttl int64) Reply {
	tx := conn.TxPipeline()
	if ttl > 0 {
		tx.Do(ctx, "pexpire", trash, ttl)
	}
	back := tx.RenameNX(ctx, trash, o.Key)
	if ttl > 0 {
		// Where the name was taken meanwhile the key stays in the trash, and
		// must not expire there in one blow.
		tx.Persist(ctx, trash)
	}
	if _, err := tx.Exec(ctx); err != nil {
		return Reply{Err: fmt.Errorf("give back %q, which is in the trash as %q: %w", o.Key, trash, err)}
	}
	if !back.Val() {
		return Reply{Err: fmt.Errorf("give back %q: the name was taken meanwhile; the key is in the trash as %q", o.Key, trash)}
	}
	return Reply{Status: Unmet}
}

// look watches the keys, if any are given, and reads the facts that the
// evidence needs.
//
// Sends: WATCH, then for each order TYPE, the length command of the type it
// had, and PTTL and MEMORY USAGE or STRLEN where the evidence is about them;
// all in one pipeline, O(1) each.
func (s *Redis) look(ctx context.Context, c redis.Cmdable, orders []Order, watch []string) ([]facts, error) {
	pipe := c.Pipeline()
	var watched *redis.Cmd
	if len(watch) > 0 {
		args := []any{"watch"}
		for _, k := range watch {
			args = append(args, k)
		}
		watched = pipe.Do(ctx, args...)
	}
	type asked struct {
		typ              *redis.StatusCmd
		length, ttl, mem *redis.IntCmd
	}
	cmds := make([]asked, len(orders))
	for i := range orders {
		o, c := &orders[i], &cmds[i]
		c.typ = pipe.Type(ctx, o.Key)
		if length := lengths[o.Type]; length != "" {
			c.length = intCmd(ctx, pipe, length, o.Key)
		}
		if o.Evidence.onTTL() {
			c.ttl = pttl(ctx, pipe, o.Key)
		}
		switch {
		case o.Evidence.MinBytes == 0:
		case s.can.MemoryUsage:
			c.mem = pipe.MemoryUsage(ctx, o.Key)
		default:
			c.mem = intCmd(ctx, pipe, "strlen", o.Key)
		}
	}
	_, _ = pipe.Exec(ctx)
	if watched != nil && watched.Err() != nil {
		return nil, watched.Err()
	}
	out := make([]facts, len(orders))
	for i := range cmds {
		c := &cmds[i]
		if err := c.typ.Err(); err != nil {
			return nil, err
		}
		out[i] = facts{Type: c.typ.Val()}
		var err error
		for _, n := range []struct {
			cmd *redis.IntCmd
			to  *int64
		}{{c.length, &out[i].Elements}, {c.ttl, &out[i].TTL}, {c.mem, &out[i].Bytes}} {
			*n.to, err = number(n.cmd)
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// number is an integer reply; Unknown where nothing was asked, the key is of
// another type by now, or gone.
func number(cmd *redis.IntCmd) (int64, error) {
	switch {
	case cmd == nil:
		return Unknown, nil
	case errors.Is(cmd.Err(), redis.Nil), redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE"):
		return Unknown, nil
	}
	return cmd.Result()
}

// verdictOf is the script's judgement in Go, for the facts of a look.
func verdictOf(o *Order, f facts, what act) Reply {
	n := max(0, f.Elements)
	switch {
	case f.Type == "none" || o.Evidence.onTTL() && f.TTL < NoTTL:
		return Reply{Status: StillGone}
	case !o.holds(f):
		return Reply{Status: Unmet, Elements: n}
	case what == actDel && n > smallElements:
		return Reply{Status: Grown, Elements: n}
	}
	return Reply{Status: Acted, Elements: n}
}

// pttl is PTTL as a number: the typed call turns it into a time.Duration,
// which the TTL of 300 years overflows.
func pttl(ctx context.Context, p redis.Pipeliner, key string) *redis.IntCmd {
	return intCmd(ctx, p, "pttl", key)
}

func intCmd(ctx context.Context, p redis.Pipeliner, name, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, name, key)
	_ = p.Process(ctx, cmd)
	return cmd
}
