package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
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

	ahead    time.Duration // the shard's clock, less ours
	rule     scanner.Rule
	replicas []*topology.Replica // that are asked for idle times
	reader   *topology.Shard     // what is scanned: the shard, or a replica
	defuse   *defuser            // of a run that defuses; else nil
	health   *throttle.Health    // of the shard's server
	unwatch  func()              // ends its sampling
	judging  sync.Mutex          // of its health: by the sampling, or because something was said
	paced    int                 // the version of a pace that was set by hand
	from     uint64              // where the walk begins
	cursor   uint64              // everything before it is done
	behind   int64               // keys that were scanned up to there
	heir     bool                // takes over from a worker of this run
	saved    time.Time           // when that was last written down
	indexes  indexes             // of a run that prunes them
	settled  func(*deleter.Result)
	putOff   []scanner.Key // in slots that were moving
	last     bool          // they are tried for the last time

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

	orphans, moved, unmeasured, touched, refused, waiting int64
	refusedErr                                            error
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
	budget, removal := budgets(k.Pace.PerShard)
	looking := throttle.New(throttle.Options{
		Target: target, Share: float64(k.Pace.ScanShare) / 100, Budgets: []*throttle.Budget{budget, k.budget},
	})
	acting := throttle.New(throttle.Options{
		Target: target, Share: float64(k.Pace.MaxShare) / 100, Budgets: []*throttle.Budget{budget, removal, k.budget, k.removal},
	})
	k.gates = []*throttle.Gate{looking, acting}
	if err := k.watchHealth(ctx); err != nil {
		return err
	}
	looking.SetHealth(k.health)
	acting.SetHealth(k.health)
	if err := k.openReader(ctx); err != nil {
		return err
	}
	can := k.reader.Can
	k.rule = ruleOf(k.Job.Select, k.Job.Action)
	if err := k.prepareIdle(ctx); err != nil {
		return err
	}
	o := scanner.Options{
		Rule: k.rule, Own: k.own,
		Can: scanner.Abilities{MemoryUsage: can.MemoryUsage, Encoding: can.Encoding, NoTouch: can.NoTouch, TypeTouches: k.typeTouches()},
	}
	o.Script = k.Script && can.Script && can.MemoryUsage
	k.sweeps = k.lean()
	o.Lean = k.sweeps
	if k.shard.Server.Cluster {
		o.Orphan = func(name string) bool { return !k.shard.Owns(topology.Slot(name)) }
	}
	var gate scanner.Gate = looking
	if k.Mode == Execute && k.Job.Action.Defuse != nil {
		k.defuse = newDefuser(k)
		gate = k.defuse.gate(looking)
	}
	k.scan = scanner.New(k.reader.Client(), gate, o)
	if err := k.check(ctx); err != nil || k.Mode == Scan {
		return err
	}
	k.newDeleter(ctx, acting)
	return k.prepareClock(ctx)
}

// budgets are that of all commands, and that of what is removed.
func budgets(b config.Budget) (commands, removal *throttle.Budget) {
	return throttle.NewBudget(b.CommandsPerSecond, 0, 0), throttle.NewBudget(0, b.ElementsPerSecond, int64(b.BytesPerSecond))
}

// close ends what the worker opened.
func (k *worker) close() {
	if k.unwatch != nil {
		k.unwatch()
		k.Progress.hold(k.shard, nil)
	}
	for _, r := range k.replicas {
		r.Close()
	}
	if k.reader != nil && k.reader != k.shard {
		k.reader.CloseClient()
	}
}

// openReader finds what the scan reads from.
func (k *worker) openReader(ctx context.Context) error {
	if k.reader = k.shard; !k.ReadReplica {
		return nil
	}
	replica, err := k.shard.OpenReplica(ctx)
	for deadline := time.Now().Add(settleAlone); err != nil && k.heir && ctx.Err() == nil && time.Now().Before(deadline); {
		// One that was lost a moment ago may be about to come back.
		time.Sleep(settleStep)
		replica, err = k.shard.OpenReplica(ctx)
	}
	if err != nil {
		return fmt.Errorf("--read-from replica: %w", err)
	}
	k.reader = replica
	k.mu.Lock()
	defer k.mu.Unlock()
	k.summary.Notes = append(k.summary.Notes, fmt.Sprintf("shard %s was read from its replica %s", k.shard.ID, replica.Addr))
	return nil
}

func (k *worker) newDeleter(ctx context.Context, gate *throttle.Gate) {
	can := abilitiesOf(k.shard)
	can.TypeTouches = k.typeTouches()
	can.LazyExpire = k.Job.Action.Expire != nil && k.shard.LazyExpire(ctx)
	redis := deleter.NewRedis(k.shard.Client(), can)
	o := deleter.Options{Can: can, Pruner: redis, Namer: k.namer, Job: k.Job.Name, Protected: k.protected, Journal: noJournal{}, Clock: k.clock}
	if k.Mode == Execute {
		o.Journal, o.Keeper, o.Shortener, o.Shrinker, o.Sweeper = shardJournal{k.journal, k.shard.DB}, redis, redis, redis, redis
		var acting deleter.Gate = leased{gate, k.lease, &k.Progress.Elements}
		if k.defuse != nil {
			acting = k.defuse.gate(acting)
		}
		k.del = deleter.New(redis, acting, o)
		return
	}
	rehearsal := deleter.NewRehearsal(redis)
	o.Keeper, o.Shortener, o.Shrinker = rehearsal, rehearsal, rehearsal
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
		NoTouch:          s.Can.NoTouch,
	}
}

// own recognises the names that keyjanitor itself keeps in a server.
func (w *run) own(name string) bool {
	_, trash := w.namer.Parse(name)
	_, _, pending := w.namer.ParsePending(name)
	return trash || pending || isLockName(name)
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
	for {
		err := k.verify(ctx)
		if err == nil {
			break
		}
		if !k.gates[0].Again(ctx, err) {
			return err
		}
	}
	k.checked = time.Now()
	if time.Since(k.pinged) < pingEvery {
		return nil
	}
	fastest := time.Duration(math.MaxInt64)
	for range pings {
		start := time.Now()
		// A refusal (MISCONF is one of PINGs, too) takes the network as long.
		if err := k.shard.Client().Ping(ctx).Err(); err != nil && throttle.Refusal(err) == "" {
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

// verify makes sure that the shard, and what is read in its stead, are what
// they were.
func (k *worker) verify(ctx context.Context) error {
	if err := k.shard.Verify(ctx); err != nil || k.reader == k.shard {
		return err
	}
	if err := k.reader.Verify(ctx); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	return nil
}

// walk scans the whole shard, and acts as it goes.
func (k *worker) walk(ctx context.Context) error {
	if k.Trash == nil {
		if err := k.finishLeft(ctx); err != nil {
			return err
		}
	}
	k.resume()
	defer func() {
		// What a limit ended came to its end: the next run begins anew.
		if _, over := k.allow.stoppedBy(); k.complete || k.full || over {
			k.arrived()
		} else {
			k.save()
		}
	}()
	last := false
	for again := true; again; {
		var err error
		last, err = k.pages(ctx)
		again = false
		if k.defuse != nil {
			more, ended := k.defuse.finish(ctx)
			if again, err = more && err == nil, errors.Join(err, ended); again {
				k.scanned = 0
			}
		}
		if err != nil {
			return err
		}
	}
	if !last {
		return nil // a limit stopped it, which the summary tells
	}
	if err := k.again(ctx); err != nil {
		return err
	}
	k.checked = time.Time{}
	if err := k.check(ctx); err != nil {
		return fmt.Errorf("at the end of the scan: %w", err)
	}
	switch {
	case k.moved > 0:
		return fmt.Errorf("%w: %d keys", errMoved, k.moved)
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
	err = k.scan.Walk(ctx, k.from, func(p scanner.Page) error {
		last = p.Next == 0
		if err := k.page(ctx, p); err != nil {
			return err
		}
		k.reached(p.Next, k.scanned)
		return nil
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
	k.touched += int64(p.Touched)
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
	keys, err := k.idleEverywhere(ctx, p.Keys)
	if err != nil {
		return err
	}
	k.Progress.KeysMatched.Add(int64(len(keys)))
	if k.Mode == Scan {
		for i := range keys {
			k.found(k.finding(&keys[i]))
		}
		return ctx.Err()
	}
	if k.Job.Action.PruneIndex != nil {
		k.indexes.meet(k, keys, p.Own)
		return ctx.Err()
	}
	return k.act(ctx, keys)
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
	k.scanned += int64(len(names))
	k.Progress.KeysScanned.Add(int64(len(names)))
	return k.actNamed(ctx, names)
}

// actNamed judges and acts on named keys.
func (k *worker) actNamed(ctx context.Context, names []Named) error {
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
	selected, err := k.idleEverywhere(ctx, k.standing(keys, names))
	if err != nil {
		return err
	}
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
		case key.Type != "" && !k.rule.Selects(key):
			r.Reason = "it does not meet the rule"
		default:
			selected = append(selected, *key)
			continue
		}
		k.outcome(&r, key)
	}
	return selected
}
