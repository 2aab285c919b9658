package scanner

import (
	"slices"
	"strings"
	"time"
)

// Unknown stands for a number that was not asked for or could not be had.
const Unknown int64 = -1 << 62

// NoTTL is the TTL of a key that does not expire.
const NoTTL int64 = -1

// None is what TYPE answers for a key that does not exist.
const None = "none"

// Key is one key as a scan saw it. Any of the numbers may be Unknown.
type Key struct {
	Name     string
	Type     string // "" unknown
	Encoding string // "" unknown
	Bytes    int64  // as MEMORY USAGE estimates
	Elements int64  // of a list, hash, set, sorted set or stream; a string has none
	TTL      int64  // milliseconds, or NoTTL
	Idle     int64  // seconds since it was last read or written to
	Freq     int64  // the LFU counter, 0 to 255
}

// Rule is what a key must meet to be selected: every condition that is set.
// Within Match, Prefix and Types one entry is enough.
type Rule struct {
	Match       []string // globs
	Prefix      []string // literal
	Exclude     []string // globs
	Types       []string
	MinElements int64
	MinBytes    int64
	NoTTL       bool
	TTLUnder    time.Duration
	TTLOver     time.Duration
	Lasting     time.Duration // lives longer, or forever
	IdleOver    time.Duration // in whole seconds
	FreqUnder   int64         // by the LFU counter
	// Deferred lets a key pass of which something is unknown that only a
	// command which resets its idle time could tell: the act judges it.
	Deferred bool
}

// MatchName reports whether a name alone does not speak against the key.
func (r *Rule) MatchName(name string) bool {
	matches := func(p string) bool { return Glob(p, name) }
	begins := func(p string) bool { return strings.HasPrefix(name, p) }
	return (len(r.Prefix) == 0 || slices.ContainsFunc(r.Prefix, begins)) &&
		(len(r.Match) == 0 || slices.ContainsFunc(r.Match, matches)) &&
		!slices.ContainsFunc(r.Exclude, matches)
}

// rejects reports whether what is known of k already rules it out. What is
// unknown does not.
func (r *Rule) rejects(k *Key) bool {
	if k.Type != "" && len(r.Types) > 0 && !slices.Contains(r.Types, k.Type) {
		return true
	}
	if k.Type != "" && r.MinElements > 0 && !counts(k.Type) {
		return true
	}
	if k.Elements != Unknown && k.Elements < r.MinElements || k.Bytes != Unknown && k.Bytes < r.MinBytes {
		return true
	}
	if r.IdleOver > 0 && k.Idle != Unknown && k.Idle < int64((r.IdleOver+time.Second-1)/time.Second) {
		return true
	}
	if r.FreqUnder > 0 && k.Freq != Unknown && k.Freq >= r.FreqUnder {
		return true
	}
	if k.TTL == Unknown {
		return false
	}
	if k.TTL == NoTTL {
		return r.TTLUnder > 0 || r.TTLOver > 0
	}
	return r.NoTTL ||
		r.TTLUnder > 0 && k.TTL >= r.TTLUnder.Milliseconds() ||
		r.TTLOver > 0 && k.TTL <= r.TTLOver.Milliseconds() ||
		r.Lasting > 0 && k.TTL <= r.Lasting.Milliseconds()
}

// Selects reports whether k meets the whole rule. A condition on something
// unknown is not met.
func (r *Rule) Selects(k *Key) bool {
	known := (r.MinBytes == 0 || k.Bytes != Unknown) && (r.IdleOver == 0 || k.Idle != Unknown) &&
		(r.FreqUnder == 0 || k.Freq != Unknown)
	if !r.Deferred {
		known = known && (len(r.Types) == 0 || k.Type != "") &&
			(r.MinElements == 0 || k.Elements != Unknown) &&
			(!r.onTTL() || k.TTL != Unknown)
	}
	return known && r.MatchName(k.Name) && !r.rejects(k)
}

func (r *Rule) onTTL() bool { return r.NoTTL || r.TTLUnder > 0 || r.TTLOver > 0 || r.Lasting > 0 }

// counts reports whether a type has elements that a command can count.
func counts(typ string) bool {
	switch typ {
	case "list", "hash", "set", "zset", "stream":
		return true
	}
	return false
}
