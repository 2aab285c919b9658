package jobs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/scanner"
)

// flow removes small keys that nobody has measured while the walk that finds
// them goes on: the server is asked for the next page and the record of the
// next group is written while it acts on the group before. One page is fetched
// ahead, one group is acted on at a time, and what is in hand is acted on as
// soon as the server is free for it.
//
// It belongs to the worker's goroutine, as the worker does. A second one only
// walks, and a third only acts: all they know comes back through channels.
type flow struct {
	*worker
	keys   []scanner.Key // found, and not yet acted on
	after  uint64        // the cursor after the last page that was taken
	look   []string      // that a sweep left alone: to be measured
	acting *sweep        // nil: nothing is acted on
	recent recent
}

// sweep is a group that is acted on.
type sweep struct {
	*group
	next    uint64 // the cursor up to which nothing is left once it is done; 0: not so
	scanned int64  // keys up to there
	err     error
	done    chan struct{} // closed once results and err are final
}

// recent remembers the names that were acted on last. SCAN repeats keys while
// tables shrink, and what was found twice is gone when it is its turn again:
// that is no news of the key. It holds more than can be on its way, a group
// that is acted on, one in hand and two pages.
type recent struct {
	names [5 * auditPage]string
	next  int
	set   map[string]struct{} // of names; nil until something is looked up
}

// trim lets go of what is older.
func (r *recent) trim() { r.set = nil }

func (r *recent) add(name string) {
	r.names[r.next%len(r.names)] = name
	r.next++
	if r.set != nil {
		r.set[name] = struct{}{}
	}
}

func (r *recent) has(name string) bool {
	if r.set == nil {
		r.set = make(map[string]struct{}, len(r.names))
		for _, n := range r.names[:min(r.next, len(r.names))] {
			r.set[n] = struct{}{}
		}
	}
	_, there := r.set[name]
	return there
}

// lean reports whether the act may be the first to look at the keys. Whatever
// has to be known before it, because it is a limit, a budget or needed to give
// a key back, is asked beforehand; so are keys none of which can be small.
func (k *worker) lean() bool {
	d, l, sel, can := k.Job.Action.Delete, &k.Job.Limits, &k.Job.Select, &k.shard.Can
	return k.Mode == Execute && k.Trash == nil && k.Keys == nil &&
		d != nil && d.KeepFor == 0 && (d.Method == "" || d.Method == config.MethodAuto) &&
		can.Script && can.Unlink && l.MaxBytes == 0 &&
		k.Pace.ElementsPerSecond == 0 && k.Pace.BytesPerSecond == 0 &&
		k.Pace.PerShard.ElementsPerSecond == 0 && k.Pace.PerShard.BytesPerSecond == 0 &&
		sel.IdleOver == 0 && sel.FreqUnder == 0 && sel.MinElements <= deleter.SmallElements && int64(sel.MinBytes) <= deleter.SmallBytes
}

// large reports whether what the scan learned already rules out that a sweep
// removes the key.
func large(key *scanner.Key) bool {
	return key.Elements > deleter.SmallElements || key.Bytes > deleter.SmallBytes || key.Type == "stream"
}

// flow walks the shard and acts as it goes; last tells whether the walk came
// to its end. A limit ends it without an error.
func (k *worker) flow(ctx context.Context) (last bool, err error) {
	scanning, stop := context.WithCancel(ctx)
	pages := make(chan scanner.Page)
	var walked error // final once pages is closed
	go func() {
		defer close(pages)
		defer k.recovered(&walked)
		walked = k.scan.Walk(scanning, k.from, func(p scanner.Page) error {
			select {
			case pages <- p:
				return nil
			case <-scanning.Done():
				return scanning.Err()
			}
		})
	}()
	f := &flow{worker: k}
	defer func() {
		stop()
		for range pages { // what nobody takes any more, until the walk has ended
		}
		if f.acting != nil { // run panicked
			<-f.acting.done
		}
	}()
	last, err = f.run(ctx, pages)
	if idle := f.idle(); idle != nil {
		err = errors.Join(err, idle)
	}
	switch {
	case errors.Is(err, scanner.ErrStop):
		return false, nil
	case err != nil:
		return false, err
	}
	return last, walked
}

// run takes pages until there are no more and acts on what they hold.
func (f *flow) run(ctx context.Context, pages <-chan scanner.Page) (last bool, err error) {
	for err == nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if len(f.look) > 0 {
			err = f.lookAt(ctx)
			continue
		}
		if len(f.keys) >= auditPage || len(f.keys) > 0 && f.acting == nil {
			err = f.next(ctx)
			continue
		}
		var done chan struct{}
		switch {
		case f.acting != nil:
			done = f.acting.done
		case pages == nil:
			return last, nil
		}
		select {
		case p, more := <-pages:
			if !more {
				pages = nil
				continue
			}
			last = p.Next == 0
			err = f.take(ctx, &p)
		case <-done:
			err = f.idle()
		}
	}
	return false, err
}

// take takes in one page. What else needs the server to itself waits until
// nothing is acted on; a page that is being fetched meanwhile is in nobody's
// way, and the fastest of several PINGs comes after it.
func (f *flow) take(ctx context.Context, p *scanner.Page) error {
	f.passed(p)
	f.after = p.Next
	if len(p.Own) > 0 || time.Since(f.checked) >= checkEvery {
		if err := f.idle(); err != nil {
			return err
		}
	}
	if err := f.check(ctx); err != nil {
		return err
	}
	for _, name := range p.Own {
		if err := f.finish(ctx, name); err != nil {
			return err
		}
	}
	f.Progress.KeysMatched.Add(int64(len(p.Keys)))
	for i := range p.Keys {
		if large(&p.Keys[i]) {
			f.look = append(f.look, p.Keys[i].Name)
		} else {
			f.keys = append(f.keys, p.Keys[i])
		}
	}
	if f.acting == nil && len(f.keys)+len(f.look) == 0 {
		f.reached(p.Next, f.worker.scanned)
	}
	return nil
}

// next makes a group of the keys in hand and has it acted on, once the one
// before it is done: its intents are written meanwhile.
func (f *flow) next(ctx context.Context) error {
	n, limit, whole := f.reserveSome(f.keys)
	if n == 0 {
		if f.acting != nil { // what it does not take it gives back
			return f.idle()
		}
		f.allow.end(limit, whole)
		f.full = true
		return scanner.ErrStop
	}
	g, err := f.intend(f.keys[:n])
	if err != nil {
		return err
	}
	before := f.acting
	if before != nil {
		<-before.done
		if before.err != nil { // then nothing more is done here
			f.giveBack(g.keys)
			return f.idle()
		}
	}
	f.keys = f.keys[n:]
	now := &sweep{group: g, done: make(chan struct{})}
	if len(f.keys) == 0 {
		now.next, now.scanned = f.after, f.worker.scanned
	}
	f.acting = now
	go func() {
		defer close(now.done)
		defer f.recovered(&now.err)
		now.err = f.del.Sweep(ctx, g.orders, func(r *deleter.Result) { g.results = append(g.results, *r) })
	}()
	if before == nil {
		return nil
	}
	return f.swept(before)
}

// idle waits until nothing is acted on and takes in what came of it.
func (f *flow) idle() error {
	s := f.acting
	if s == nil {
		return nil
	}
	<-s.done
	f.acting = nil
	return f.swept(s)
}

// swept takes in what came of a sweep, and keeps what has to be looked at.
func (f *flow) swept(s *sweep) error {
	f.recent.trim()
	for i := range s.results {
		r := &s.results[i]
		key := &s.keys[r.Order.ID]
		// What the server saw; where keys are swept no limit of bytes is set
		// that would have to be given back as it was taken.
		key.Type, key.Elements, key.Bytes = r.Order.Type, r.Order.Elements, r.Order.Bytes
		switch {
		case r.Outcome == deleter.Gone && f.recent.has(key.Name):
			continue // it stays untold
		case took(r.Outcome):
			f.recent.add(key.Name)
		}
		f.tell(s.group, r)
	}
	f.look = append(f.look, s.left...)
	err := errors.Join(s.err, f.settle(s.group))
	if err == nil && s.next != 0 && len(f.look) == 0 {
		f.reached(s.next, s.scanned)
	}
	return err
}

// lookAt measures what a sweep left alone and acts on it as on keys that were
// named: with intents of their own.
func (f *flow) lookAt(ctx context.Context) error {
	if err := f.idle(); err != nil {
		return err
	}
	for names := range slices.Chunk(f.look, auditPage) {
		keys, err := f.scan.Measure(ctx, names)
		if err != nil {
			return err
		}
		if err := f.act(ctx, f.standing(keys, nil)); err != nil {
			return err
		}
	}
	f.look = f.look[:0]
	return nil
}
