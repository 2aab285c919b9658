package deleter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keep is the method of a key that is set aside and waits in the trash.
const Keep Method = "keep"

// Restored is the outcome of a key that was given back.
const Restored Outcome = "restored"

// ttlSlack is how much of a TTL may pass between the scan and the act before
// a key counts as changed: what its trash name says of its TTL must be true.
const ttlSlack = time.Minute

// pinned is an order whose evidence holds only for the TTL that was seen.
func pinned(o Order) Order {
	e := &o.Evidence
	if o.TTL == NoTTL {
		e.NoTTL = true
		return o
	}
	if o.TTL >= int64(math.MaxInt64/time.Millisecond) { // over 292 years
		e.TTLOver = max(e.TTLOver, math.MaxInt64-365*24*time.Hour)
		return o
	}
	seen := time.Duration(o.TTL) * time.Millisecond
	if under := seen + time.Millisecond; e.TTLUnder == 0 || under < e.TTLUnder {
		e.TTLUnder = under
	}
	e.TTLOver = max(e.TTLOver, seen-ttlSlack)
	return o
}

// keepAll sets keys aside, to wait in the trash until they are due.
func (d *Deleter) keepAll(ctx context.Context, orders []Order, done func(Result)) error {
	for _, o := range orders {
		if err := d.gate.Wait(ctx, 1, 0, 0); err != nil {
			return err
		}
		due := d.o.Clock().Add(o.Keep)
		name := d.o.Namer.kept(d.o.Job, o.Key, due, o.TTL)
		if _, readable := d.o.Namer.Parse(name); !readable {
			return fmt.Errorf("set aside: no run could read the trash name %q", name)
		}
		start := time.Now()
		reply := d.insist(ctx, func(ctx context.Context) Reply { return d.store.SetAside(ctx, pinned(o), name) })
		took := time.Since(start)
		d.gate.Observe("set aside", 1, took)
		r := Result{Order: o, Method: Keep, Took: took, Slowest: took}
		switch reply.Status {
		case Acted:
			r.Outcome, r.Batches, r.Due = Trashed, 1, due
		case Rehearsed:
			r = Result{Order: o, Method: Keep, Outcome: WouldAct}
		default:
			r = notActed(r, reply)
		}
		done(r)
		if Fatal(reply.Err) {
			return reply.Err
		}
	}
	return nil
}

// Purge removes a key of the trash for good, whether it is draining or kept.
// A zero Result says that there is no such key any more.
//
// What was kept becomes draining first, by a rename, so that nothing that is
// being removed can be restored.
func (d *Deleter) Purge(ctx context.Context, name string) (Result, error) {
	t, ours := d.o.Namer.Parse(name)
	if !ours {
		return Result{}, nil
	}
	r := Result{Order: Order{Key: t.Original, Elements: Unknown, Bytes: Unknown}, Method: Drain, Outcome: Drained}
	if t.State == Kept {
		draining := d.o.Namer.draining(t)
		if err := d.o.Journal.Begin([]string{draining}); err != nil {
			return Result{}, fmt.Errorf("write the trash journal: %w", err)
		}
		reply := d.insist(ctx, func(ctx context.Context) Reply { return d.o.Keeper.Move(ctx, name, draining) })
		if reply.Status != Acted {
			r = notActed(r, reply)
			if inDoubt(reply.Err) {
				return r, reply.Err
			}
			if r.Outcome == Gone {
				r = Result{}
			}
			if err := d.o.Journal.Done(draining); err != nil || !Fatal(reply.Err) {
				return r, err
			}
			return r, reply.Err
		}
		name = draining
	}
	return d.empty(ctx, name, r)
}

// swapKeep is how long at least a value is kept that was swapped out: it was
// in use a moment ago.
const swapKeep = 24 * time.Hour

// Restore gives a kept key back: its value, the TTL that it had left, and its
// name, or another one in the same slot. It never overwrites: with swap what
// holds the name is set aside in the same transaction, kept as long as the
// restored key would have been and at least a day; without, the key stays in
// the trash.
func (d *Deleter) Restore(ctx context.Context, name, as string, swap bool) (Result, error) {
	t, ours := d.o.Namer.Parse(name)
	if !ours {
		return Result{}, nil
	}
	r := Result{Order: Order{Key: t.Original, Elements: Unknown, Bytes: Unknown}, Method: "restore"}
	fail := func(format string, args ...any) (Result, error) {
		r.Outcome, r.Reason = Failed, fmt.Sprintf(format, args...)
		return r, nil
	}
	switch {
	case t.State == Draining:
		return fail("it is being removed: a part is gone already")
	case d.o.Namer.slot(as) != d.o.Namer.slot(t.Original) && d.o.Can.Cluster:
		return fail("in a cluster a key can only take a name in its own slot; %q is in another", as)
	case d.o.Protected(as) && (swap || as != t.Original):
		return fail("the name %q is protected", as)
	case d.restored[as]:
		return fail("another key was just given back under this name; trash list shows the nonce of each, and --nonce picks one")
	}
	if err := d.gate.Wait(ctx, 1, 0, 0); err != nil {
		return Result{}, err
	}
	due := time.UnixMilli(t.Due)
	if least := d.o.Clock().Add(swapKeep); due.Before(least) {
		due = least
	}
	start := time.Now()
	aside := func(ttl int64) string {
		if !swap {
			return ""
		}
		name := d.o.Namer.kept(d.o.Job, as, due, ttl)
		d.swapped[name] = true
		return name
	}
	reply := d.insist(ctx, func(ctx context.Context) Reply { return d.o.Keeper.GiveBack(ctx, name, as, t.TTL, aside) })
	r.Took = time.Since(start)
	r.Slowest = r.Took
	d.gate.Observe("set aside", 1, r.Took)
	switch {
	case reply.Status == Acted:
		r.Outcome, r.Batches = Restored, 1
		d.restored[as] = true
	case reply.Status == Rehearsed:
		r = Result{Order: r.Order, Method: r.Method, Outcome: WouldAct}
	case reply.Status == Unmet:
		return fail("the name %q is taken; write --as another name, or --swap to set what has it aside", as)
	default:
		r = notActed(r, reply)
	}
	if Fatal(reply.Err) {
		return r, reply.Err
	}
	return r, nil
}

// Swapped reports whether a key is in the trash because this run swapped it
// for another: it is no leftover of an earlier one.
func (d *Deleter) Swapped(name string) bool { return d.swapped[name] }

// Move renames a key of the trash to another name of the same slot.
//
// Sends: RENAMENX, O(1): the new name holds 64 random bits.
func (s *Redis) Move(ctx context.Context, from, to string) Reply {
	moved, err := s.rdb.RenameNX(ctx, from, to).Result()
	switch {
	case redis.HasErrorPrefix(err, "no such key"):
		return Reply{Status: StillGone}
	case err != nil:
		return Reply{Err: err}
	case !moved:
		return Reply{Err: errTaken}
	}
	return Reply{Status: Acted}
}

// GiveBack renames a key of the trash to a name, with a TTL in milliseconds
// or NoTTL. What holds the name is renamed to what aside says for its TTL;
// where that is "" the reply is Unmet and nothing was done.
//
// Sends: WATCH, EXISTS and PTTL of the name, EXISTS of the key, MULTI,
// RENAMENX and PERSIST of what has the name, PEXPIRE, RENAMENX, EXEC; O(1).
func (s *Redis) GiveBack(ctx context.Context, trash, name string, ttl int64, aside func(ttl int64) string) (r Reply) {
	for range attempts {
		r = s.giveBackOnce(ctx, trash, name, ttl, aside)
		if !errors.Is(r.Err, redis.TxFailedErr) {
			break
		}
	}
	return r
}

func (s *Redis) giveBackOnce(ctx context.Context, trash, name string, ttl int64, aside func(ttl int64) string) Reply {
	r := Reply{Status: Acted}
	err := s.rdb.Watch(ctx, func(tx *redis.Tx) error {
		there, err := tx.Exists(ctx, trash).Result()
		if err != nil {
			return err
		}
		if there == 0 {
			r.Status = StillGone
			return nil
		}
		taken, err := tx.Exists(ctx, name).Result()
		if err != nil {
			return err
		}
		other := ""
		if taken > 0 {
			left := redis.NewIntCmd(ctx, "pttl", name)
			if err := tx.Process(ctx, left); err != nil {
				return err
			}
			if other = aside(left.Val()); other == "" {
				r.Status = Unmet
				return nil
			}
		}
		pipe := tx.TxPipeline()
		if other != "" {
			pipe.RenameNX(ctx, name, other)
			pipe.Persist(ctx, other)
		}
		if ttl != NoTTL {
			pipe.Do(ctx, "pexpire", trash, max(1, ttl)) // 0 is less than a millisecond
		}
		back := pipe.RenameNX(ctx, trash, name)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		if !back.Val() {
			return keyError("the name was taken meanwhile")
		}
		return nil
	}, trash, name)
	if err != nil {
		return Reply{Err: err}
	}
	return r
}

// Move says that it would.
func (r *Rehearsal) Move(context.Context, string, string) Reply { return Reply{Status: Rehearsed} }

// GiveBack looks whether the key is there and the name is free.
//
// Sends: EXISTS of both.
func (r *Rehearsal) GiveBack(ctx context.Context, trash, name string, _ int64, aside func(ttl int64) string) Reply {
	there, err := r.s.rdb.Exists(ctx, trash).Result()
	if err != nil {
		return Reply{Err: err}
	}
	taken, err := r.s.rdb.Exists(ctx, name).Result()
	switch {
	case err != nil:
		return Reply{Err: err}
	case there == 0:
		return Reply{Status: StillGone}
	case taken > 0 && aside(NoTTL) == "":
		return Reply{Status: Unmet}
	}
	return Reply{Status: Rehearsed}
}
