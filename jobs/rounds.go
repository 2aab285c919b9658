package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyjanitor/keyjanitor/internal/topology"
)

// restarts is how often shards start over in one run.
const restarts = 3

// How long a run waits, in all, for a deployment to be whole again before
// shards start over. A cluster begins, by default, to replace a node that died
// after 15 s; a lone server is there again at once or not for a while.
const (
	settleCluster = 20 * time.Second
	settleAlone   = 3 * time.Second
	settleStep    = 500 * time.Millisecond // between two looks
)

// errMoved says that keys left for another node while they were looked at.
var errMoved = errors.New("slots moved away during the scan")

// walkAll walks all shards. What a failover, a restart or moved slots made
// of the deployment is scanned again: a cursor means nothing to another
// process, and a slot's keys must be counted once, wherever they are in the
// end. It returns the workers whose results count.
func (w *run) walkAll(ctx context.Context, workers []*worker) []*worker {
	wait := settleAlone
	if w.cluster {
		wait = settleCluster
	}
	pending := workers
	for round := 0; ; round++ {
		w.parallel(ctx, pending, (*worker).walk)
		_, over := w.allow.stoppedBy()
		if over || ctx.Err() != nil || w.whole(ctx, workers) || round == restarts {
			return workers
		}
		began := time.Now()
		fresh := w.reopen(ctx, workers, wait)
		wait -= time.Since(began)
		if fresh == nil {
			return workers
		}
		workers, pending = w.replace(workers, fresh)
	}
}

// whole reports whether the shards were the deployment from the beginning to
// the end, or failed in a way that no other attempt would mend.
func (w *run) whole(ctx context.Context, workers []*worker) bool {
	// What could not be reached from the beginning is not waited for.
	// Nor is anything mended where idle times decide: a server that came later
	// knows nothing of the reads that one saw which is no more.
	mend := func(k *worker) bool {
		return k.shard.Err == nil && mendable(k.err) && w.Job.Select.IdleOver == 0
	}
	if slices.ContainsFunc(workers, mend) {
		return false
	}
	if !w.cluster {
		return true
	}
	i := slices.IndexFunc(workers, func(k *worker) bool { return k.err == nil })
	if i < 0 {
		return true
	}
	now, err := workers[i].shard.SlotMap(ctx)
	if err != nil {
		w.Log.Warn("whether slots moved is not known", "shard", workers[i].shard.ID, "reason", err)
		return true
	}
	for _, k := range workers {
		if k.err == nil && !slices.Equal(now[k.shard.ID], k.shard.Slots) {
			k.err, k.complete = errMoved, false
		}
		if k.err == nil && (k.orphans > 0 || k.Script) { // a script tells of no orphans
			if importing, err := k.shard.Importing(ctx); err == nil && importing {
				k.err, k.complete = errMoved, false
			}
		}
	}
	return !slices.ContainsFunc(workers, mend)
}

// mendable reports whether an error says that the shard is not what, or
// where, it was.
func mendable(err error) bool {
	var network net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, ErrState), errors.Is(err, ErrLockLost):
		return false
	case errors.Is(err, errMoved), errors.Is(err, topology.ErrIdentity), errors.Is(err, topology.ErrRole),
		errors.Is(err, io.EOF), errors.As(err, &network):
		return true
	}
	for _, state := range []string{"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK"} {
		if reply, is := errors.AsType[redis.Error](err); is && redis.HasErrorPrefix(reply, state) {
			return true
		}
	}
	return false
}

// reopen waits until the deployment is whole and nothing moves, and opens it
// again; nil if that takes too long.
func (w *run) reopen(ctx context.Context, workers []*worker, wait time.Duration) *topology.Topology {
	target := w.Target
	if w.cluster { // any node will do, and the configured ones may be gone
		target.Addresses = slices.Clone(target.Addresses)
		for _, k := range workers {
			if !slices.Contains(target.Addresses, k.shard.Addr) {
				target.Addresses = append(target.Addresses, k.shard.Addr)
			}
		}
	}
	deadline := time.Now().Add(wait)
	var best *topology.Topology
	for {
		top, err := topology.Open(ctx, target, topology.Options{Writes: w.Mode != Scan, Logger: w.Log})
		if err == nil {
			if best != nil {
				_ = best.Close() // nothing was sent over it
			}
			best = top
			if settled(ctx, top) {
				break
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(settleStep):
		case <-ctx.Done():
		}
	}
	if best != nil {
		w.opened = append(w.opened, best)
	}
	return best
}

// settled reports whether every shard can be talked to, and no slot moves or
// moved within a second.
func settled(ctx context.Context, top *topology.Topology) bool {
	shards := top.Shards()
	if slices.ContainsFunc(shards, func(s *topology.Shard) bool { return s.Err != nil }) {
		return false
	}
	if !top.Cluster {
		return true
	}
	for _, s := range shards {
		if moving, err := s.Importing(ctx); err == nil && moving {
			return false
		}
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return false
	}
	now, err := shards[0].SlotMap(ctx)
	if err != nil || len(now) != len(shards) {
		return false
	}
	for _, s := range shards {
		if !slices.Equal(now[s.ID], s.Slots) {
			return false
		}
	}
	return true
}

// replace keeps the workers whose shard is what it was and makes new ones for
// all others: those that are to walk.
func (w *run) replace(workers []*worker, top *topology.Topology) (all, pending []*worker) {
	w.all = top.Shards()
	kept := map[*worker]bool{}
	for _, s := range w.Part.share(top.Shards()) {
		same := func(k *worker) bool {
			return k.err == nil && k.complete && k.shard.ID == s.ID && slices.Equal(k.shard.Slots, s.Slots)
		}
		if i := slices.IndexFunc(workers, same); i >= 0 {
			kept[workers[i]] = true
			all = append(all, workers[i])
			continue
		}
		k := newWorker(w, s)
		k.heir = true
		all, pending = append(all, k), append(pending, k)
		w.Progress.add(s)
	}
	for _, k := range workers {
		if kept[k] {
			continue
		}
		w.retire(k, pending)
	}
	return all, pending
}

// retire puts a worker aside whose tables don't count any more. What it did
// stays done, and counts against the limits of those that take over.
func (w *run) retire(k *worker, heirs []*worker) {
	if k.reader != nil {
		k.arrived() // its place is no place to go on from
	}
	k.close()
	k.holdsInto(w.summary) // what still holds ends here for it
	for _, h := range heirs {
		if h.shard.ID == k.shard.ID || overlap(h.shard.Slots, k.shard.Slots) {
			h.acted += k.acted
		}
	}
	w.Progress.drop(k.shard, k.scanned)
	w.retired = append(w.retired, k)
	why := "slots moved"
	if k.err != nil {
		why = k.err.Error()
	}
	w.summary.Notes = append(w.summary.Notes, fmt.Sprintf("shard %s was scanned again: %s", k.shard.ID, why))
	w.Log.Warn("a shard is scanned again", "shard", k.shard.ID, "reason", why)
}

func overlap(a, b []topology.SlotRange) bool {
	for _, x := range a {
		for _, y := range b {
			if x.First <= y.Last && y.First <= x.Last {
				return true
			}
		}
	}
	return false
}
