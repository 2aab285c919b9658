package jobs

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/scanner"
)

// maxFuses bounds the keys that one shard of a run watches at a time: some
// 2 MB of names of ordinary length.
const maxFuses = 10_000

// fuse is a key that is about to expire.
type fuse struct {
	due time.Time
	key scanner.Key
}

// fuses is a heap with the soonest first.
type fuses []fuse

func (f fuses) Len() int           { return len(f) }
func (f fuses) Less(i, j int) bool { return f[i].due.Before(f[j].due) }
func (f fuses) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *fuses) Push(x any)        { *f = append(*f, x.(fuse)) }
func (f *fuses) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	(*f)[last] = fuse{}
	*f = (*f)[:last]
	return x
}

// defuser sets keys aside just before they expire, and drains them between
// one and the next. All of it happens in the worker's goroutine: what is due
// is moved whenever a drain, or the scan, waits for its gate.
type defuser struct {
	k       *worker
	lead    time.Duration
	waiting fuses
	missed  int64 // keys for which there was no room: they are looked for again
	aside   []inTrash
	err     error // of what tick did inside a wait
}

// inTrash is a key that was set aside and is not drained yet.
type inTrash struct {
	name   string
	result deleter.Result
	key    scanner.Key
}

func newDefuser(k *worker) *defuser {
	return &defuser{k: k, lead: time.Duration(k.Job.Action.Defuse.Lead)}
}

// watch takes in what a page of the scan found.
func (d *defuser) watch(keys []scanner.Key) {
	for _, key := range keys {
		if len(d.waiting) >= maxFuses {
			d.missed++
			continue
		}
		heap.Push(&d.waiting, fuse{due: time.Now().Add(time.Duration(key.TTL)*time.Millisecond - d.lead), key: key})
	}
}

// tick moves what is due into the trash.
func (d *defuser) tick(ctx context.Context) error {
	for d.err == nil && ctx.Err() == nil && len(d.waiting) > 0 && !d.waiting[0].due.After(time.Now()) {
		f := heap.Pop(&d.waiting).(fuse)
		d.err = d.move(ctx, &f.key)
	}
	return d.err
}

func (d *defuser) move(ctx context.Context, key *scanner.Key) error {
	k := d.k
	if limit, whole := k.reserve(key); limit != "" {
		k.allow.end(limit, whole)
		k.full, d.waiting, d.missed = true, nil, 0
		return nil
	}
	o := k.order(key)
	o.Method, o.Evidence.TTLOver = deleter.Drain, 0
	// Later than this, and somebody gave it more time.
	if latest := d.lead + time.Second; o.Evidence.TTLUnder > latest {
		o.Evidence.TTLUnder = latest
	}
	if err := k.Audit.Intents([]Entry{k.intent(&o)}); err != nil {
		return err
	}
	if !k.lease.held() {
		return ErrLockLost
	}
	name, r, err := k.del.Aside(ctx, o)
	if r.Outcome == deleter.Trashed {
		d.aside = append(d.aside, inTrash{name, r, *key})
		return err
	}
	if r.Outcome == "" {
		return err
	}
	return errors.Join(err, d.told(&r, key))
}

// told counts and records what became of a key.
func (d *defuser) told(r *deleter.Result, key *scanner.Key) error {
	d.k.outcome(r, key)
	if !took(r.Outcome) {
		d.k.release(key)
	}
	return d.k.Audit.Results([]Entry{d.k.result(r)})
}

// finish waits until the last of the keys is due, and drains meanwhile. It
// reports whether there were more than could be watched.
func (d *defuser) finish(ctx context.Context) (more bool, err error) {
	for {
		err = d.tick(ctx)
		if err != nil || ctx.Err() != nil {
			return false, errors.Join(err, d.leave())
		}
		switch {
		case len(d.aside) > 0:
			t := d.aside[0]
			d.aside = d.aside[1:]
			r, err := d.k.del.Empty(ctx, t.name, t.result)
			if err := errors.Join(err, d.told(&r, &t.key), d.err); err != nil {
				return false, errors.Join(err, d.leave())
			}
		case len(d.waiting) > 0:
			select {
			case <-time.After(min(time.Until(d.waiting[0].due), checkEvery)):
			case <-ctx.Done():
			}
			if err := d.k.check(ctx); err != nil {
				return false, errors.Join(err, d.leave())
			}
		default:
			more, d.missed = d.missed > 0, 0
			return more, nil
		}
	}
}

// leave tells of what is in the trash and will be drained by a later run.
func (d *defuser) leave() error {
	var errs []error
	for _, t := range d.aside {
		t.result.Reason = "not drained; a later run finishes it"
		errs = append(errs, d.told(&t.result, &t.key))
	}
	d.aside = nil
	return errors.Join(errs...)
}

// ticking is a gate that moves what is due while it waits.
type ticking struct {
	deleter.Gate
	tick func(context.Context) error
	next func() time.Duration // until something is due
}

// Wait waits as the gate does.
func (g ticking) Wait(ctx context.Context, commands, elements int, bytes int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	passed := make(chan error, 1)
	go func() { passed <- g.Gate.Wait(ctx, commands, elements, bytes) }()
	for {
		timer := time.NewTimer(g.next())
		select {
		case err := <-passed:
			timer.Stop()
			return err
		case <-timer.C:
		}
		if err := g.tick(ctx); err != nil {
			cancel()
			<-passed
			return fmt.Errorf("set aside what is about to expire: %w", err)
		}
	}
}

// gate wraps a gate.
func (d *defuser) gate(g deleter.Gate) ticking { return ticking{g, d.tick, d.next} }

// next is how long nothing is due.
func (d *defuser) next() time.Duration {
	if len(d.waiting) == 0 {
		return time.Minute
	}
	return max(0, time.Until(d.waiting[0].due))
}
