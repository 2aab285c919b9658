package config

import (
	"fmt"
	"slices"
	"strings"
)

// OnlyAnything says whether a glob is made of * and ? alone with at least one
// *, and so selects about every key there is.
func OnlyAnything(pattern string) bool {
	return strings.Contains(pattern, "*") && strings.Trim(pattern, "*?") == ""
}

// Unconditional says whether the rule has no condition at all. The consent
// AllKeys counts as one: it says that every key is meant.
func (s Select) Unconditional() bool {
	return len(s.Match)+len(s.Prefix)+len(s.Exclude)+len(s.Types) == 0 &&
		s.MinElements == 0 && s.MinBytes == 0 && !s.NoTTL && s.TTLUnder == 0 && s.TTLOver == 0 && s.IdleOver == 0 && s.FreqUnder == 0 && !s.AllKeys
}

// Problems checks the rule; paths are names of its fields as a file writes
// them, and empty for the rule as a whole. With acting the rule decides what
// is destroyed, and one that names no keys needs AllKeys.
func (s Select) Problems(acting bool) []Problem {
	var ps []Problem
	add := func(path, format string, args ...any) {
		ps = append(ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	ps = append(ps, emptyEntries("match", s.Match)...)
	ps = append(ps, emptyEntries("exclude", s.Exclude)...)
	for i, prefix := range s.Prefix {
		if prefix == "" {
			add(index("prefix", i), "an empty prefix selects every key; delete it, or set all_keys")
		}
	}
	if acting && !s.AllKeys {
		for i, glob := range s.Match {
			if OnlyAnything(glob) { // entries are ORed: one of these is enough
				add(index("match", i), "%s selects every key; name the keys, or set all_keys", shown(glob))
			}
		}
		if len(s.Match)+len(s.Prefix) == 0 {
			add("", "acts on keys of any name; name the keys in match or prefix, or set all_keys")
		}
	}
	for i, glob := range s.Exclude {
		if OnlyAnything(glob) {
			add(index("exclude", i), "%s takes every key out again; delete it", shown(glob))
		}
	}
	for i, name := range s.Types {
		if message := typeProblem(name); message != "" {
			add(index("types", i), "%s", message)
		}
	}
	if s.MinElements < 0 {
		add("min_elements", "%d is negative; write 0 for no condition", s.MinElements)
	}
	if s.MinBytes < 0 {
		add("min_bytes", "%s is negative; write 0 for no condition", s.MinBytes)
	}
	if s.IdleOver < 0 {
		add("idle_over", "%s is negative; write 0 for no condition", s.IdleOver)
	}
	switch {
	case s.FreqUnder < 0 || s.FreqUnder > 255:
		add("freq_under", "%d is out of range; write 1 to 255, or 0 for no condition", s.FreqUnder)
	case s.FreqUnder > 0 && s.IdleOver > 0:
		add("freq_under", "a server keeps idle times or frequencies, never both; delete one of freq_under and idle_over")
	}
	if s.IdlePrimaryOnly && s.IdleOver == 0 {
		add("idle_primary_only", "says how idle_over is judged; set that too, or delete this")
	}
	return append(ps, s.ttlProblems()...)
}

func (s Select) ttlProblems() []Problem {
	var ps []Problem
	for _, f := range []struct {
		name  string
		value Duration
	}{{"ttl_under", s.TTLUnder}, {"ttl_over", s.TTLOver}} {
		switch {
		case f.value < 0:
			ps = append(ps, Problem{Path: f.name, Message: f.value.String() + " is negative; write 0 for no condition"})
		case f.value > 0 && s.NoTTL:
			ps = append(ps, Problem{Path: f.name, Message: "no key without a TTL has one; set no_ttl or " + f.name + ", not both"})
		}
	}
	if s.TTLOver > 0 && s.TTLUnder > 0 && s.TTLUnder <= s.TTLOver {
		ps = append(ps, Problem{Path: "ttl_under", Message: fmt.Sprintf(
			"no TTL is under %s and over %s; write a ttl_under that is longer than ttl_over", s.TTLUnder, s.TTLOver)})
	}
	return ps
}

// types are the names that TYPE answers for what every server has.
var types = []string{"string", "list", "set", "zset", "hash", "stream"}

// typeProblem refuses what no server answers to TYPE, for a filter on it
// would silently select nothing. Names of module types have exactly nine
// characters of A-Z a-z 0-9 - _; nearly all have an upper-case letter or a
// dash, and vectorset comes with Redis 8.
func typeProblem(name string) string {
	if slices.Contains(types, name) || name == "vectorset" {
		return ""
	}
	inner := strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
	marked := strings.ContainsAny(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-")
	if len(name) == 9 && inner && marked {
		return ""
	}
	if near := nearest(name, types); near != "" {
		return fmt.Sprintf("unknown type %s; did you mean %q?", shown(name), near)
	}
	return fmt.Sprintf("unknown type %s; write %s, or the nine characters of a module type such as ReJSON-RL",
		shown(name), strings.Join(types, ", "))
}

func emptyEntries(field string, globs []string) []Problem {
	var ps []Problem
	for i, glob := range globs {
		if glob == "" {
			ps = append(ps, Problem{Path: index(field, i), Message: "an empty pattern; delete it"})
		}
	}
	return ps
}

func index(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
