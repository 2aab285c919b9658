package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// rule is a selection, as the tests understand it: what the binary is told,
// and whether a key of the model meets it.
type rule struct {
	prefix, match, exclude []string
	types                  []string
	minElements, minBytes  int64
	noTTL                  bool
	ttlUnder, ttlOver      time.Duration
}

// What the rules of the tests ask for. Lengths are exact; bytes and TTLs are
// kept far from these by everyone who writes.
const (
	fewElements  = 20
	manyElements = 1050 // more than the 1000 that are removed in one piece
	shortString  = 100
	longString   = 20_000
	betweenBytes = 10_240
	betweenTTL   = time.Hour
	shortTTL     = 10 * time.Minute
	longTTL      = 10 * time.Hour
)

// conditions are what a key can stop meeting, each with all it needs.
var conditions = []func(*rule){
	func(r *rule) { r.minElements = fewElements },
	func(r *rule) { r.ttlUnder = betweenTTL },
	func(r *rule) { r.minElements = manyElements },
	func(r *rule) { r.noTTL = true },
	func(r *rule) { r.minBytes, r.types = betweenBytes, []string{"string"} },
	func(r *rule) { r.ttlOver, r.minElements = betweenTTL, fewElements },
	func(*rule) {}, // the name and the type alone
	func(r *rule) { r.noTTL, r.minElements = true, manyElements },
}

// onTTL is the condition that a PERSIST takes away, unseen by some servers.
const onTTL = 1

// randomRule has the n-th condition, and some about names and types.
func randomRule(rnd *rand.Rand, n int) rule {
	var r rule
	conditions[n%len(conditions)](&r)
	switch rnd.IntN(4) {
	case 0:
		r.prefix = []string{"a:"}
	case 1:
		r.prefix = []string{"a:", "b:"}
	case 2:
		r.match = []string{"*:{1*", "a:*"}
	case 3:
		if len(r.types) == 0 && r.minElements == 0 && !r.noTTL && r.ttlUnder == 0 && r.ttlOver == 0 {
			r.prefix = []string{"b:"} // a rule without any condition is none
		}
	}
	if rnd.IntN(2) == 0 {
		r.exclude = []string{"*}:3"}
	}
	if len(r.types) == 0 && rnd.IntN(3) == 0 {
		r.types = []string{"hash", "list", "zset"}
		if r.minElements == 0 {
			r.types = []string{"string", "set", "list"}
		}
	}
	return r
}

// flags are the rule in the words of the command line.
func (r rule) flags() []string {
	var out []string
	each := func(flag string, values []string) {
		for _, v := range values {
			out = append(out, flag, v)
		}
	}
	each("--prefix", r.prefix)
	each("--match", r.match)
	each("--exclude", r.exclude)
	each("--type", r.types)
	if r.minElements > 0 {
		out = append(out, "--min-elements", fmt.Sprint(r.minElements))
	}
	if r.minBytes > 0 {
		out = append(out, "--min-bytes", fmt.Sprint(r.minBytes, "B"))
	}
	if r.noTTL {
		out = append(out, "--no-ttl")
	}
	if r.ttlUnder > 0 {
		out = append(out, "--ttl-under", r.ttlUnder.String())
	}
	if r.ttlOver > 0 {
		out = append(out, "--ttl-over", r.ttlOver.String())
	}
	return out
}

// holds says whether a key meets the rule as the model knows it.
func (r rule) holds(name string, e *entry) bool {
	begins := func(p string) bool { return strings.HasPrefix(name, p) }
	matches := func(p string) bool { return starMatch(p, name) }
	switch {
	case e == nil,
		len(r.prefix) > 0 && !slices.ContainsFunc(r.prefix, begins),
		len(r.match) > 0 && !slices.ContainsFunc(r.match, matches),
		slices.ContainsFunc(r.exclude, matches),
		len(r.types) > 0 && !slices.Contains(r.types, e.kind),
		e.elements() < r.minElements,
		r.minBytes > 0 && (e.kind != "string" || e.n < r.minBytes),
		r.noTTL && e.expires,
		r.ttlUnder > 0 && (!e.expires || e.ttl >= r.ttlUnder),
		r.ttlOver > 0 && (!e.expires || e.ttl <= r.ttlOver):
		return false
	}
	return true
}

// starMatch matches a pattern in which only the star is special.
func starMatch(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, p)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
