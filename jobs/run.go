// Package jobs carries out one run from end to end: it opens a target, walks
// its shards, turns what a scan found into orders, has them carried out and
// tells what came of it. Runs are started by hand, by a list of jobs, or on
// their schedules; all go through Runner.Run. It promises that nothing is
// acted on before the record of it is on disk, and that a shard that failed
// is told and costs no other shard its results.
package jobs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/scanner"
	"github.com/keyjanitor/keyjanitor/throttle"
)

// The gate serves both that scan and that delete.
var (
	_ scanner.Gate = (*throttle.Gate)(nil)
	_ deleter.Gate = (*throttle.Gate)(nil)
)

// Mode says how far a run goes.
type Mode string

// The modes of a run.
const (
	Scan    Mode = "scan"    // look and tell; nothing that writes is sent
	Report  Mode = "report"  // judge each key as for the act, and tell
	Execute Mode = "execute" // act
)

// ErrPartial: some shard, key or command failed; the summary says which.
var ErrPartial = errors.New("not everything could be done")

// ErrFailed: nothing useful was done.
var ErrFailed = errors.New("nothing could be done")

// ErrKeys: the list of keys to act on could not be read to its end.
var ErrKeys = errors.New("the list of keys")

// ErrLimit: a safety limit ended the run before the act that would pass it.
var ErrLimit = errors.New("stopped by a safety limit")

// Request is one run.
type Request struct {
	Job    config.Job
	Target config.Target
	Mode   Mode
	// Keys are the keys to act on, instead of a scan; nil to scan.
	Keys iter.Seq2[Named, error]
	// Trash makes it a run over the trash instead; nil: it is not.
	Trash *Trash
	// Top bounds the findings of the summary.
	Top int
	// Stream, if set, is given every finding once its fate is known.
	Stream func(Finding) error
	// Checkpoints writes down, in the state directory, how far each shard's
	// scan is; Resume goes on from there.
	Checkpoints, Resume bool
	// ReadReplica scans a replica of each shard; acts go to the primary.
	ReadReplica bool
	// Script scans by a script where the rule is about bytes and the server
	// lets it.
	Script bool
	// Part is the share of the shards that the run is for.
	Part Part
	// Lock makes the run wait up to LockWait for other runs of its job.
	Lock     bool
	LockWait time.Duration
}

// Part is one worker's share of a deployment's shards: each Of-th of them,
// in the order of their addresses or slots, from Index on. The zero Part is
// all of them.
type Part struct{ Index, Of int }

// share is the part's shards.
func (p Part) share(all []*topology.Shard) []*topology.Shard {
	if p.Of == 0 {
		return all
	}
	var mine []*topology.Shard
	for i := p.Index; i < len(all); i += p.Of {
		mine = append(mine, all[i])
	}
	return mine
}

// String is how a part is written in notes and in the name of a lock.
func (p Part) String() string { return fmt.Sprintf("%d-of-%d", p.Index+1, p.Of) }

// Runner carries out runs. Its fields must not change while one goes on.
type Runner struct {
	Log      *slog.Logger
	StateDir string
	Protect  []string // globs
	Pace     config.Pace
	HoldWhen config.Signals
	StopWhen config.Signals
	Control  *Control // nil: nobody steers
	Audit    Auditor  // nil where nothing is executed
	Progress *Progress
}

// NotStarted is the summary of a run that could not begin.
func NotStarted(q Request, err error) *Summary {
	s := newSummary(q)
	s.Finished, s.Error = s.Started, err.Error()
	return s
}

// run is the state that the shards of one run share.
type run struct {
	*Runner
	Request
	id      string
	namer   *deleter.Namer
	journal *journal
	left    []trashed // of earlier runs
	budget  *throttle.Budget
	removal *throttle.Budget
	allow   *allowance
	lease   *lease
	all     []*topology.Shard
	cluster bool
	opened  []*topology.Topology // again, when shards had to start over
	retired []*worker            // whose place others took
	cancel  context.CancelCauseFunc
	keysErr error  // of Keys
	heldFor string // why the run can't begin yet, as it was told last

	mu            sync.Mutex     // guards what follows
	replicaCounts map[string]int // when the run began, by shard
	summary       *Summary
	tally         *tally
	databases     map[int]error // by number, of those without keys: why they are none
	streamErr     error
}

// Run carries out one request. The summary tells what was done also where an
// error came back; it is nil only if the run did not begin. Errors are
// ErrPartial, ErrFailed, ErrKeys, ErrLimit, ErrBusy, ErrState, the cause of
// ctx, or what kept the target from being opened.
func (r *Runner) Run(ctx context.Context, q Request) (*Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var note string
	q.Job, note = settle(q.Job)
	w := &run{
		Runner: r, Request: q, id: runID(), cancel: cancel,
		namer:   deleter.NewNamer(topology.Slot),
		allow:   &allowance{limits: q.Job.Limits},
		summary: newSummary(q), databases: map[int]error{}, replicaCounts: map[string]int{},
		tally: newTally(q.Top, ranking(q)),
	}
	w.budget, w.removal = budgets(r.Pace.Budget)
	defer r.Control.begin(w)()
	if t := q.Job.Limits.Time; t > 0 {
		timer := time.AfterFunc(time.Duration(t), func() {
			w.allow.end("time: "+t.String(), true)
			cancel(ErrLimit)
		})
		defer timer.Stop()
	}
	if t := q.Job.Action.Trim; t != nil && len(q.Job.Select.Types) == 0 {
		w.summary.Notes = append(w.summary.Notes, fmt.Sprintf("a trim like this concerns keys of type %s; others were passed over", t.Type(nil)))
	}
	if note != "" {
		w.summary.Notes = append(w.summary.Notes, note)
	}
	if q.Mode == Execute {
		var err error
		if w.journal, w.left, err = openJournal(r.StateDir, q.Target.Name); err != nil {
			return nil, err
		}
		defer func() {
			if err := w.journal.close(); err != nil {
				r.Log.Warn("the trash journal could not be closed", "reason", err)
			}
		}()
	}
	top, err := w.open(ctx)
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer top.Close()
	w.all, w.cluster = top.Shards(), top.Cluster
	defer func() {
		for _, t := range w.opened {
			_ = t.Close() // everything that was to be said was answered
		}
	}()
	w.summary.Notes = append(w.summary.Notes, top.Notes...)

	if q.Lock && q.Mode == Execute {
		name := q.Job.Name
		if q.Part.Of > 0 {
			name += "/" + q.Part.String()
		}
		w.lease, err = takeLease(ctx, top.Shards(), name, q.LockWait, w.waitOut, cancel)
		if err != nil {
			return nil, cause(ctx, err)
		}
		defer w.lease.release()
	}
	if q.Part.Of > 0 && q.Job.Action.PruneIndex != nil {
		return nil, errors.New("an index is not pruned in parts: the keys of its entries are on all shards; run it whole")
	}
	mine := q.Part.share(top.Shards())
	if q.Part.Of > 0 {
		w.summary.Part = q.Part.String()
		w.summary.Notes = append(w.summary.Notes, fmt.Sprintf("this is part %s: %d of the %d shards", q.Part, len(mine), len(top.Shards())))
	}
	return w.shards(ctx, mine)
}

func runID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}

func newSummary(q Request) *Summary {
	s := &Summary{
		Job: q.Job.Name, Target: q.Target.Name, Mode: string(q.Mode), Started: time.Now(),
		Shards: []ShardSummary{}, Findings: []Finding{}, Notes: []string{},
		Types: []Group{}, Prefixes: []Group{}, TTL: []Group{}, Sizes: []Group{},
	}
	if q.Mode != Scan {
		s.ActSummary = &ActSummary{Holds: []Hold{}}
	}
	return s
}

// ranking is what the findings of a run are ordered by: bytes, unless the
// rule is about elements alone.
func ranking(q Request) rank {
	r := rank(byBytes)
	if onElements(q) {
		r = byElements
	}
	if q.Mode != Scan {
		return failedFirst(r)
	}
	return r
}

func onElements(q Request) bool {
	return q.Job.Select.MinElements > 0 && q.Job.Select.MinBytes == 0
}

// shards works on all shards, a few at once, and closes the summary.
func (w *run) shards(ctx context.Context, shards []*topology.Shard) (*Summary, error) {
	workers := make([]*worker, len(shards))
	for i, s := range shards {
		workers[i] = newWorker(w, s)
		w.Progress.add(s)
		if w.Keys != nil { // no others are looked at
			w.Progress.KeysTotal.Store(0)
		}
	}
	if w.Keys != nil {
		w.named(ctx, workers)
	} else {
		workers = w.walkAll(ctx, workers)
	}
	if w.Job.Action.PruneIndex != nil && w.Mode != Scan {
		w.prune(ctx, workers)
	}
	defer func() {
		for _, k := range workers {
			k.close()
		}
	}()
	return w.close(ctx, workers)
}

// named works on keys that were named instead of found, a page at a time.
func (w *run) named(ctx context.Context, workers []*worker) {
	w.parallel(ctx, workers, (*worker).finishLeft)
	page := make([]Named, 0, auditPage)
	flush := func() {
		byWorker := map[*worker][]Named{}
		for _, n := range page {
			if k := route(workers, n); k != nil {
				byWorker[k] = append(byWorker[k], n)
			} else {
				w.homeless(n)
			}
		}
		page = page[:0]
		for k, names := range byWorker {
			k.do(ctx, func(ctx context.Context) error { return k.named(ctx, names) })
		}
	}
	for n, err := range w.Keys {
		if err != nil {
			// The page in hand is not touched either: in a list that is
			// wrong here more may be wrong.
			w.keysErr, page = err, nil
			break
		}
		if page = append(page, n); len(page) == auditPage {
			flush()
		}
		if _, over := w.allow.stoppedBy(); over || ctx.Err() != nil {
			break
		}
	}
	flush()
	for _, k := range workers {
		k.do(ctx, k.again)
		k.complete = k.err == nil && ctx.Err() == nil
	}
}

// parallel does one step on all shards, a few at once.
func (w *run) parallel(ctx context.Context, workers []*worker, step func(*worker, context.Context) error) {
	var g errgroup.Group
	g.SetLimit(max(1, w.Pace.Parallel))
	for _, k := range workers {
		g.Go(func() error {
			k.do(ctx, func(ctx context.Context) error { return step(k, ctx) })
			return nil
		})
	}
	_ = g.Wait() // each worker keeps its own error
}

// route finds the shard of a named key; nil if there is none.
func route(workers []*worker, n Named) *worker {
	for _, k := range workers {
		if k.shard.DB == n.DB && k.shard.Owns(topology.Slot(n.Name)) {
			return k
		}
	}
	return nil
}

// homeless tells of a named key for which there is no shard: a database
// without keys, a slot that nobody owns, or a database that is not there in a
// cluster.
func (w *run) homeless(n Named) deleter.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := Finding{Name: n.Name, DB: n.DB, Type: n.Type, Outcome: string(deleter.Gone)}
	switch {
	case !w.cluster && w.noDatabase(n.DB) != nil:
		f.Outcome, f.Reason = string(deleter.Failed), w.noDatabase(n.DB).Error()
		w.summary.Outcomes.Failed++
	case !w.cluster:
		w.summary.Outcomes.Gone++
	case n.DB != 0:
		f.Outcome, f.Reason = string(deleter.Failed), fmt.Sprintf("a cluster has no database %d", n.DB)
		w.summary.Outcomes.Failed++
	default:
		f.Outcome, f.Reason = string(deleter.Failed), "no reachable node owns its slot"
		w.summary.Outcomes.Failed++
	}
	w.tally.add(f)
	w.emit(f)
	return deleter.Outcome(f.Outcome)
}

// noDatabase is why the server has no such database; nil if it has, and no
// keys in it. The caller holds mu.
//
// Sends, once for each database: SELECT and PING to the first shard's server.
func (w *run) noDatabase(db int) error {
	if err, known := w.databases[db]; known {
		return err
	}
	var err error
	if first := w.all[0]; first.Err == nil {
		o := *first.Client().Options()
		o.DB = db
		rdb := redis.NewClient(&o)
		err = rdb.Ping(context.Background()).Err()
		_ = rdb.Close() // nothing was written that could be lost
	}
	w.databases[db] = err
	return err
}

// emit streams a finding; the caller holds mu. A reader that went away ends
// the run.
func (w *run) emit(f Finding) {
	if w.Stream == nil || w.streamErr != nil {
		return
	}
	if err := w.Stream(f); err != nil {
		w.streamErr = fmt.Errorf("write findings: %w", err)
		w.cancel(w.streamErr)
	}
}

// cause is why a run ended: what its context says, else err.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// close sums up.
func (w *run) close(ctx context.Context, workers []*worker) (*Summary, error) {
	s := w.summary
	s.Complete = w.keysErr == nil
	failed, useful, undrained := 0, 0, int64(0)
	var state error
	if w.Mode == Execute { // what was done stays done
		// A drain of theirs that was interrupted was finished by whom took over,
		// or the shard is not complete, or that drain is counted there.
		for _, k := range w.retired {
			k.actsInto(s, w.tally)
		}
	}
	for _, k := range workers {
		k.closeInto(s, w.tally)
		s.Complete = s.Complete && k.complete
		undrained += k.undrained
		if k.err != nil {
			failed++
		}
		if state == nil && errors.Is(k.err, ErrState) {
			state = k.err
		}
		if k.complete || k.scanned > 0 || k.outcomes != (Outcomes{}) {
			useful++
		}
	}
	w.tally.into(s)
	if w.Mode == Scan && !onElements(w.Request) {
		s.TopElements = w.tally.longest.sorted()
	}
	if w.Mode == Scan && w.Trash == nil {
		s.Notes = append(s.Notes, w.remarks(s)...)
	}
	s.Finished = time.Now()
	by, _ := w.allow.stoppedBy()
	if by != "" {
		s.Complete = false
		if s.ActSummary != nil {
			s.StoppedBy = by
		}
	}
	switch ended := context.Cause(ctx); {
	case state != nil:
		return s, state
	case ended != nil && !errors.Is(ended, ErrLimit):
		return s, ended
	case by != "":
		return s, fmt.Errorf("%w: %s", ErrLimit, by)
	case w.keysErr != nil:
		return s, fmt.Errorf("%w: %w", ErrKeys, w.keysErr)
	case failed > 0 && useful == 0:
		return s, ErrFailed
	case failed > 0 || !s.Complete || s.ActSummary != nil && s.Outcomes.Failed > 0 || undrained > 0:
		return s, ErrPartial
	}
	return s, nil
}
