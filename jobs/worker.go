package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/scanner"
	"github.com/keyjanitor/keyjanitor/throttle"
)

// auditPage is how many keys share one write and one sync of the audit.
const auditPage = 1000

// worker does one run's work on one shard. Its fields belong to one goroutine
// at a time.
type worker struct {
	*run
	shard   *topology.Shard
	scan    *scanner.Scanner
	del     *deleter.Deleter
	gates   []*throttle.Gate
	checked time.Time // when the shard was last known to be what it was
	pinged  time.Time

	ahead time.Duration // the shard's clock, less ours

	sweeps bool // the act is the first to look at the keys

	tally    *tally
	glance   glance // a place to work in
	spare    *group // another
	scanned  int64
	acted    int64 // against max_percent
	trash    int64 // names of ours met so far: no part of what it is a percentage of
	full     bool  // a limit ended the shard
	complete bool
	err      error

	outcomes           Outcomes
	undrained          int64 // of the trashed: an interrupted drain, not a key that is kept
	elements, released int64

	orphans, moved, unmeasured, refused, waiting int64
	refusedErr                                   error
}

func newWorker(w *run, s *topology.Shard) *worker {
	return &worker{run: w, shard: s, tally: newTally(w.Top, ranking(w.Request)), err: s.Err}
}

// do takes one step unless an earlier one failed, and keeps its error. A
// panic is an error of the shard: it must not end a daemon with its other
// jobs.
func (k *worker) do(ctx context.Context, step func(context.Context) error) {
	defer k.recovered(&k.err)
	if k.err == nil && k.scan == nil {
		k.keep(ctx, k.prepare(ctx))
	}
	if k.err != nil || ctx.Err() != nil {
		return
	}
	k.keep(ctx, step(ctx))
}

// recovered, deferred, turns a panic into an error.
func (k *worker) recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
		k.Log.Error("work on a shard panicked", "job", k.Job.Name, "shard", k.shard.ID,
			"reason", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// keep keeps an error of the shard. What fails because the run is over says
// nothing about the shard.
func (k *worker) keep(ctx context.Context, err error) {
	if err != nil && (ctx.Err() == nil || errors.Is(err, ErrState)) {
		k.err = err
	}
}

// prepare builds the shard's gates, scanner and deleter.
func (k *worker) prepare(ctx context.Context) error {
	if err := k.unlimited(); err != nil {
		return err
	}
	if err := k.powerless(); err != nil {
		return err
	}
	target := time.Duration(k.Pace.TargetLatency)
	looking := throttle.New(throttle.Options{
		Target: target, Share: float64(k.Pace.ScanShare) / 100, Budgets: []*throttle.Budget{k.budget},
	})
	acting := throttle.New(throttle.Options{
		Target: target, Share: float64(k.Pace.MaxShare) / 100, Budgets: []*throttle.Budget{k.budget, k.removal},
	})
	k.gates = []*throttle.Gate{looking, acting}
	can := k.shard.Can
	o := scanner.Options{
		Rule: ruleOf(k.Job.Select), Can: scanner.Abilities{MemoryUsage: can.MemoryUsage, Encoding: can.Encoding}, Own: k.own,
	}
	k.sweeps = k.lean()
	o.Lean = k.sweeps
	if k.shard.Server.Cluster {
		o.Orphan = func(name string) bool { return !k.shard.Owns(topology.Slot(name)) }
	}
	k.scan = scanner.New(k.shard.Client(), looking, o)
	if err := k.check(ctx); err != nil || k.Mode == Scan {
		return err
	}
	k.newDeleter(acting)
	return k.prepareKeeping(ctx)
}

func (k *worker) newDeleter(gate *throttle.Gate) {
	can := abilitiesOf(k.shard)
	redis := deleter.NewRedis(k.shard.Client(), can)
	o := deleter.Options{Can: can, Namer: k.namer, Job: k.Job.Name, Protected: k.protected, Journal: noJournal{}, Clock: k.clock}
	if k.Mode == Execute {
		o.Journal, o.Keeper, o.Sweeper = shardJournal{k.journal, k.shard.DB}, redis, redis
		k.del = deleter.New(redis, leased{gate, k.lease, &k.Progress.Elements}, o)
		return
	}
	rehearsal := deleter.NewRehearsal(redis)
	o.Keeper = rehearsal
	k.del = deleter.New(rehearsal, gate, o)
}

// abilitiesOf translates what a server can do into what the deleter asks.
func abilitiesOf(s *topology.Shard) deleter.Abilities {
	v := s.Server
	brokenStreams := !v.AtLeast(6, 0, 14) || v.AtLeast(6, 2, 0) && !v.AtLeast(6, 2, 4)
	return deleter.Abilities{
		Unlink: s.Can.Unlink, Script: s.Can.Script, MemoryUsage: s.Can.MemoryUsage, NoValues: s.Can.NoValues,
		Jemalloc:         len(v.Allocator) >= 8 && v.Allocator[:8] == "jemalloc",
		StreamUnlink:     !brokenStreams,
		WatchSeesPersist: v.AtLeast(6, 0, 7),
		Cluster:          v.Cluster,
		NoRename:         !s.Can.Rename,
	}
}

func ruleOf(s config.Select) scanner.Rule {
	return scanner.Rule{
		Match: s.Match, Prefix: s.Prefix, Exclude: s.Exclude, Types: s.Types,
		MinElements: s.MinElements, MinBytes: int64(s.MinBytes),
		NoTTL: s.NoTTL, TTLUnder: time.Duration(s.TTLUnder), TTLOver: time.Duration(s.TTLOver),
	}
}

// own recognises the names that keyjanitor itself keeps in a server.
func (w *run) own(name string) bool {
	_, trash := w.namer.Parse(name)
	return trash || isLockName(name)
}

func (w *run) protected(name string) bool {
	for _, glob := range w.Protect {
		if scanner.Glob(glob, name) {
			return true
		}
	}
	return w.own(name)
}

// How often a shard is asked whether it is still the same primary, and how
// often an idle round trip is measured.
const (
	checkEvery = time.Second
	pingEvery  = 5 * time.Second
	pings      = 5 // the fastest of them is the network's share
)

// check makes sure, at most a second old, that the shard is still what it was,
// and tells the gates what the network takes.
//
// Sends: what Shard.Verify sends, once a second, and five PINGs every five.
func (k *worker) check(ctx context.Context) error {
	if time.Since(k.checked) < checkEvery {
		return nil
	}
	if err := k.shard.Verify(ctx); err != nil {
		return err
	}
	k.checked = time.Now()
	if time.Since(k.pinged) < pingEvery {
		return nil
	}
	fastest := time.Duration(math.MaxInt64)
	for range pings {
		start := time.Now()
		if err := k.shard.Client().Ping(ctx).Err(); err != nil {
			return fmt.Errorf("ping: %w", err)
		}
		fastest = min(fastest, time.Since(start))
	}
	for _, g := range k.gates {
		g.SetRoundTrip(fastest)
	}
	k.pinged = time.Now()
	return nil
}

// walk scans the whole shard, and acts as it goes.
func (k *worker) walk(ctx context.Context) error {
	if k.Trash == nil {
		if err := k.finishLeft(ctx); err != nil {
			return err
		}
	}
	last, err := k.pages(ctx)
	if err != nil {
		return err
	}
	if !last {
		return nil // a limit stopped it, which the summary tells
	}
	k.checked = time.Time{}
	if err := k.check(ctx); err != nil {
		return fmt.Errorf("at the end of the scan: %w", err)
	}
	switch {
	case k.moved > 0:
		return fmt.Errorf("the slots of %d keys moved away during the scan", k.moved)
	case k.refused > 0:
		return fmt.Errorf("%d keys could not be looked at: %w", k.refused, k.refusedErr)
	}
	k.complete = true
	return nil
}

// pages does to every page of the scan what the run is for; last tells
// whether that was all of them.
func (k *worker) pages(ctx context.Context) (last bool, err error) {
	if k.sweeps {
		return k.flow(ctx)
	}
	err = k.scan.Walk(ctx, 0, func(p scanner.Page) error {
		last = p.Next == 0
		return k.page(ctx, p)
	})
	return last, err
}

// passed counts one page of the scan.
func (k *worker) passed(p *scanner.Page) {
	k.scanned += int64(p.Seen)
	k.trash += int64(len(p.Own))
	k.orphans += int64(p.Orphans)
	k.moved += int64(p.Moved)
	k.unmeasured += int64(p.Unmeasured)
	k.refused += int64(p.Refused)
	if p.RefusedErr != nil {
		k.refusedErr = p.RefusedErr
	}
	k.Progress.KeysScanned.Add(int64(p.Seen))
}

// page takes in one page of the scan and acts on it.
func (k *worker) page(ctx context.Context, p scanner.Page) error {
	k.passed(&p)
	if err := k.check(ctx); err != nil {
		return err
	}
	if k.Trash != nil {
		return k.sort(ctx, p.Own)
	}
	for _, name := range p.Own {
		if err := k.finish(ctx, name); err != nil {
			return err
		}
	}
	k.Progress.KeysMatched.Add(int64(len(p.Keys)))
	if k.Mode == Scan {
		for i := range p.Keys {
			k.found(k.finding(&p.Keys[i]))
		}
		return ctx.Err()
	}
	return k.act(ctx, p.Keys)
}

// finishLeft finishes what the journals of earlier runs name.
func (k *worker) finishLeft(ctx context.Context) error {
	for _, t := range k.left {
		here := t.db == k.shard.DB && k.shard.Owns(topology.Slot(t.name))
		if !here {
			continue
		}
		if err := k.finish(ctx, t.name); err != nil {
			return err
		}
	}
	return nil
}

// finish drains one leftover of an earlier run.
func (k *worker) finish(ctx context.Context, name string) error {
	t, ours := k.namer.Parse(name)
	switch {
	case !ours || t.State == deleter.Kept && (k.Mode != Execute || !k.due(&t)):
		return nil
	case k.Mode != Execute:
		k.waiting++
		return nil
	}
	if k.othersAtWork(ctx, t.Job) {
		return nil
	}
	o := deleter.Order{Key: t.Original, Elements: deleter.Unknown, Bytes: deleter.Unknown}
	if err := k.Audit.Intents([]Entry{k.intent(&o)}); err != nil {
		return err
	}
	r, err := k.del.Finish(ctx, name)
	if r.Outcome == "" {
		return err
	}
	k.count(&r)
	if r.Outcome == deleter.Failed {
		f := Finding{Name: t.Original, Shard: k.shard.ID, Addr: k.shard.Addr, DB: k.shard.DB, Type: r.Order.Type}
		k.judge(&f, &r)
		k.found(f)
	}
	return errors.Join(err, k.Audit.Results([]Entry{k.result(&r)}))
}

// named acts on keys that were named.
func (k *worker) named(ctx context.Context, names []Named) error {
	if k.full {
		return nil
	}
	if err := k.check(ctx); err != nil {
		return err
	}
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = n.Name
	}
	keys, err := k.scan.Measure(ctx, list)
	if err != nil {
		return err
	}
	selected := k.standing(keys, names)
	k.scanned += int64(len(names))
	k.Progress.KeysScanned.Add(int64(len(names)))
	k.Progress.KeysMatched.Add(int64(len(selected)))
	err = k.act(ctx, selected)
	if errors.Is(err, scanner.ErrStop) {
		return nil
	}
	return err
}

// standing is the part of measured keys that is to be acted on; what became
// of the others is told. names, if given, say of what type each was.
func (k *worker) standing(keys []scanner.Key, names []Named) []scanner.Key {
	rule := ruleOf(k.Job.Select)
	selected := make([]scanner.Key, 0, len(keys))
	for i := range keys {
		key := &keys[i]
		was := ""
		if names != nil {
			was = names[i].Type
		}
		r := deleter.Result{Order: deleter.Order{Key: key.Name}, Outcome: deleter.Changed}
		switch {
		case key.Type == scanner.None:
			r.Outcome = deleter.Gone
		case k.protected(key.Name):
			r.Outcome = deleter.Protected
		case key.Type != "" && was != "" && key.Type != was:
			r.Reason = fmt.Sprintf("it was a %s and is a %s", was, key.Type)
		case key.Type != "" && !rule.Selects(key):
			r.Reason = "it does not meet the rule"
		default:
			selected = append(selected, *key)
			continue
		}
		k.outcome(&r, key)
	}
	return selected
}
