package deleter

import (
	"context"
	"slices"
)

// Rehearsal is a Store that judges and does not act: the same orders take the
// same path up to the act.
type Rehearsal struct{ s *Redis }

// NewRehearsal wraps a store.
func NewRehearsal(s *Redis) *Rehearsal { return &Rehearsal{s} }

// Remove looks at the keys.
//
// Sends: OBJECT IDLETIME, TYPE, length, PTTL and MEMORY USAGE as the evidence
// needs.
func (r *Rehearsal) Remove(ctx context.Context, orders []Order, how Method) []Reply {
	orders = r.untouched(orders)
	out := make([]Reply, len(orders))
	pipe := r.s.rdb.Pipeline()
	seen := r.s.look(ctx, pipe, orders)
	_, _ = pipe.Exec(ctx) // each reply is looked at below
	for i, facts := range seen() {
		if out[i] = verdictOf(&orders[i], facts, actOf(how)); out[i].Status == Acted {
			out[i].Status = Rehearsed
		}
	}
	return out
}

// untouched leaves out of the evidence of idle keys what could only be looked
// at by touching them; the act judges it.
func (r *Rehearsal) untouched(orders []Order) []Order {
	if r.s.can.NoTouch {
		return orders
	}
	orders = slices.Clone(orders)
	for i := range orders {
		e := &orders[i].Evidence
		if e.onUse() {
			e.MinElements = 0
			if r.s.can.TypeTouches {
				e.Types, e.NoTTL, e.TTLUnder, e.TTLOver, orders[i].Type = "", false, 0, 0, ""
			}
		}
	}
	return orders
}

// SetAside looks at the key.
func (r *Rehearsal) SetAside(ctx context.Context, o Order, _ string) Reply {
	return r.Remove(ctx, []Order{o}, Unlink)[0]
}

// Open finds nothing to drain.
func (r *Rehearsal) Open(context.Context, string) (*Opened, error) { return nil, nil }

// Freeing is nothing, for nothing was released.
func (r *Rehearsal) Freeing(context.Context) (int64, bool) { return 0, true }
