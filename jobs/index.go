package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/scanner"
)

// maxIndexes bounds the indexes of one shard that one run prunes.
const maxIndexes = 10_000

// indexes are those that a scan met on one shard.
type indexes struct {
	keys   []scanner.Key
	missed int64
}

// meet takes in what a page of the scan found: indexes, and entries that an
// earlier run moved out of one that may be gone by now.
func (x *indexes) meet(k *worker, keys []scanner.Key, own []string) {
	for _, name := range own {
		if job, index, ours := k.namer.ParsePending(name); ours && job == orDash(k.Job.Name) && k.rule.MatchName(index) && k.Mode == Execute {
			keys = append(keys, scanner.Key{Name: index, Bytes: scanner.Unknown, Elements: scanner.Unknown, TTL: scanner.Unknown, Idle: scanner.Unknown, Freq: scanner.Unknown})
		}
	}
	for _, key := range keys {
		at := slices.IndexFunc(x.keys, func(seen scanner.Key) bool { return seen.Name == key.Name })
		switch {
		case at >= 0 && x.keys[at].Type == "": // so far only what is pending of it was met
			x.keys[at] = key
		case at >= 0:
		case len(x.keys) >= maxIndexes:
			x.missed++
		default:
			x.keys = append(x.keys, key)
		}
	}
}

// prune prunes the indexes that the scans met. It is not done in parallel:
// what the entries of one shard's index stand for is on all of them.
func (w *run) prune(ctx context.Context, workers []*worker) {
	for _, k := range workers {
		k.rule = scanner.Rule{} // the keys of entries were not selected by a rule
	}
	for _, k := range workers {
		for _, key := range k.indexes.keys {
			if _, over := w.allow.stoppedBy(); over {
				return
			}
			k.do(ctx, func(ctx context.Context) error { return k.pruneOne(ctx, workers, &key) })
			k.complete = k.complete && k.err == nil
		}
	}
}

func (k *worker) pruneOne(ctx context.Context, workers []*worker, key *scanner.Key) error {
	a := k.Job.Action.PruneIndex
	before := k.clock().Add(-time.Duration(a.OlderThan))
	ix := deleter.Index{
		Key: key.Name, Type: key.Type, Before: before.UnixMilli(), Millis: a.Value == config.UnixMillis,
		Pending: k.namer.Pending(orDash(k.Job.Name), key.Name),
	}
	if a.Value == config.UnixSeconds {
		ix.Before = before.Unix()
	}
	if ix.Type == "" { // gone, but for what is pending
		ix.Type = "hash"
	}
	if err := k.check(ctx); err != nil {
		return err
	}
	o := deleter.Order{Key: key.Name, Type: key.Type, Elements: key.Elements, Bytes: key.Bytes}
	if k.protected(key.Name) {
		k.outcome(&deleter.Result{Order: o, Outcome: deleter.Protected}, key)
		return nil
	}
	if k.Mode != Execute {
		n, err := k.del.CountOld(ctx, ix)
		if err != nil {
			return err
		}
		r := deleter.Result{Order: o, Method: deleter.Prune, Outcome: deleter.WouldAct, Reason: fmt.Sprintf("%d of its entries are older", n)}
		if n == 0 {
			r.Outcome, r.Reason = deleter.Changed, "nothing in it is older"
		}
		k.outcome(&r, key)
		return nil
	}
	if err := k.Audit.Intents([]Entry{k.intent(&o)}); err != nil {
		return err
	}
	r, err := k.del.PruneIndex(ctx, ix, func(ctx context.Context, entries []deleter.Entry) ([]bool, error) {
		return k.removeEntries(ctx, workers, ix, key, entries)
	})
	k.outcome(&r, key)
	return errors.Join(err, k.Audit.Results([]Entry{k.result(&r)}))
}

// removeEntries removes the keys that entries of an index stand for, each on
// the shard that has it, and tells with which entries it is done. An entry
// that names the index itself does not take it along.
//
// Right before each key goes, the index is asked once more: between the answer
// and the act is one round trip, and no more.
func (x *worker) removeEntries(ctx context.Context, workers []*worker, ix deleter.Index, index *scanner.Key, entries []deleter.Entry) ([]bool, error) {
	w := x.run
	entryOf := map[string]deleter.Entry{}
	still := func(ctx context.Context, orders []deleter.Order) ([]bool, error) {
		asked := make([]deleter.Entry, len(orders))
		for i := range orders {
			asked[i] = entryOf[orders[i].Key]
		}
		stands, err := x.del.Returned(ctx, ix, asked)
		for i := range stands {
			stands[i] = !stands[i]
		}
		return stands, err
	}
	settled := map[string]bool{}
	byWorker := map[*worker][]Named{}
	names := make([][]string, len(entries))
	for i, e := range entries {
		for _, template := range w.Job.Action.PruneIndex.Also {
			n := Named{Name: strings.ReplaceAll(template, config.EntryMark, e.Name), DB: x.shard.DB}
			names[i] = append(names[i], n.Name)
			entryOf[n.Name] = e
			home := route(workers, n)
			switch {
			case n.Name == index.Name:
				settled[n.Name] = true
				x.outcome(&deleter.Result{Order: deleter.Order{Key: n.Name}, Outcome: deleter.Protected, Reason: "it is the index"}, index)
			case home != nil:
				byWorker[home] = append(byWorker[home], n)
			default:
				settled[n.Name] = w.homeless(n) != deleter.Failed
			}
		}
	}
	var errs []error
	for k, all := range byWorker {
		k.settled = func(r *deleter.Result) { settled[r.Order.Key] = r.Outcome != deleter.Failed }
		for page := range slices.Chunk(all, auditPage) {
			k.do(ctx, func(ctx context.Context) error {
				k.del.Guard(still)
				defer k.del.Guard(nil)
				return k.actNamed(ctx, page)
			})
		}
		k.settled = nil
		errs = append(errs, k.err)
	}
	done := make([]bool, len(entries))
	for i := range entries {
		done[i] = !slices.ContainsFunc(names[i], func(name string) bool { return !settled[name] })
	}
	if _, over := w.allow.stoppedBy(); over || errors.Join(errs...) != nil {
		return done, deleter.ErrStop
	}
	return done, ctx.Err()
}
