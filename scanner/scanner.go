// Package scanner walks one shard page by page, measures the keys and keeps
// those that a rule selects. It only reads: it promises to send no command
// that writes, to ask for no value and no whole collection, and to hold no
// more than one page in memory.
package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrStop, returned by the function that Walk calls, ends the walk cleanly.
var ErrStop = errors.New("stop scanning")

// kind is what the gate knows a page of a scan by.
const kind = "scan"

// Gate paces the pages.
type Gate interface {
	// Wait blocks until so many commands may be sent.
	Wait(ctx context.Context, commands, elements int, bytes int64) error
	// Batch is how many keys the next page should have.
	Batch(kind string) int
	// Pipeline is how many commands of n may go in one pipeline.
	Pipeline(n int) int
	// Observe tells what a page of n keys took.
	Observe(kind string, n int, took time.Duration)
	// Again tells whether what failed may be asked again, after a wait: the
	// server refused it for now.
	Again(ctx context.Context, err error) bool
}

// Options say what to look for on a shard.
type Options struct {
	Rule Rule
	Can  Abilities
	// Own recognises the names that are ours: no rule selects them.
	Own func(name string) bool
	// Lean asks only what the rule's conditions need: the rest of a key stays
	// unknown. It is for walks whose act looks at the keys itself.
	Lean bool
	// Script lets one script fetch and measure a page, where bytes decide: a
	// call that the server does not interrupt, in less of its time.
	Script bool
	// Orphan recognises, in a cluster, names of slots that the node does not
	// own: they are counted and left alone. Nil outside a cluster.
	Orphan func(name string) bool
}

// Page is one step of a walk.
type Page struct {
	Keys       []Key    // what the rule selects
	Own        []string // names of ours
	Seen       int      // names on the page, orphans and ours included
	Orphans    int      // names of slots that are not the node's
	Moved      int      // keys whose slot moved away while we looked
	Touched    int      // keys whose idle time or frequency our questions reset
	Unmeasured int      // keys of a type whose bytes this server can't tell
	Refused    int      // keys that the server would not let us measure
	RefusedErr error    // its words, for one of them
	Next       uint64   // the cursor after this page; 0: this was the last
}

// Scanner walks one shard.
type Scanner struct {
	rdb  redis.Cmdable
	gate Gate
	o    Options
	plan [][]probe
	seen map[string]struct{} // names of the page in hand
}

// New returns a scanner that sends its commands through rdb, a client of
// exactly one node: a cursor means nothing to any other.
func New(rdb redis.Cmdable, gate Gate, o Options) *Scanner {
	return &Scanner{rdb: rdb, gate: gate, o: o, plan: planOf(&o), seen: map[string]struct{}{}}
}

func planOf(o *Options) [][]probe {
	if o.Lean {
		return leanPlan(&o.Rule, o.Can)
	}
	return plan(&o.Rule, o.Can)
}

// leanPlan has the probes that the rule's conditions need, one after another,
// the cheapest that decides first. A rule about names alone needs none.
func leanPlan(r *Rule, can Abilities) [][]probe {
	var out [][]probe
	bytes := r.MinBytes > 0
	if bytes && can.MemoryUsage {
		out, bytes = append(out, []probe{askBytes}), false
	}
	if len(r.Types) > 0 || r.MinElements > 0 || bytes {
		out = append(out, []probe{askType})
	}
	if r.MinElements > 0 || bytes {
		out = append(out, []probe{askLength})
	}
	if r.onTTL() {
		out = append(out, []probe{askTTL})
	}
	if out == nil {
		out = [][]probe{nil}
	}
	return out
}

// plan orders the probes of a rule: first the cheapest that decides, and for
// the keys that are left the others. MEMORY USAGE comes first where bytes
// decide, for it leaves LRU and LFU as they were and needs no TYPE.
func plan(r *Rule, can Abilities) [][]probe {
	able := func(probes ...probe) []probe {
		return slices.DeleteFunc(probes, func(p probe) bool {
			return p == askBytes && !can.MemoryUsage || p == askEncoding && !can.Encoding
		})
	}
	switch {
	case r.IdleOver > 0:
		return idlePlan(can, askIdle, able)
	case r.FreqUnder > 0:
		return idlePlan(can, askFreq, able)
	case r.MinBytes > 0 && can.MemoryUsage:
		return [][]probe{{askBytes}, able(askType, askTTL, askEncoding), {askLength}}
	case r.MinElements > 0 || r.MinBytes > 0:
		return [][]probe{{askType}, {askLength}, able(askBytes, askTTL, askEncoding)}
	case len(r.Types) > 0:
		return [][]probe{{askType}, able(askBytes, askTTL, askEncoding), {askLength}}
	case r.onTTL():
		return [][]probe{{askTTL}, able(askType, askBytes, askEncoding), {askLength}}
	}
	return [][]probe{able(askType, askBytes, askTTL, askEncoding), {askLength}}
}

// idlePlan asks for the idle time, or the frequency, before anything that would reset it, and
// nothing that would reset it of the keys that are idle: the next run could
// not tell that they were.
func idlePlan(can Abilities, first probe, able func(...probe) []probe) [][]probe {
	switch {
	case can.NoTouch:
		return [][]probe{able(first, askBytes), able(askType, askTTL, askEncoding), {askLength}}
	case can.TypeTouches:
		return [][]probe{able(first, askEncoding)}
	}
	return [][]probe{able(first, askBytes), able(askType, askTTL, askEncoding)}
}

// Walk scans the shard from a cursor (0: from the start) and calls fn with
// every page in turn, in the caller's goroutine. An error of fn ends the
// walk; ErrStop ends it without an error. The walk is complete when fn has
// accepted a page whose Next is 0, and only then does Walk return nil
// without having been stopped.
//
// Sends: SCAN with a COUNT that makes a page take the target, and per page
// one to three pipelines of probes, with Lean none to four; the SCAN of the
// next page travels with the first of them.
func (s *Scanner) Walk(ctx context.Context, from uint64, fn func(Page) error) error {
	next, err := s.first(ctx, from)
	if err != nil {
		return err
	}
	idle := 0 // pages in a row that came back with the cursor they were asked from; no server does that
	for cursor := from; ; {
		if next.next == cursor && next.next != 0 {
			if idle++; idle > 3 {
				return fmt.Errorf("scan does not move on from cursor %d; is this a proxy that answers for several servers?", cursor)
			}
		} else {
			idle = 0
		}
		cursor = next.next
		p, keys := s.sift(next)
		next, err = s.measure(ctx, &p, keys, next.took)
		if err != nil {
			return err
		}
		if err := fn(p); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
		if p.Next == 0 {
			return nil
		}
	}
}

// byScript reports whether a script fetches and measures pages.
func (s *Scanner) byScript() bool {
	return s.o.Script && s.plan[0] != nil && s.plan[0][0] == askBytes && len(s.plan[0]) == 1
}

func (s *Scanner) first(ctx context.Context, from uint64) (page, error) {
	if s.byScript() {
		return s.scripted(ctx, from)
	}
	p, _, _, err := s.insist(ctx, nil, nil, &from)
	return p, err
}

// count is the COUNT of the next page: the keys that take the target, by
// what whole pages of them took, in no more commands than a pipeline may hold.
func (s *Scanner) count() int {
	keys, probes := s.gate.Batch(kind), max(1, len(s.plan[0]))
	return max(1, s.gate.Pipeline(keys*probes)/probes)
}

// sift takes repeats, orphans and our own names out of a page and returns
// the keys whose names the rule allows.
func (s *Scanner) sift(raw page) (Page, []*Key) {
	p := Page{Next: raw.next}
	keys := make([]Key, 0, len(raw.names))
	clear(s.seen)
	for i, name := range raw.names {
		if _, again := s.seen[name]; again {
			continue
		}
		s.seen[name] = struct{}{}
		p.Seen++
		switch {
		case s.o.Orphan != nil && s.o.Orphan(name):
			p.Orphans++
		case s.o.Own(name):
			p.Own = append(p.Own, name)
		case s.o.Rule.MatchName(name):
			key := blank(name)
			if raw.bytes != nil {
				key.Bytes = raw.bytes[i]
			}
			keys = append(keys, key)
		}
	}
	if s.byScript() {
		p.Seen = raw.seen
	}
	return p, pointers(keys)
}

func blank(name string) Key {
	return Key{Name: name, Bytes: Unknown, Elements: Unknown, TTL: Unknown, Idle: Unknown, Freq: Unknown}
}

func pointers(keys []Key) []*Key {
	out := make([]*Key, len(keys))
	for i := range keys {
		out[i] = &keys[i]
	}
	return out
}

// measure asks about the keys of a page and, in the same round trip, for the
// next page.
func (s *Scanner) measure(ctx context.Context, p *Page, keys []*Key, took time.Duration) (next page, err error) {
	script := s.byScript()
	for i, probes := range s.plan {
		var cursor *uint64
		if script && i == 0 {
			continue // it has told
		}
		if !script && i == 0 && p.Next != 0 {
			cursor = &p.Next
		}
		asked := askable(keys, probes, s.o.Can)
		if len(asked)*len(probes) == 0 && cursor == nil {
			continue
		}
		got, lost, once, err := s.insist(ctx, asked, probes, cursor)
		if err != nil {
			return page{}, err
		}
		took += once
		if touches(probes, s.o.Can) {
			p.Touched += len(asked)
		}
		if cursor != nil {
			next = got
		}
		keys = s.keep(p, keys, asked, lost)
	}
	s.gate.Observe(kind, max(p.Seen, 1), took)
	p.Keys = make([]Key, 0, len(keys))
	for _, k := range keys {
		switch {
		case s.o.Rule.Selects(k):
			p.Keys = append(p.Keys, *k)
		case k.Bytes == Unknown && s.o.Rule.MinBytes > 0:
			p.Unmeasured++
		}
	}
	if script && p.Next != 0 {
		return s.scripted(ctx, p.Next)
	}
	return next, nil
}

// insist asks about keys, and again as long as the server refuses it for now
// and the gate lets us; took is what the last attempt took.
func (s *Scanner) insist(ctx context.Context, keys []*Key, probes []probe, cursor *uint64) (next page, lost []error, took time.Duration, err error) {
	for {
		if err := s.gate.Wait(ctx, len(keys)*len(probes)+1, 0, 0); err != nil {
			return page{}, nil, 0, err
		}
		start := time.Now()
		next, lost, err = ask(ctx, s.rdb, keys, probes, cursor, s.count())
		if err == nil || !s.gate.Again(ctx, err) {
			return next, lost, time.Since(start), err
		}
	}
}

// touches reports whether probes refresh the LRU or LFU clock of a key: its
// length does, and before 3.2 TYPE and PTTL do, unless the connection is in
// NO-TOUCH.
func touches(probes []probe, can Abilities) bool {
	return !can.NoTouch && slices.ContainsFunc(probes, func(p probe) bool {
		return p == askLength || can.TypeTouches && (p == askType || p == askTTL)
	})
}

// askable is the part of keys that a pipeline of probes concerns. A length
// is asked of what can be counted, and of a string only where nothing else
// tells its size: the command would refresh its LRU and LFU clock.
func askable(keys []*Key, probes []probe, can Abilities) []*Key {
	if len(probes) != 1 || probes[0] != askLength {
		return keys
	}
	out := make([]*Key, 0, len(keys))
	for _, k := range keys {
		if counts(k.Type) || k.Type == "string" && !can.MemoryUsage {
			out = append(out, k)
		}
	}
	return out
}

// keep drops from keys what is lost or already ruled out, and counts on the
// page what was refused.
func (s *Scanner) keep(p *Page, keys, asked []*Key, lost []error) []*Key {
	out := keys[:0]
	j := 0
	for _, k := range keys {
		var err error
		if j < len(asked) && asked[j] == k {
			err = lost[j]
			j++
		}
		switch {
		case errors.Is(err, errGone):
			k.Type = None
		case err != nil && moved(err):
			p.Moved++
		case err != nil:
			p.Refused++
			p.RefusedErr = err
		case !s.o.Rule.rejects(k):
			out = append(out, k)
		}
	}
	return out
}

// Measure looks at named keys whatever the rule says. One that does not exist
// comes back with the type None, one that may not be looked at without a type.
//
// Sends: OBJECT IDLETIME where the rule is about it, TYPE, PTTL, OBJECT
// ENCODING, MEMORY USAGE where there, and the length command of each key's type, in pipelines of at most a page.
func (s *Scanner) Measure(ctx context.Context, names []string) ([]Key, error) {
	m := &Scanner{rdb: s.rdb, gate: s.gate, o: Options{Can: s.o.Can}, plan: plan(&Rule{IdleOver: s.o.Rule.IdleOver, FreqUnder: s.o.Rule.FreqUnder}, s.o.Can)}
	out := make([]Key, 0, len(names))
	for len(names) > 0 {
		n := min(len(names), m.count())
		keys := make([]Key, n)
		for i, name := range names[:n] {
			keys[i] = blank(name)
		}
		names = names[n:]
		p := Page{Seen: n}
		if _, err := m.measure(ctx, &p, pointers(keys), 0); err != nil {
			return nil, err
		}
		out = append(out, keys...)
	}
	return out, nil
}
