package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// cut says which command of a run loses its reply.
type cut struct {
	verb  string
	nth   int // of those that are called so
	meets fate
	seen  int
	made  bool
}

func (c *cut) String() string { return fmt.Sprintf("cut at %s number %d", c.verb, c.nth) }

// acting are the commands whose replies tell what became of a key; of them
// there are few, and most cuts. What stands in a MULTI tells less than EXEC.
var acting = []string{"evalsha", "exec", "exec", "exec", "renamenx", "unlink", "del", "hdel", "srem", "ltrim", "zremrangebyscore", "zremrangebyrank"}

// probing is how many of them come before the scan, to see whether they may.
var probing = map[string]int{"exec": 1, "renamenx": 1, "unlink": 1}

func (c *counted) pickCut(sent []string) *cut {
	meets := []fate{unanswered, unanswered, lost}[c.rnd.IntN(3)]
	counts := map[string]int{}
	for _, name := range sent {
		counts[name]++
	}
	verb := sent[c.rnd.IntN(len(sent))]
	acted := slices.DeleteFunc(slices.Clone(acting), func(name string) bool { return counts[name] <= probing[name] })
	if len(acted) == 0 || c.rnd.IntN(6) == 0 {
		return &cut{verb: verb, nth: c.rnd.IntN(counts[verb]), meets: meets}
	}
	verb = acted[c.rnd.IntN(len(acted))]
	return &cut{verb: verb, nth: probing[verb] + c.rnd.IntN(counts[verb]-probing[verb]), meets: meets}
}

// fate cuts once as it was picked, and then again now and then.
func (c *cut) fate(p *passing) fate {
	if c.made {
		if p.n%8 == 0 {
			return c.meets
		}
		return passes
	}
	if commandName(p.args) == c.verb {
		c.made = c.seen == c.nth
		c.seen++
	}
	if c.made {
		return c.meets
	}
	return passes
}

// inDoubt holds the report of a run that lost replies against what the server
// did: what is reported as done was done, and what was done and is not
// reported as such has failed, as far as anybody could know.
func (b *books) inDoubt(t *testing.T, res result) (doubts int) {
	t.Helper()
	var s summary
	if strings.TrimSpace(res.stdout) != "" {
		s = res.summary()
	}
	told := map[keyID]finding{}
	counts := map[string]int64{}
	for _, f := range s.Findings {
		k := f.id(t)
		told[k] = f
		counts[f.Outcome]++
		_, removed := b.removed[k]
		done := map[string]bool{"unlinked": removed, "deleted": removed, "drained": b.aside[k] && b.emptied[k], "trashed": b.aside[k]}
		if was, claims := done[f.Outcome]; claims && !was {
			res.error("%v is reported as %s, and the server did no such thing", k, f.Outcome)
		}
		if f.Outcome == "gone" || f.Outcome == "changed" {
			res.error("%v is reported as %s, and nobody else was there", k, f.Outcome)
		}
	}
	for outcome, n := range s.Outcomes {
		if n != counts[outcome] {
			res.error("outcomes.%s is %d, there are %d such findings", outcome, n, counts[outcome])
		}
	}
	var open int64 // elements that may or may not have been counted
	for k, n := range b.removed {
		switch f := told[k]; f.Outcome {
		case "unlinked", "deleted":
		case "failed":
			doubts++
			open += n
		default:
			res.error("%v was removed and is reported as %q", k, f.Outcome)
		}
	}
	for k := range b.aside {
		switch f := told[k]; f.Outcome {
		case "drained":
		case "failed", "trashed":
			if f.Method == "keep" && f.Outcome == "trashed" {
				break
			}
			doubts++
			open += b.start[0][k].elements()
		default:
			res.error("%v was set aside and is reported as %q", k, f.Outcome)
		}
	}
	var elements int64
	if s.ElementsRemoved != nil {
		elements = *s.ElementsRemoved
	}
	if elements > b.elements || elements < b.elements-open {
		res.error("elements_removed is %d, the server removed %d, of which %d are in doubt", elements, b.elements, open)
	}
	return doubts
}
