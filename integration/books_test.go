package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// books hold, for each master, what it executed, and judge it against a rule.
type books struct {
	d        *deployment
	rule     rule
	writers  map[string]bool // their addresses
	proxies  []*proxy
	monitors []*monitor
	models   []model
	start    []model // as the run found it

	acts, back, stranded int
	elements             int64            // that our commands removed
	removed              map[keyID]int64  // by UNLINK or DEL under their own name: elements
	aside                map[keyID]bool   // renamed to the trash, not given back
	emptied              map[keyID]bool   // of those, no longer there
	ours                 map[string]int   // our commands, those of scripts included
	against              map[keyID]string // set aside against the rule, and may yet be given back
}

const runBegins = "the run begins here"

func openBooks(t *testing.T, d *deployment, writers map[string]bool, r rule) *books {
	t.Helper()
	b := &books{d: d, rule: r, writers: writers, removed: map[keyID]int64{}, aside: map[keyID]bool{}, emptied: map[keyID]bool{}, ours: map[string]int{},
		against: map[keyID]string{}}
	for _, m := range d.masters {
		b.monitors = append(b.monitors, startMonitor(t, m))
	}
	return b
}

// begin ends the part of the account that is the test's own.
func (b *books) begin(t *testing.T) {
	t.Helper()
	for _, m := range b.d.masters {
		m.do(t, 0, "ECHO", runBegins)
	}
}

// end replays what was executed, and judges each act of ours at its moment.
func (b *books) end(t *testing.T) {
	t.Helper()
	for i, mon := range b.monitors {
		m := model{}
		b.models = append(b.models, m)
		begun := false
		for _, e := range mon.end(t) {
			if e.verb() == "ECHO" && e.args[1] == runBegins {
				begun = true
				b.start = append(b.start, m.clone())
			}
			ours := begun && b.isOurs(i, e)
			if begun && !ours && !b.writers[e.by] && e.verb() != "ECHO" {
				t.Errorf("%s: somebody else, or the binary past its proxy: %v", mon.s.addr, e)
			}
			if ours {
				b.ours[commandName(e.args)]++
				b.judge(t, m, e)
			}
			c, err := m.apply(e.db, e.args)
			if err != nil {
				t.Fatalf("%s: %v", mon.s.addr, err)
			}
			if ours {
				b.count(e, c)
			}
		}
	}
	for k, why := range b.against {
		t.Errorf("%v was set aside, did not meet the rule %q and was not given back: %s", k, b.rule.flags(), why)
	}
}

func (m model) clone() model {
	out := model{}
	for k, e := range m {
		c := *e
		c.items = maps.Clone(e.items)
		out[k] = &c
	}
	return out
}

// isOurs: what scripts do is ours, for no writer has any.
func (b *books) isOurs(master int, e executed) bool {
	return e.by == "lua" || b.proxies != nil && b.proxies[master].isOurs(e.by)
}

// The names that the binary may write to as it likes.
func isTrash(name string) bool { return strings.HasPrefix(name, "keyjanitor:trash:{") }
func isProbe(name string) bool { return strings.HasPrefix(name, "keyjanitor:probe:{") }

// original is the name that a trash name holds.
func original(trash string) string {
	_, rest, _ := strings.Cut(trash, "}:")
	parts := strings.SplitN(rest, ":", 7)
	return parts[len(parts)-1]
}

// judge looks at a command of ours before it is replayed: the model is the
// keyspace of that moment.
func (b *books) judge(t *testing.T, m model, e executed) {
	t.Helper()
	verb := e.verb()
	if reads[verb] {
		return
	}
	blame := func(k keyID, what string) {
		t.Errorf("%s of %v, which does not meet the rule %q: %s: %v", what, k, b.rule.flags(), m[k], e)
	}
	switch verb {
	case "DEL", "UNLINK":
		for _, name := range e.args[1:] {
			k := keyID{e.db, name}
			if m[k] == nil || isTrash(name) || isProbe(name) {
				continue
			}
			b.acts++
			if !b.rule.holds(name, m[k]) {
				blame(k, verb)
			}
		}
	case "RENAMENX":
		from, to := keyID{e.db, e.args[1]}, keyID{e.db, e.args[2]}
		switch {
		case isProbe(from.name) || m[from] == nil || m[to] != nil:
		case isTrash(from.name) && isTrash(to.name):
			// What is kept becomes draining. The other way about it could not
			// be given back, for its name was taken, and the report says so.
			if k := (keyID{e.db, original(from.name)}); b.against[k] != "" && strings.Contains(to.name, "}:1:k:") {
				b.stranded++
				delete(b.against, k)
			}
		case isTrash(from.name) && original(from.name) == to.name:
			b.back++
			delete(b.against, to)
			delete(b.aside, to)
		case !isTrash(to.name) || original(to.name) != from.name:
			blame(from, "RENAMENX to a name that is not its own in the trash")
		default:
			b.acts++
			if !b.rule.holds(from.name, m[from]) {
				b.against[from] = fmt.Sprintf("%v: %v", m[from], e)
			}
		}
	default:
		if !isTrash(e.args[1]) && !isProbe(e.args[1]) {
			blame(keyID{e.db, e.args[1]}, verb+" under its own name")
		}
	}
}

// count takes down what a command of ours did.
func (b *books) count(e executed, c change) {
	b.elements += c.took
	for _, k := range c.gone {
		if isTrash(k.name) {
			b.emptied[keyID{k.db, original(k.name)}] = true
		} else {
			b.removed[k] += c.took
		}
	}
	if e.verb() == "RENAMENX" && c.renamed && !isTrash(e.args[1]) {
		b.aside[keyID{e.db, e.args[1]}] = true
	}
}

func (e *entry) String() string {
	if e == nil {
		return "no key"
	}
	text := fmt.Sprintf("a %s of %d", e.kind, e.elements())
	if e.kind == "string" {
		text = fmt.Sprintf("a string of %d bytes", e.n)
	}
	if e.expires {
		text += " that lives " + e.ttl.String()
	}
	return text
}

// agree fails unless the moving keys are what the account makes of them.
func (b *books) agree(t *testing.T, after digest) {
	t.Helper()
	all := model{}
	for _, m := range b.models {
		for k, e := range m {
			all[k] = e
		}
	}
	all.mustBe(t, after, isMoving)
}

// condemned are the still keys that met the rule: they go, unless the report
// names them as failed.
func (b *books) condemned(before digest, s summary) (out []keyID) {
	var failed []keyID
	for _, f := range s.Findings {
		if f.Outcome == "failed" {
			failed = append(failed, f.id(s.from.t))
		}
	}
	for k := range before {
		for _, m := range b.start {
			if isStill(k.name) && b.rule.holds(k.name, m[k]) && !slices.Contains(failed, k) {
				out = append(out, k)
			}
		}
	}
	return out
}
