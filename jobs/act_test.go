package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/scanner"
	"github.com/keyjanitor/keyjanitor/throttle"
)

// script is a server that removes what it is told to, except keys that are
// gone or changed, and records what was done and audited in which order.
type script struct {
	log     []string
	fail    error // of the audit's intents
	results error // of its results
}

func (s *script) Remove(_ context.Context, orders []deleter.Order, _ deleter.Method) []deleter.Reply {
	out := make([]deleter.Reply, len(orders))
	for i, o := range orders {
		switch {
		case strings.HasPrefix(o.Key, "gone:"):
			out[i].Status = deleter.StillGone
		case strings.HasPrefix(o.Key, "changed:"):
			out[i].Status = deleter.Unmet
		case strings.HasPrefix(o.Key, "refused:"):
			out[i].Err = deleterError("NOPERM no")
		default:
			s.log = append(s.log, "act "+o.Key)
			out[i] = deleter.Reply{Status: deleter.Acted, Elements: 2}
		}
	}
	return out
}

func (s *script) SetAside(context.Context, deleter.Order, string) deleter.Reply {
	return deleter.Reply{Status: deleter.StillGone}
}
func (s *script) Open(context.Context, string) (*deleter.Opened, error) { return nil, nil }
func (s *script) Freeing(context.Context) (int64, bool)                 { return 0, true }

// namesOf is the keys of a line: "a", "a,b", or "×2" where it only counts.
func namesOf(e Entry) string {
	switch {
	case e.Key != nil:
		return *e.Key
	case e.Count != nil:
		return fmt.Sprintf("×%d", *e.Count)
	}
	return strings.Join(e.Keys, ",")
}

// Keys that are not small have lines of their own.
func TestLargeKeysInTheAudit(t *testing.T) {
	s := &script{}
	_, k := newRun(s, Execute, config.Limits{})
	keys := found("a", "large", "\xff")
	keys[1].Elements = 1001
	if err := k.act(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	if s.log[0] != "intent large" || s.log[len(s.log)-2] != "result large unlinked" || s.log[len(s.log)-1] != "results ×2 unlinked" {
		t.Errorf("audit %q", s.log)
	}
	orders := []deleter.Order{k.order(&keys[0]), k.order(&keys[2])}
	if lines := k.intents(orders); len(lines) != 1 || lines[0].Keys != nil || !slices.Equal(lines[0].KeysBytes, []string{"YQ==", "/w=="}) {
		t.Errorf("intents %+v", lines)
	}
}

// Intents records or refuses.
func (s *script) Intents(entries []Entry) error {
	if s.fail != nil {
		return s.fail
	}
	for _, e := range entries {
		s.log = append(s.log, e.Kind+" "+namesOf(e))
	}
	return nil
}

// Results records or refuses.
func (s *script) Results(entries []Entry) error {
	for _, e := range entries {
		s.log = append(s.log, e.Kind+" "+namesOf(e)+" "+e.Outcome)
	}
	return s.results
}

// deleterError is a reply of a server.
type deleterError string

func (e deleterError) Error() string { return string(e) }
func (deleterError) RedisError()     {}

// newRun is a run over one shard of 100 keys that acts through a script.
func newRun(s *script, mode Mode, l config.Limits) (*run, *worker) {
	q := Request{Mode: mode, Top: 10}
	q.Job.Limits = l
	w := &run{
		Runner: &Runner{Log: slog.New(slog.DiscardHandler), Audit: s, Progress: &Progress{}}, Request: q, id: "run",
		namer: deleter.NewNamer(topology.Slot), allow: &allowance{limits: l}, cancel: func(error) {},
		summary: newSummary(q), tally: newTally(10, ranking(q)),
	}
	k := newWorker(w, &topology.Shard{ID: "s/0", Keys: 100, Can: topology.Can{MemoryUsage: true}})
	k.scan = &scanner.Scanner{}
	gate := throttle.New(throttle.Options{Target: time.Second, Share: 1})
	protected := func(name string) bool { return strings.HasPrefix(name, "protected:") }
	k.del = deleter.New(s, gate, deleter.Options{
		Can: deleter.Abilities{Unlink: true, Jemalloc: true}, Namer: w.namer, Protected: protected, Journal: noJournal{},
	})
	return w, k
}

func found(names ...string) []scanner.Key {
	keys := make([]scanner.Key, len(names))
	for i, name := range names {
		keys[i] = scanner.Key{Name: name, Type: "set", Bytes: 100, Elements: 2, TTL: scanner.NoTTL}
	}
	return keys
}

func TestIntentsBeforeActs(t *testing.T) {
	s := &script{}
	_, k := newRun(s, Execute, config.Limits{})
	if err := k.act(t.Context(), found("a", "gone:b", "c")); err != nil {
		t.Fatal(err)
	}
	want := []string{"intents a,gone:b,c", "act a", "act c", "result gone:b gone", "results ×2 unlinked"}
	if !slices.Equal(s.log, want) {
		t.Errorf("done %q\nwant %q", s.log, want)
	}
	if k.outcomes != (Outcomes{Unlinked: 2, Gone: 1}) || k.elements != 4 || k.released != 200 {
		t.Errorf("outcomes %+v, %d elements, %d bytes", k.outcomes, k.elements, k.released)
	}
}

// What could not be written down is not done.
func TestNoActWithoutIntent(t *testing.T) {
	s := &script{fail: ErrState}
	_, k := newRun(s, Execute, config.Limits{MaxKeys: 5})
	if err := k.act(t.Context(), found("a", "b")); !errors.Is(err, ErrState) {
		t.Errorf("error %v, want ErrState", err)
	}
	if len(s.log) != 0 {
		t.Errorf("done all the same: %q", s.log)
	}
}

func TestActLimits(t *testing.T) {
	twelve := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	mixed := []string{"protected:a", "a", "gone:b", "b", "changed:c", "c", "d"}
	for _, c := range []struct {
		name   string
		limits config.Limits
		keys   []string
		acts   int
		by     string
		over   bool
	}{
		{"none", config.Limits{}, twelve, 12, "", false},
		{"keys", config.Limits{MaxKeys: 5}, twelve, 5, "max_keys: 5", true},
		{"exactly as many", config.Limits{MaxKeys: 12}, twelve, 12, "", false},
		{"bytes", config.Limits{MaxBytes: 350}, twelve, 3, "max_bytes: 350 B", true},
		{"percent of the shard", config.Limits{MaxPercent: 5}, twelve, 5, "max_percent: 5% of 100 keys on s/0", false},
		{"percent is rounded up", config.Limits{MaxPercent: 0.1}, twelve, 1, "max_percent: 0.1% of 100 keys on s/0", false},
		{"what is not taken is given back", config.Limits{MaxKeys: 4}, mixed, 4, "", false},
		{"given back, and reached later", config.Limits{MaxKeys: 3}, mixed, 3, "max_keys: 3", true},
		{"given back to the share", config.Limits{MaxPercent: 4}, mixed, 4, "", false},
		{"a failure may have happened", config.Limits{MaxKeys: 2}, []string{"refused:a", "b", "c"}, 1, "max_keys: 2", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			w, k := newRun(s, Execute, c.limits)
			err := k.act(t.Context(), found(c.keys...))
			acts := 0
			for _, l := range s.log {
				if strings.HasPrefix(l, "act ") {
					acts++
				}
			}
			if acts != c.acts {
				t.Errorf("%d keys were acted on, want %d", acts, c.acts)
			}
			by, over := w.allow.stoppedBy()
			if by != c.by || over != c.over {
				t.Errorf("stopped by %q (the whole run: %t), want %q (%t)", by, over, c.by, c.over)
			}
			if stopped := errors.Is(err, scanner.ErrStop); stopped != (c.by != "") || k.full != stopped || !stopped && err != nil {
				t.Errorf("error %v, shard full %t", err, k.full)
			}
		})
	}
}

// A limit that cannot be counted is not passed over in silence.
func TestUnlimited(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits config.Limits
		mode   Mode
		shard  topology.Shard
		word   string
	}{
		{"no limit", config.Limits{}, Execute, topology.Shard{Keys: -1}, ""},
		{"max_bytes", config.Limits{MaxBytes: 1}, Execute, topology.Shard{}, "max_bytes"},
		{"max_bytes in a report", config.Limits{MaxBytes: 1}, Report, topology.Shard{}, "max_bytes"},
		{"max_bytes, known", config.Limits{MaxBytes: 1}, Execute, topology.Shard{Can: topology.Can{MemoryUsage: true}}, ""},
		{"max_percent", config.Limits{MaxPercent: 1}, Execute, topology.Shard{Keys: -1}, "max_percent"},
		{"max_percent of none", config.Limits{MaxPercent: 1}, Execute, topology.Shard{Keys: 0}, ""},
		{"a scan takes nothing", config.Limits{MaxPercent: 1}, Scan, topology.Shard{Keys: -1}, ""},
	} {
		w, _ := newRun(&script{}, c.mode, c.limits)
		err := newWorker(w, &c.shard).unlimited()
		if (err != nil) != (c.word != "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Where no key can be acted on that is said once, before the first.
func TestPowerless(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		shard topology.Shard
		says  string
	}{
		{Execute, topology.Shard{Can: topology.Can{Script: true}}, ""},
		{Execute, topology.Shard{Can: topology.Can{Watch: true}}, ""},
		{Execute, topology.Shard{Why: map[string]string{"watch": "NOPERM no"}}, "NOPERM no"},
		{Execute, topology.Shard{Unknown: []string{"watch"}}, ""},
		{Report, topology.Shard{}, ""}, // not asked for
		{Scan, topology.Shard{}, ""},
	} {
		w, _ := newRun(&script{}, c.mode, config.Limits{})
		err := newWorker(w, &c.shard).powerless()
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s with %+v: %v", c.mode, c.shard.Can, err)
		}
	}
}

func TestFindingOf(t *testing.T) {
	_, k := newRun(&script{}, Scan, config.Limits{})
	f := k.finding(&scanner.Key{Name: "a", Type: scanner.None, Bytes: scanner.Unknown, Elements: scanner.Unknown, TTL: scanner.Unknown})
	if f.Bytes != nil || f.Elements != nil || f.TTLMillis != nil || f.Type != "" || f.Slot != nil {
		t.Errorf("what is not known is told: %+v", f)
	}
	k.shard.Server.Cluster = true
	f = k.finding(&scanner.Key{Name: "foo", Type: "list", Bytes: 0, TTL: scanner.NoTTL})
	if f.Slot == nil || *f.Slot != 12182 || f.Bytes == nil || *f.TTLMillis != -1 {
		t.Errorf("in a cluster: %+v", f)
	}
}
