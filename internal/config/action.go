package config

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what happens to a key that the rule selects. Exactly one field
// is set.
type Action struct {
	Delete     *Delete     `json:"delete,omitempty"`
	Trim       *Trim       `json:"trim,omitempty"`
	Expire     *Expire     `json:"expire,omitempty"`
	Defuse     *Defuse     `json:"defuse,omitempty"`
	PruneIndex *PruneIndex `json:"prune_index,omitempty"`
}

// Method says how keys are removed.
type Method string

// The methods of a delete.
const (
	MethodAuto   Method = "auto"   // UNLINK where the server has it and it is safe, else drain
	MethodUnlink Method = "unlink" // UNLINK or nothing
	MethodDrain  Method = "drain"  // set aside and remove in batches
)

// Delete is the action that removes keys.
type Delete struct {
	Method Method `json:"method,omitempty"`
	// KeepFor sets keys aside for so long before they are removed; 0: not.
	KeepFor Duration `json:"keep_for,omitempty"`
	// InPlace drains a key under its own name where nothing can be set aside.
	// By flag only.
	InPlace bool `json:"in_place,omitempty"`
	// ForceKeep keeps keys also where the server may evict them from the
	// trash. By flag only.
	ForceKeep bool `json:"force_keep,omitempty"`
	// AllowStall is how long freeing one large string may stall the server;
	// 0: 30 ms. By flag only.
	AllowStall Duration `json:"allow_stall,omitempty"`
}

// The ends of a key at which a trim keeps entries.
const (
	KeepHead    = "head"    // of a list
	KeepTail    = "tail"    // of a list
	KeepHighest = "highest" // of a sorted set, by score
	KeepLowest  = "lowest"  // of a sorted set, by score
	KeepNewest  = "newest"  // of a stream
)

// The units in which a score or a value tells a time.
const (
	UnixSeconds = "unix_seconds"
	UnixMillis  = "unix_millis"
)

// Trim is the action that shortens keys: to a number of entries, or by what
// is older than a time.
type Trim struct {
	Keep      *int64   `json:"keep,omitempty"`       // entries to keep; 0 removes the key; nil: by age
	KeepEnd   string   `json:"keep_end,omitempty"`   // where; "" is newest where only streams are selected
	OlderThan Duration `json:"older_than,omitempty"` // 0: by number
	Score     string   `json:"score,omitempty"`      // the unit of a sorted set's scores; "" trims streams, by their ids
	// ForceUnacknowledged also removes entries of a stream that one of its
	// groups has not acknowledged.
	ForceUnacknowledged bool `json:"force_unacknowledged,omitempty"`
}

// Expire is the action that gives keys a TTL.
type Expire struct {
	TTL    Duration `json:"ttl,omitempty"`
	Jitter Percent  `json:"jitter,omitempty"` // of TTL, at most so much longer, by the key's name; 0: none
}

// Defuse is the action that sets keys aside just before they expire.
type Defuse struct {
	Lead Duration `json:"lead,omitempty"` // before the expiry
}

// DefaultLead is how long before its expiry a key is defused.
const DefaultLead = Duration(2e9)

// PruneIndex is the action that removes old entries of an index, and the keys
// that they stand for.
type PruneIndex struct {
	OlderThan Duration `json:"older_than,omitempty"`
	Value     string   `json:"value,omitempty"` // the unit of a hash's values, a sorted set's scores
	Also      []string `json:"also,omitempty"`  // names of keys that go with an entry: "client:%entry%"
}

// EntryMark stands, in a template of Also, for the name of an index entry.
const EntryMark = "%entry%"

// Kinds are the names of the actions that are set.
func (a Action) Kinds() []string {
	var names []string
	for _, one := range []struct {
		name string
		set  bool
	}{
		{"delete", a.Delete != nil}, {"trim", a.Trim != nil}, {"expire", a.Expire != nil},
		{"defuse", a.Defuse != nil}, {"prune_index", a.PruneIndex != nil},
	} {
		if one.set {
			names = append(names, one.name)
		}
	}
	return names
}

// Kind is the name of the action that is set; "" if none is.
func (a Action) Kind() string {
	if names := a.Kinds(); len(names) > 0 {
		return names[0]
	}
	return ""
}

// Problems checks the action, for keys that a rule selects. Paths are its
// fields as a file writes them.
func (a Action) Problems(s Select) []Problem {
	switch {
	case a.Delete != nil:
		return under("delete", a.Delete.problems())
	case a.Trim != nil:
		return under("trim", a.Trim.problems(s.Types))
	case a.Expire != nil:
		return under("expire", a.Expire.problems())
	case a.Defuse != nil:
		return under("defuse", a.Defuse.problems(s))
	case a.PruneIndex != nil:
		return under("prune_index", a.PruneIndex.problems(s))
	}
	return nil
}

func (d *Delete) problems() []Problem {
	var ps []Problem
	if !slices.Contains([]Method{MethodAuto, MethodUnlink, MethodDrain}, d.Method) {
		ps = append(ps, Problem{Path: "method", Message: fmt.Sprintf("unknown method %s; write auto, unlink or drain", shown(string(d.Method)))})
	}
	if d.InPlace && d.KeepFor > 0 {
		ps = append(ps, Problem{Path: "keep_for", Message: "what is removed in place can't be kept; write one of the two"})
	}
	return append(ps, negative("keep_for", d.KeepFor, d.KeepFor < 0)...)
}

// Type is the type of the keys that the trim can shorten, given the types
// that the rule selects; "" if it doesn't say.
func (t *Trim) Type(types []string) string {
	onlyStreams := len(types) == 1 && types[0] == "stream"
	switch {
	case t.KeepEnd == KeepHead, t.KeepEnd == KeepTail:
		return "list"
	case t.KeepEnd == KeepHighest, t.KeepEnd == KeepLowest, t.OlderThan > 0 && t.Score != "":
		return "zset"
	case t.KeepEnd == KeepNewest, t.OlderThan > 0, onlyStreams:
		return "stream"
	}
	return ""
}

func (t *Trim) problems(types []string) []Problem {
	var ps []Problem
	add := func(path, format string, args ...any) {
		ps = append(ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	const ends = "head or tail for lists, highest or lowest for sorted sets, newest for streams"
	switch {
	case t.Keep == nil && t.OlderThan == 0:
		add("", "nothing says what to keep; write how many entries and at which keep_end, or older_than")
		return ps
	case t.Keep != nil && t.OlderThan != 0:
		add("", "keep and older_than both say what to keep; write one of them")
		return ps
	case t.Keep != nil && *t.Keep < 0:
		add("keep", "%d is negative; write how many entries stay", *t.Keep)
	case t.OlderThan < 0:
		add("older_than", "%s is negative; write an age such as 24h", t.OlderThan)
	case t.OlderThan > 0 && t.KeepEnd != "":
		add("keep_end", "goes with keep; what is older_than is no end. Delete one of them")
	case t.Keep != nil && t.Score != "":
		add("score", "goes with older_than; write keep_end: highest or lowest to keep by rank")
	}
	if t.KeepEnd != "" && !slices.Contains([]string{KeepHead, KeepTail, KeepHighest, KeepLowest, KeepNewest}, t.KeepEnd) {
		add("keep_end", "unknown end %s; write %s", shown(t.KeepEnd), ends)
	}
	ps = append(ps, unitProblem("score", t.Score, true)...)
	if len(ps) > 0 {
		return ps
	}
	typ := t.Type(types)
	if typ == "" {
		add("keep_end", "missing: which end is kept? Write %s", ends)
		return ps
	}
	for _, other := range types {
		if other != typ {
			add("", "this trims keys of type %s, and the rule also selects %s; write a job of its own for each", typ, other)
		}
	}
	switch {
	case t.ForceUnacknowledged && typ != "stream":
		add("force_unacknowledged", "is for streams; delete it")
	case t.Keep != nil && *t.Keep == 0 && typ == "stream" && !t.ForceUnacknowledged:
		add("keep", "0 removes streams whole, with what their groups have not acknowledged; write a delete, or force it")
	}
	return ps
}

func unitProblem(path, unit string, optional bool) []Problem {
	switch {
	case unit == UnixSeconds, unit == UnixMillis, unit == "" && optional:
		return nil
	case unit == "":
		return []Problem{{Path: path, Message: "missing; write unix_seconds or unix_millis"}}
	}
	return []Problem{{Path: path, Message: fmt.Sprintf("unknown unit %s; write unix_seconds or unix_millis", shown(unit))}}
}

func (e *Expire) problems() []Problem {
	var ps []Problem
	if e.TTL <= 0 {
		ps = append(ps, Problem{Path: "ttl", Message: "missing, or no time; write how long keys are to live, such as 30d"})
	}
	if e.Jitter < 0 || e.Jitter > 100 {
		ps = append(ps, Problem{Path: "jitter", Message: e.Jitter.String() + " is out of range; write up to 100%"})
	}
	return ps
}

func (d *Defuse) problems(s Select) []Problem {
	var ps []Problem
	if s.TTLUnder == 0 {
		ps = append(ps, Problem{Message: "needs a rule on how soon keys expire, which is how long the run waits for them; write ttl_under: 1h among its conditions"})
	}
	if s.TTLUnder > 0 && d.Lead >= s.TTLUnder {
		ps = append(ps, Problem{Path: "lead", Message: fmt.Sprintf("%s is not less than ttl_under, %s; write a shorter one", d.Lead, s.TTLUnder)})
	}
	if d.Lead <= 0 {
		ps = append(ps, Problem{Path: "lead", Message: fmt.Sprintf("%s is no time before the expiry; write one such as 2s", d.Lead)})
	}
	return ps
}

func (p *PruneIndex) problems(s Select) []Problem {
	var ps []Problem
	if s.MinElements > 0 || s.MinBytes > 0 || s.NoTTL || s.TTLUnder > 0 || s.TTLOver > 0 || s.IdleOver > 0 || s.FreqUnder > 0 {
		ps = append(ps, Problem{Message: "an index is selected by its name and type only; delete the other conditions"})
	}
	if p.OlderThan <= 0 {
		ps = append(ps, Problem{Path: "older_than", Message: "missing; write how old an entry must be, such as 14d"})
	}
	ps = append(ps, unitProblem("value", p.Value, false)...)
	for i, template := range p.Also {
		at := strings.Index(template, EntryMark)
		switch {
		case at < 0:
			ps = append(ps, Problem{Path: index("also", i), Message: fmt.Sprintf("%s has no %s, and would name one key for all entries; write one such as client:%s", shown(template), EntryMark, EntryMark)})
		case at == 0:
			ps = append(ps, Problem{Path: index("also", i), Message: fmt.Sprintf("%s begins with %s, and would let entries name any key; begin it with a literal prefix", shown(template), EntryMark)})
		}
	}
	for _, typ := range s.Types {
		if typ != "hash" && typ != "zset" {
			ps = append(ps, Problem{Message: fmt.Sprintf("an index is a hash or a sorted set, and the rule also selects %s", typ)})
		}
	}
	return ps
}
