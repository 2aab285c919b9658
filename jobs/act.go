package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/scanner"
)

// act turns findings into orders and has them carried out: reserved against
// the limits, intents on disk, then the act, then the results. It returns
// scanner.ErrStop when a limit ends the shard.
func (k *worker) act(ctx context.Context, keys []scanner.Key) error {
	if k.defuse != nil {
		k.defuse.watch(keys)
		return ctx.Err()
	}
	for len(keys) > 0 {
		n, limit, whole := k.reserveSome(keys)
		// A limit that leaves room for some is asked again after them: what
		// they did not take they gave back.
		if n == 0 {
			k.allow.end(limit, whole)
			k.full = true
			return scanner.ErrStop
		}
		if err := k.actOn(ctx, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return ctx.Err()
}

// maxPutOff bounds the keys in moving slots that are tried again at the end.
const maxPutOff = 10_000

// again acts on the keys that were put off, for the last time.
func (k *worker) again(ctx context.Context) error {
	keys := k.putOff
	k.putOff, k.last = nil, true
	if err := k.act(ctx, keys); !errors.Is(err, scanner.ErrStop) {
		return err
	}
	return nil
}

func (k *worker) actOn(ctx context.Context, keys []scanner.Key) error {
	g, err := k.intend(keys)
	if err != nil {
		return err
	}
	err = k.del.Act(ctx, g.orders, func(r deleter.Result) {
		if r.Moving && !k.last && len(k.putOff) < maxPutOff {
			k.putOff = append(k.putOff, g.keys[r.Order.ID]) // not told of, it is given back
			return
		}
		k.tell(g, &r)
		g.results = append(g.results, r)
	})
	return errors.Join(err, k.settle(g))
}

// reserveSome reserves for the first keys that fit into a group, and says
// which limit is in the way of more.
func (k *worker) reserveSome(keys []scanner.Key) (n int, limit string, whole bool) {
	for n < min(len(keys), auditPage) {
		if limit, whole = k.reserve(&keys[n]); limit != "" {
			break
		}
		n++
	}
	return n, limit, whole
}

// group is what shares one write and one sync of the audit.
type group struct {
	keys    []scanner.Key
	orders  []deleter.Order
	results []deleter.Result
	told    []bool
	left    []string // that a sweep left alone
}

// intend makes orders of keys and puts on record that they are about to be
// carried out.
func (k *worker) intend(keys []scanner.Key) (*group, error) {
	g := k.spare
	if k.spare = nil; g == nil {
		g = &group{}
	}
	g.keys, g.left = keys, nil
	g.orders, g.results = g.orders[:0], g.results[:0]
	g.told = append(g.told[:0], make([]bool, len(keys))...)
	for i := range keys {
		o := k.order(&keys[i])
		o.ID = i
		g.orders = append(g.orders, o)
	}
	if k.Mode == Execute {
		if err := k.Audit.Intents(k.intents(g.orders)); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// tell takes in what became of one key of a group.
func (k *worker) tell(g *group, r *deleter.Result) {
	key := &g.keys[r.Order.ID]
	g.told[r.Order.ID] = true
	if !took(r.Outcome) {
		k.release(key)
	}
	if r.Outcome == deleter.Large {
		g.left = append(g.left, key.Name)
		return
	}
	k.outcome(r, key)
}

// settle ends a group: what nobody told of was not acted on, and the results
// go on record.
func (k *worker) settle(g *group) (err error) {
	for i := range g.keys {
		if !g.told[i] {
			k.release(&g.keys[i])
		}
	}
	if k.Mode == Execute {
		err = k.Audit.Results(k.results(g.results))
	}
	g.keys, k.spare = nil, g
	return err
}

// giveBack releases what was reserved for keys that are not acted on.
func (k *worker) giveBack(keys []scanner.Key) {
	for i := range keys {
		k.release(&keys[i])
	}
}

// The numbers that a scan does not know are the deleter's unknown ones too.
const _ = uint(scanner.Unknown-deleter.Unknown) + uint(deleter.Unknown-scanner.Unknown)

// took reports whether an outcome used up what was reserved for it. What
// failed may have happened all the same.
func took(o deleter.Outcome) bool {
	switch o {
	case deleter.Gone, deleter.Changed, deleter.Protected, deleter.Large:
		return false
	}
	return true
}

func (k *worker) order(key *scanner.Key) deleter.Order {
	method := config.MethodAuto
	if d := k.Job.Action.Delete; d != nil && d.Method != "" {
		method = d.Method
	}
	o := deleter.Order{
		Key: key.Name, Type: key.Type, Encoding: key.Encoding, Elements: key.Elements, Bytes: key.Bytes,
		Method: deleter.Method(method), TTL: key.TTL, Keep: k.keepFor(), AllowStall: k.allowStall(), InPlace: k.inPlace(),
		Evidence: deleter.Evidence{
			MinElements: k.rule.MinElements, MinBytes: k.rule.MinBytes, NoTTL: k.rule.NoTTL,
			TTLUnder: k.rule.TTLUnder, TTLOver: k.rule.TTLOver, Lasting: k.rule.Lasting, IdleOver: k.rule.IdleOver, FreqUnder: k.rule.FreqUnder,
		},
	}
	if o.Type == "" {
		o.Evidence.Types = strings.Join(k.rule.Types, ",")
	}
	switch a := k.Job.Action; {
	case a.Trim != nil:
		o.Trim = trimOf(a.Trim, k.Job.Select.Types, k.clock())
	case a.Expire != nil:
		o.ExpireAt = k.clock().Add(ttlOf(a.Expire, key.Name))
	}
	return o
}

// cost is the bytes that acting on a key may release, as far as is known.
func (k *worker) cost(key *scanner.Key) int64 {
	bytes := max(0, key.Bytes)
	switch a := k.Job.Action; {
	case a.Expire != nil:
		return 0
	case a.Trim != nil && a.Trim.Keep != nil && key.Elements > *a.Trim.Keep:
		return int64(float64(bytes) * float64(key.Elements-*a.Trim.Keep) / float64(key.Elements))
	}
	return bytes
}

// reserve takes a key's part of the limits before the act, or says which
// limit is in the way and whether it is one of the whole run.
func (k *worker) reserve(key *scanner.Key) (limit string, whole bool) {
	if p := k.Job.Limits.MaxPercent; p > 0 && k.acted >= percentOf(p, k.shard.Keys-k.trash) {
		return fmt.Sprintf("max_percent: %g%% of %d keys on %s", p, k.shard.Keys-k.trash, k.shard.ID), false
	}
	if limit = k.allow.reserve(k.cost(key)); limit == "" {
		k.acted++
	}
	return limit, true
}

// percentOf is p percent of n, rounded up. What a float is off by, 1e-16 of
// it, is not taken for a part of a key.
func percentOf(p float64, n int64) int64 {
	return int64(math.Ceil(float64(n) * p / 100 * (1 - 1e-12)))
}

// unlimited says which limit could not be kept on this shard, for what it
// counts is not known here.
func (k *worker) unlimited() error {
	l := k.Job.Limits
	switch {
	case k.Mode == Scan:
	case l.MaxPercent > 0 && k.shard.Keys < 0:
		return errors.New("the limit max_percent can't be kept: the server does not tell how many keys there are (DBSIZE)")
	case l.MaxBytes > 0 && !k.shard.Can.MemoryUsage:
		return errors.New("the limit max_bytes can't be kept: the server has no MEMORY USAGE for us; use max_keys")
	}
	return nil
}

// powerless says why no key at all could be acted on, so that this is one
// error and not one for each key.
func (k *worker) powerless() error {
	can := k.shard.Can
	if k.Mode != Execute || can.Script || can.Watch || slices.Contains(k.shard.Unknown, "watch") {
		return nil
	}
	return fmt.Errorf("nothing can be removed: the server has neither scripts nor WATCH, MULTI and EXEC for us (%s); "+
		"keyjanitor check shows the rights that are needed", k.shard.Why["watch"])
}

func (k *worker) release(key *scanner.Key) {
	k.allow.release(k.cost(key))
	k.acted--
}

// finding is a key as the report shows it.
func (k *worker) finding(key *scanner.Key) Finding {
	f := Finding{
		Name: key.Name, Shard: k.shard.ID, Addr: k.shard.Addr, DB: k.shard.DB, Type: key.Type, Encoding: key.Encoding,
		Bytes: optional(key.Bytes), Elements: optional(key.Elements), TTLMillis: optional(key.TTL),
		IdleSeconds: optional(key.Idle), Freq: optional(key.Freq),
	}
	if f.Type == scanner.None {
		f.Type = ""
	}
	if k.shard.Server.Cluster {
		slot := topology.Slot(key.Name)
		f.Slot = &slot
	}
	return f
}

// judge adds to a finding what became of it.
func (k *worker) judge(f *Finding, r *deleter.Result) {
	f.Outcome, f.Method, f.Batches, f.Reason = string(r.Outcome), string(r.Method), r.Batches, r.Reason
	f.Removed = r.Elements
	if !r.Due.IsZero() {
		due := r.Due.UTC()
		f.State, f.Due = "kept", &due
	}
	if r.Took > 0 {
		took, slowest := millis(r.Took), millis(r.Slowest)
		f.TookMillis, f.SlowestMillis = &took, &slowest
	}
}

// glance is a finding that nobody keeps.
type glance struct {
	f                    Finding
	bytes, elements, ttl int64
}

// of fills a glance, as far as tables and ranks look at it.
func (g *glance) of(r *deleter.Result, key *scanner.Key) *Finding {
	at := func(p *int64, n int64) *int64 {
		if *p = n; n == deleter.Unknown {
			return nil
		}
		return p
	}
	g.f = Finding{
		Name: key.Name, Type: key.Type, Outcome: string(r.Outcome), Method: string(r.Method),
		Bytes: at(&g.bytes, key.Bytes), Elements: at(&g.elements, key.Elements), TTLMillis: at(&g.ttl, key.TTL),
	}
	if g.f.Type == scanner.None {
		g.f.Type = ""
	}
	return &g.f
}

// outcome counts and tells what became of a key. Of millions of small keys
// only a few are told one by one.
func (k *worker) outcome(r *deleter.Result, key *scanner.Key) {
	k.count(r)
	if k.settled != nil {
		k.settled(r)
	}
	if k.Stream == nil {
		if g := k.glance.of(r, key); !k.tally.wants(g) {
			k.tally.count(g)
			return
		}
	}
	f := k.finding(key)
	k.judge(&f, r)
	k.found(f)
}

// found takes a finding into the shard's tables and streams it.
func (k *worker) found(f Finding) {
	k.tally.add(f)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.emit(f)
}

func (k *worker) count(r *deleter.Result) {
	if n := k.outcomes.of(r.Outcome); n != nil {
		*n++
	}
	if r.Outcome == deleter.Trashed && r.Method != deleter.Keep {
		k.undrained++
	}
	k.elements += r.Elements
	k.released += r.Bytes
	if r.Method != deleter.Drain && r.Method != deleter.Cut && r.Method != deleter.InPlace { // those were counted as they went
		k.Progress.Elements.Add(r.Elements)
	}
	if took(r.Outcome) {
		k.Progress.KeysActed.Add(1)
	}
}

// of is the counter of an outcome.
func (o *Outcomes) of(what deleter.Outcome) *int64 {
	switch what {
	case deleter.Unlinked:
		return &o.Unlinked
	case deleter.Deleted:
		return &o.Deleted
	case deleter.Drained:
		return &o.Drained
	case deleter.Trashed:
		return &o.Trashed
	case deleter.Trimmed:
		return &o.Trimmed
	case deleter.Expired:
		return &o.Expired
	case deleter.Finished:
		return &o.Finished
	case deleter.Gone:
		return &o.Gone
	case deleter.Changed:
		return &o.Changed
	case deleter.Protected:
		return &o.Protected
	case deleter.Restored:
		return &o.Restored
	case deleter.Failed:
		return &o.Failed
	case deleter.WouldAct:
		return &o.WouldAct
	}
	return nil
}

// closeInto adds the shard's part to a run's summary.
func (k *worker) closeInto(s *Summary, t *tally) {
	part := ShardSummary{
		ID: k.shard.ID, Addr: k.shard.Addr, DB: k.shard.DB, Role: k.shard.Server.Role,
		KeysScanned: k.scanned, KeysMatched: k.tally.matched, BytesMatched: k.tally.bytes,
	}
	if k.shard.Err == nil && k.shard.Keys >= 0 {
		part.KeysTotal = &k.shard.Keys
	}
	if k.shard.Server.Version != "" {
		part.Server = k.shard.Server.String()
	}
	if k.err != nil {
		part.Error = k.err.Error()
	}
	s.Shards = append(s.Shards, part)
	s.KeysScanned += k.scanned
	k.actsInto(s, t)
	k.holdsInto(s)
	note := func(n int64, format string) {
		if n > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("shard %s: "+format, k.shard.ID, n))
		}
	}
	note(k.orphans, "%d keys are in slots that the node does not own; they were left alone")
	note(k.unmeasured, "the bytes of %d keys are unknown, for the server has no MEMORY USAGE for us; only strings were measured, by STRLEN")
	if k.Mode == Scan {
		note(k.touched, "the idle time (or frequency) of %d keys was reset by asking for their length, which the report shows: the server has no CLIENT NO-TOUCH")
	}
	note(k.undrained, "keys moved to the trash and not drained to the end: %d; the next run finishes them")
	note(k.waiting, "%d keys of the trash wait to be finished by a run that executes")
}

// actsInto adds to a run's summary what became of the shard's keys.
func (k *worker) actsInto(s *Summary, t *tally) {
	t.merge(k.tally)
	if a := s.ActSummary; a != nil {
		a.Outcomes.add(&k.outcomes)
		a.ElementsRemoved += k.elements
		a.BytesReleased += k.released
	}
}

func (o *Outcomes) add(p *Outcomes) {
	o.Unlinked += p.Unlinked
	o.Deleted += p.Deleted
	o.Drained += p.Drained
	o.Trashed += p.Trashed
	o.Trimmed += p.Trimmed
	o.Expired += p.Expired
	o.Finished += p.Finished
	o.Restored += p.Restored
	o.Gone += p.Gone
	o.Changed += p.Changed
	o.Protected += p.Protected
	o.Failed += p.Failed
	o.WouldAct += p.WouldAct
}
