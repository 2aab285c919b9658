// Package deleter is the only code that removes anything. It has one door,
// Act, which takes orders: keys together with the evidence that condemned
// them. It promises that the server judges the evidence again in the very
// step that acts, that no command it sends is long, that a key is never
// emptied in batches under its own name, and that its numbers come from
// replies. It refuses what it was not told how to remove.
package deleter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Gate paces batches.
type Gate interface {
	// Wait blocks until so many commands, which remove so many elements and
	// release so many bytes, may be sent.
	Wait(ctx context.Context, commands, elements int, bytes int64) error
	// Batch is how many elements the next call of a kind should take.
	Batch(kind string) int
	// Anew tells that the next call of a kind is about another key.
	Anew(kind string)
	// Pipeline is how many commands of n may go in one pipeline.
	Pipeline(n int) int
	// Observe tells what a call of a kind for n elements took.
	Observe(kind string, n int, took time.Duration)
	// Again tells whether a step that failed may be taken again, after a wait:
	// the server refused it for now.
	Again(ctx context.Context, err error) bool
}

// Store is one shard's server as the deleter sees it.
type Store interface {
	Remove(ctx context.Context, orders []Order, how Method) []Reply
	SetAside(ctx context.Context, o Order, trash string) Reply
	Open(ctx context.Context, trash string) (*Opened, error)
	Freeing(ctx context.Context) (objects int64, known bool)
}

// Keeper is what a store can do with keys that wait in the trash.
type Keeper interface {
	Move(ctx context.Context, from, to string) Reply
	GiveBack(ctx context.Context, trash, name string, ttl int64, aside func(ttl int64) string) Reply
}

// Journal remembers, outside the server, what is in the trash. Begin must
// not return before the names would survive a crash.
type Journal interface {
	Begin(trash []string) error
	Done(trash string) error
}

// Options make a deleter.
type Options struct {
	Can       Abilities
	Namer     *Namer
	Journal   Journal
	Job       string // written into trash names; "" for a run without a job
	Protected func(name string) bool
	Keeper    Keeper
	Shortener Shortener
	Pruner    Pruner
	Shrinker  Shrinker
	Sweeper   Sweeper          // nil: nothing is removed unmeasured
	Clock     func() time.Time // the shard's, by which kept keys are due; nil: ours
}

// Deleter acts on one shard.
type Deleter struct {
	store Store
	gate  Gate
	o     Options

	still    func(context.Context, []Order) ([]bool, error) // see Guard
	swapped  map[string]bool                                // trash names that Restore made
	restored map[string]bool                                // names that Restore gave
	guesses  guesses
	released int64 // bytes unlinked since the server's queue was last seen empty
}

// New returns a deleter.
func New(store Store, gate Gate, o Options) *Deleter {
	if o.Job == "" {
		o.Job = "-"
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Deleter{store: store, gate: gate, o: o, swapped: map[string]bool{}, restored: map[string]bool{}}
}

// Guard has a question asked right before each act, after all waiting for it:
// which orders still stand by something that their keys' own servers can't
// judge. Nil ends that.
func (d *Deleter) Guard(still func(context.Context, []Order) ([]bool, error)) { d.still = still }

// standing asks it, and tells of the orders that don't stand.
func (d *Deleter) standing(ctx context.Context, orders []Order, done func(Result)) ([]Order, error) {
	if d.still == nil {
		return orders, nil
	}
	stands, err := d.still(context.WithoutCancel(ctx), orders)
	if err != nil {
		return nil, err
	}
	var out []Order
	for i, o := range orders {
		if stands[i] {
			out = append(out, o)
		} else {
			done(Result{Order: o, Outcome: Changed, Reason: "what it belongs to is in use again"})
		}
	}
	return out, nil
}

// Act carries out orders and calls done once for each whose fate is known.
// It returns an error only where it had to give up before the end: ctx is
// done, the connection is lost, the server refuses everything, or the journal
// can't be written. Then orders that done was not called for were not acted
// on. A key that could not be removed is a Result, not an error.
func (d *Deleter) Act(ctx context.Context, orders []Order, done func(Result)) error {
	byMethod := map[Method][]Order{}
	for _, o := range orders {
		switch method, err := plan(&o, &d.o.Can); {
		case d.o.Protected(o.Key):
			done(Result{Order: o, Outcome: Protected})
		case err != nil:
			done(Result{Order: o, Outcome: Failed, Reason: err.Error()})
		default:
			if method == Expire {
				o.run = []any{"pexpireat", o.ExpireAt.UnixMilli()}
			}
			byMethod[method] = append(byMethod[method], o)
		}
	}
	for _, how := range []Method{Unlink, Expire} {
		if err := d.removeAll(ctx, byMethod[how], how, done); err != nil {
			return err
		}
	}
	drain := byMethod[Drain]
	err := d.removeAll(ctx, byMethod[Del], Del, func(r Result) {
		if r.Outcome == "" { // grown too large for DEL
			drain = append(drain, r.Order)
			return
		}
		done(r)
	})
	if err != nil {
		return err
	}
	if err := d.drainAll(ctx, drain, done); err != nil {
		return err
	}
	if err := d.trimAll(ctx, byMethod[Cut], done); err != nil {
		return err
	}
	if err := d.inPlaceAll(ctx, byMethod[InPlace], done); err != nil {
		return err
	}
	return d.keepAll(ctx, byMethod[Keep], done)
}

// most is how many bytes may be handed to the server's background thread
// before we wait for it to be done: it competes with the main thread for
// the allocator, and others' memory is not free until it is.
const most = 64 << 20

// removeAll removes keys in one step each, a pipeline at a time.
func (d *Deleter) removeAll(ctx context.Context, orders []Order, how Method, done func(Result)) error {
	kind := "remove"
	if how == Expire {
		kind = "expire"
	}
	for len(orders) > 0 {
		n, elements, bytes := d.chunk(orders, how)
		if err := d.gate.Wait(ctx, n, elements, bytes); err != nil {
			return err
		}
		mine, err := d.standing(ctx, orders[:n], done)
		if err != nil {
			return err
		}
		orders = orders[n:]
		if len(mine) == 0 {
			continue
		}
		start := time.Now()
		replies := d.store.Remove(context.WithoutCancel(ctx), mine, how)
		took := time.Since(start)
		d.gate.Observe(kind, len(mine), took)
		mine, replies, again := patient(ctx, d.gate, mine, replies)
		if len(again) > 0 {
			orders = slices.Concat(again, orders)
		}
		if err := d.report(mine, replies, how, took, done); err != nil {
			return err
		}
		if how == Unlink {
			if err := d.settle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunk is how many of the orders go into the next pipeline, and what they
// amount to. The gate knows what keys took on average; whatever they are, a
// pipeline frees in the main thread (what DEL removes, and strings) little
// more than one small key has, and one step may free.
func (d *Deleter) chunk(orders []Order, how Method) (n, elements int, bytes int64) {
	if how == Expire { // nothing is freed
		return min(len(orders), d.gate.Pipeline(d.gate.Batch("expire"))), 0, 0
	}
	limit := d.gate.Pipeline(d.gate.Batch("remove"))
	var inline int64
	for n < len(orders) && n < limit && bytes <= most && inline <= stepBytes && (how == Unlink || elements <= SmallElements) {
		o := &orders[n]
		elements += int(max(0, o.Elements))
		bytes += max(0, o.Bytes)
		if how == Del || o.Type == "string" {
			inline += max(0, o.Bytes)
		}
		n++
	}
	return n, elements, bytes
}

// report turns replies into results. Its error is the first reply that speaks
// against going on with the shard.
func (d *Deleter) report(orders []Order, replies []Reply, how Method, took time.Duration, done func(Result)) error {
	var fatal error
	for i, reply := range replies {
		r := Result{Order: orders[i], Method: how, Batches: 1, Took: took, Slowest: took}
		switch reply.Status {
		case Acted:
			if how == Expire {
				r.Outcome = Expired
				break
			}
			r.Outcome = Deleted
			if how == Unlink {
				r.Outcome = Unlinked
			}
			r.Elements = reply.Elements
			r.Bytes = max(0, r.Order.Bytes)
			d.released += r.Bytes
		case Rehearsed:
			r = Result{Order: orders[i], Method: how, Outcome: WouldAct}
		case Grown: // without an outcome: the caller drains it
		default:
			r = notActed(r, reply)
			if Fatal(reply.Err) && fatal == nil {
				fatal = reply.Err
			}
		}
		done(r)
	}
	return fatal
}

// notActed is the result of a key that was left as it was.
func notActed(r Result, reply Reply) Result {
	r.Batches = 0
	switch {
	case reply.Err != nil:
		r.Outcome, r.Reason, r.Moving = Failed, reason(reply.Err), moving(reply.Err)
	case reply.Status == StillGone:
		r.Outcome = Gone
	default:
		r.Outcome, r.Reason = Changed, "it no longer meets the rule"
	}
	return r
}

// patient takes from orders, and from what became of them, those that the
// server refused for now, once they may be tried again.
func patient[R interface{ err() error }](ctx context.Context, gate Gate, orders []Order, replies []R) (mine []Order, told []R, again []Order) {
	refused := func(r R) bool { return r.err() != nil && Fatal(r.err()) && !inDoubt(r.err()) }
	first := slices.IndexFunc(replies, refused)
	if first < 0 || !gate.Again(ctx, replies[first].err()) {
		return orders, replies, nil
	}
	for i, r := range replies {
		if refused(r) {
			again = append(again, orders[i])
		} else {
			mine, told = append(mine, orders[i]), append(told, r)
		}
	}
	return mine, told, again
}

// insist takes a step, and again as long as the server refuses it for now and
// the gate lets us.
func (d *Deleter) insist(ctx context.Context, step func(context.Context) Reply) Reply {
	for {
		r := step(context.WithoutCancel(ctx))
		if !d.gate.Again(ctx, r.Err) || d.gate.Wait(ctx, 1, 0, 0) != nil {
			return r
		}
	}
}

// settle waits, after much was unlinked, until the server has freed it: polled
// each 20 ms, at most 30 s.
func (d *Deleter) settle(ctx context.Context) error {
	if d.released <= most {
		return nil
	}
	d.released = 0
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if n, known := d.store.Freeing(ctx); n == 0 || !known {
			return ctx.Err()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// drainAll sets keys aside, one after another, and drains each. The names
// they will have are in the journal before the first is touched.
func (d *Deleter) drainAll(ctx context.Context, orders []Order, done func(Result)) error {
	if len(orders) == 0 {
		return nil
	}
	names := make([]string, len(orders))
	for i, o := range orders {
		names[i] = d.o.Namer.name(d.o.Job, o.Key)
		if _, readable := d.o.Namer.Parse(names[i]); !readable {
			return fmt.Errorf("set aside: no run could read the trash name %q", names[i])
		}
	}
	if err := d.o.Journal.Begin(names); err != nil {
		return fmt.Errorf("write the trash journal: %w", err)
	}
	for i, o := range orders {
		r, err := d.drainOne(ctx, o, names[i])
		if r.Outcome != "" {
			done(r)
		}
		if err == nil {
			continue
		}
		if r.Outcome != "" {
			i++
		}
		for _, unused := range names[i:] {
			err = errors.Join(err, d.o.Journal.Done(unused))
		}
		return err
	}
	return nil
}

func (d *Deleter) drainOne(ctx context.Context, o Order, name string) (Result, error) {
	if err := d.gate.Wait(ctx, 1, 0, 0); err != nil {
		return Result{}, err
	}
	var r Result
	switch stands, err := d.standing(ctx, []Order{o}, func(not Result) { r = not }); {
	case err != nil:
		return Result{}, err
	case len(stands) == 0:
		return r, d.o.Journal.Done(name)
	}
	r, err := d.setAside(ctx, o, name)
	if r.Outcome != Drained || err != nil {
		return r, err
	}
	return d.empty(ctx, name, r)
}

// Aside sets one key aside, without waiting for the gate, for Empty to drain.
// The outcome is Trashed where it is in the trash under the name now.
func (d *Deleter) Aside(ctx context.Context, o Order) (name string, _ Result, _ error) {
	switch _, err := plan(&o, &d.o.Can); {
	case d.o.Protected(o.Key):
		return "", Result{Order: o, Outcome: Protected}, nil
	case err != nil:
		return "", Result{Order: o, Outcome: Failed, Reason: err.Error()}, nil
	}
	name = d.o.Namer.name(d.o.Job, o.Key)
	if err := d.o.Journal.Begin([]string{name}); err != nil {
		return "", Result{}, fmt.Errorf("write the trash journal: %w", err)
	}
	r, err := d.setAside(ctx, o, name)
	if r.Outcome == Drained {
		r.Outcome = Trashed
	}
	return name, r, err
}

// Empty drains what Aside set aside, and adds to its result.
func (d *Deleter) Empty(ctx context.Context, name string, r Result) (Result, error) {
	r.Outcome = Drained
	return d.empty(ctx, name, r)
}

// setAside renames a key to a trash name that is in the journal. The outcome
// is Drained where that succeeded, as it is to be.
func (d *Deleter) setAside(ctx context.Context, o Order, name string) (Result, error) {
	r := Result{Order: o, Method: Drain}
	start := time.Now()
	reply := d.insist(ctx, func(ctx context.Context) Reply { return d.store.SetAside(ctx, o, name) })
	r.Took = time.Since(start)
	r.Slowest = r.Took
	d.gate.Observe("set aside", 0, r.Took)
	switch reply.Status {
	case Rehearsed:
		return Result{Order: o, Method: Drain, Outcome: WouldAct}, nil
	case Acted:
	default:
		r = notActed(r, reply)
		if inDoubt(reply.Err) {
			// The rename may have happened, or may happen later: the journal
			// keeps the name and the next run looks.
			return r, reply.Err
		}
		if err := d.o.Journal.Done(name); err != nil {
			return r, err
		}
		if Fatal(reply.Err) {
			return r, reply.Err
		}
		return r, nil
	}
	r.Outcome = Drained
	return r, nil
}

// Finish drains what an earlier run left under a trash name: what was begun,
// and what was kept for this job and is due. It says nothing (a zero Result)
// if there is nothing left or the name is neither.
func (d *Deleter) Finish(ctx context.Context, name string) (Result, error) {
	t, ours := d.o.Namer.Parse(name)
	due := t.State == Kept && t.Job == d.o.Job && t.Due <= d.o.Clock().UnixMilli()
	if !ours || t.State != Draining && !due {
		return Result{}, nil
	}
	if due {
		r, err := d.Purge(ctx, name)
		if r.Outcome == Drained {
			r.Outcome = Finished
		}
		return r, err
	}
	r := Result{Order: Order{Key: t.Original, Elements: Unknown, Bytes: Unknown}, Method: Drain, Outcome: Finished}
	return d.empty(ctx, name, r)
}

// empty drains a key of the trash and adds to r what that took. Interrupted,
// it leaves the rest to a later run.
func (d *Deleter) empty(ctx context.Context, name string, r Result) (Result, error) {
	began := time.Now()
	fail := func(err error) (Result, error) {
		r.Took += time.Since(began)
		if r.Outcome == Finished && !errors.Is(err, context.Canceled) {
			r.Outcome = Failed // again: it may never succeed
		} else {
			r.Outcome = Trashed
		}
		r.Reason = fmt.Sprintf("not drained to the end: %s; a later run finishes it", reason(err))
		if Fatal(err) {
			return r, err
		}
		return r, nil
	}
	var key *Opened
	reply := d.insist(ctx, func(ctx context.Context) (r Reply) {
		key, r.Err = d.store.Open(ctx, name)
		return r
	})
	if reply.Err != nil {
		return fail(reply.Err)
	}
	if key == nil {
		if r.Outcome == Finished {
			r = Result{}
		}
		return r, d.o.Journal.Done(name)
	}
	if r.Order.Type == "" {
		r.Order.Type = key.Type
	}
	kind := ""
	over := 0 // what the step before took beyond what it had waited for
	for done := false; !done; {
		if next := key.Kind(); next != kind {
			kind = next
			d.gate.Anew(kind)
		}
		n := min(d.gate.Batch(kind), key.Largest)
		if err := d.gate.Wait(ctx, key.Commands, n+over, int64(n+over)*key.Each); err != nil {
			return fail(err)
		}
		start := time.Now()
		step, err := key.Next(context.WithoutCancel(ctx), n)
		done = step.Done
		took := time.Since(start)
		d.gate.Observe(kind, int(step.Handled), took)
		over = max(0, int(step.Removed)-n)
		r.Batches++
		r.Elements += step.Removed
		r.Bytes += step.Removed * key.Each
		r.Slowest = max(r.Slowest, took)
		if err != nil && !d.gate.Again(ctx, err) {
			return fail(err)
		}
	}
	r.Took += time.Since(began)
	return r, d.o.Journal.Done(name)
}
