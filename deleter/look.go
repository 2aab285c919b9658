package deleter

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// sight is what a look saw of one key.
type sight struct {
	facts
	err error
}

// look puts into pipe the questions that the evidence of the orders needs.
// What it returns reads the answers, once the pipeline was sent: a refusal
// about one key says nothing about the others.
//
// Sends: for each order OBJECT IDLETIME where the evidence is about it, TYPE, the length command of the type it had, and PTTL
// and MEMORY USAGE or STRLEN where the evidence is about them; O(1) each.
func (s *Redis) look(ctx context.Context, pipe redis.Pipeliner, orders []Order) func() []sight {
	type asked struct {
		typ                          *redis.StatusCmd
		idle, freq, length, ttl, mem *redis.IntCmd
	}
	cmds := make([]asked, len(orders))
	for i := range orders {
		o, c := &orders[i], &cmds[i]
		if o.Evidence.IdleOver > 0 {
			c.idle = idleCmd(ctx, pipe, o.Key)
		}
		if o.Evidence.FreqUnder > 0 {
			c.freq = redis.NewIntCmd(ctx, "object", "freq", o.Key)
			_ = pipe.Process(ctx, c.freq)
		}
		c.typ = redis.NewStatusCmd(ctx, "type", o.Key)
		if o.Evidence.IdleOver > 0 && s.can.TypeTouches {
			c.typ.SetVal("unknown")
			continue
		}
		_ = pipe.Process(ctx, c.typ)
		if length := lengths[o.Type]; length != "" && (!o.Evidence.onUse() || s.can.NoTouch) {
			c.length = intCmd(ctx, pipe, length, o.Key)
		}
		if o.Evidence.onTTL() {
			// Not the typed call: it turns the reply into a time.Duration,
			// which a TTL of 300 years overflows.
			c.ttl = intCmd(ctx, pipe, "pttl", o.Key)
		}
		switch {
		case o.Evidence.MinBytes == 0:
		case s.can.MemoryUsage:
			c.mem = pipe.MemoryUsage(ctx, o.Key)
		default:
			c.mem = intCmd(ctx, pipe, "strlen", o.Key)
		}
	}
	return func() []sight {
		out := make([]sight, len(orders))
		for i, c := range cmds {
			typ, err := c.typ.Result()
			length, err1 := number(c.length)
			ttl, err2 := number(c.ttl)
			mem, err3 := number(c.mem)
			idle, err4 := number(c.idle)
			freq, err5 := number(c.freq)
			out[i] = sight{facts{Type: typ, Elements: length, TTL: ttl, Bytes: mem, Idle: idle, Freq: freq}, cmp.Or(err, err1, err2, err3, err4, err5)}
		}
		return out
	}
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
func verdictOf(o *Order, f sight, what act) Reply {
	n := max(0, f.Elements)
	switch {
	case f.err != nil:
		return Reply{Err: f.err}
	case f.Type == "none" || o.Evidence.IdleOver > 0 && f.Idle == Unknown || o.Evidence.onTTL() && f.TTL < NoTTL:
		return Reply{Status: StillGone}
	case !o.holds(f.facts):
		return Reply{Status: Unmet, Elements: n}
	case what == actDel && n > SmallElements:
		return Reply{Status: Grown, Elements: n}
	}
	return Reply{Status: Acted, Elements: n}
}

// sender is a client, a connection or a pipeline.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func idleCmd(ctx context.Context, p sender, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, "object", "idletime", key)
	_ = p.Process(ctx, cmd)
	return cmd
}

func intCmd(ctx context.Context, p redis.Pipeliner, name, key string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, name, key)
	_ = p.Process(ctx, cmd)
	return cmd
}
