package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/scanner"
	"github.com/keyjanitor/keyjanitor/throttle"
)

// stage is a server and an audit on which acting and recording may go on at
// the same time. It watches that no key is acted on before its intent.
type stage struct {
	script
	t        *testing.T
	mu       sync.Mutex
	intended map[string]bool
	acted    []string
	lines    int                 // of intents
	before   func(keys []string) // each act
	err      error               // the server's words to every act
	unable   int                 // the write of intents that fails; 0: none
}

func newStage(t *testing.T, l config.Limits) (*stage, *run, *worker) {
	s := &stage{t: t, intended: map[string]bool{}, before: func([]string) {}}
	w, k := newRun(&s.script, Execute, l)
	w.Audit = s
	k.checked = time.Now().Add(time.Hour) // there is no server to ask
	k.sweeps = true
	gate := throttle.New(throttle.Options{Target: time.Second, Share: 1})
	k.del = deleter.New(s, gate, deleter.Options{
		Can: deleter.Abilities{Unlink: true, Jemalloc: true}, Namer: w.namer, Journal: noJournal{}, Sweeper: s,
		Protected: func(name string) bool { return strings.HasPrefix(name, "protected:") },
	})
	return s, w, k
}

func (s *stage) Intents(entries []Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines++
	if s.unable == s.lines {
		return ErrState
	}
	for _, e := range entries {
		for name := range strings.SplitSeq(namesOf(e), ",") {
			s.intended[name] = true
		}
	}
	return nil
}

func (s *stage) Results(entries []Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.script.Results(entries)
}

func (s *stage) Sweep(ctx context.Context, orders []deleter.Order, _ []byte) []deleter.Swept {
	out := make([]deleter.Swept, len(orders))
	for i, r := range s.Remove(ctx, orders, deleter.Unlink) {
		out[i] = deleter.Swept{Reply: r, Type: "set", Bytes: 100}
	}
	return out
}

func (s *stage) Remove(ctx context.Context, orders []deleter.Order, _ deleter.Method) []deleter.Reply {
	var names []string
	for i := range orders {
		names = append(names, orders[i].Key)
	}
	asked := slices.Clone(names)
	s.before(asked)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.log = nil
	orders = slices.Clone(orders)
	for i := range orders {
		orders[i].Key = asked[i]
	}
	out := s.script.Remove(ctx, orders, deleter.Unlink)
	for i := range orders {
		if !s.intended[names[i]] {
			s.t.Errorf("%q was acted on before its intent", names[i])
		}
		switch {
		case s.err != nil:
			out[i] = deleter.Reply{Err: s.err}
		case out[i].Status == deleter.Acted:
			s.acted = append(s.acted, names[i])
		}
	}
	return out
}

// pageOf is a page of keys of which only the names are known.
func pageOf(names ...string) scanner.Page {
	p := scanner.Page{Next: 1, Seen: len(names)}
	for _, name := range names {
		p.Keys = append(p.Keys, scanner.Key{Name: name, Bytes: scanner.Unknown, Elements: scanner.Unknown, TTL: scanner.Unknown})
	}
	return p
}

func many(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(prefix, i)
	}
	return out
}

// through has pages go through a flow.
func through(ctx context.Context, k *worker, pages ...scanner.Page) error {
	in := make(chan scanner.Page, len(pages))
	for _, p := range pages {
		in <- p
	}
	close(in)
	f := &flow{worker: k}
	_, err := f.run(ctx, in)
	return errors.Join(err, f.idle())
}

// Pages are put together and cut as the audit wants them, and nothing is held
// back at the end.
func TestFlowActsOnAll(t *testing.T) {
	s, _, k := newStage(t, config.Limits{})
	all := slices.Concat(many("a", 300), many("b", 900), nil, many("c", 2500), many("d", 1))
	err := through(t.Context(), k, pageOf(all[:300]...), pageOf(all[300:1200]...), pageOf(), pageOf(all[1200:3700]...), pageOf(all[3700:]...))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.acted, all) {
		t.Errorf("%d of %d keys were acted on", len(s.acted), len(all))
	}
	if k.outcomes != (Outcomes{Unlinked: 3701}) || k.elements != 2*3701 || k.released != 100*3701 || k.acted != 3701 || k.tally.matched != 3701 {
		t.Errorf("outcomes %+v, %d elements, %d bytes, %d reserved, %d told", k.outcomes, k.elements, k.released, k.acted, k.tally.matched)
	}
	if f := k.tally.largest.items[0]; f.Type != "set" || *f.Elements != 2 || *f.Bytes != 100 || f.TTLMillis != nil {
		t.Errorf("a finding without what the act saw: %+v", f)
	}
}

// A key that SCAN repeats is gone by then, and told once; one that others
// removed is told.
func TestFlowKnowsRepeats(t *testing.T) {
	s, _, k := newStage(t, config.Limits{MaxKeys: 5})
	gone := map[string]bool{}
	s.before = func(keys []string) {
		for i, name := range keys {
			if gone[name] {
				keys[i] = "gone:" + name
			}
			gone[name] = true
		}
	}
	if err := through(t.Context(), k, pageOf("a", "b", "b"), pageOf("a", "c", "gone:d"), pageOf("c", "b")); err != nil {
		t.Fatal(err)
	}
	if k.outcomes != (Outcomes{Unlinked: 3, Gone: 1}) || k.tally.matched != 4 {
		t.Errorf("outcomes %+v, %d told", k.outcomes, k.tally.matched)
	}
	var r recent
	for _, name := range many("", 2*len(r.names)) {
		r.add(name)
	}
	if r.trim(); r.has(fmt.Sprint(len(r.names)-1)) || !r.has(fmt.Sprint(len(r.names))) || r.has("new") {
		t.Error("remembers others than the last")
	}
	if r.add("new"); !r.has("new") {
		t.Error("forgets what was added after a look")
	}
}

// The next intents are written while the server acts, and are not acted on
// before it is done.
func TestFlowOverlaps(t *testing.T) {
	s, _, k := newStage(t, config.Limits{})
	s.before = func(keys []string) {
		for keys[0] == "a0" {
			s.mu.Lock()
			lines := s.lines
			s.mu.Unlock()
			if lines == 2 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	done := make(chan error)
	go func() {
		done <- through(t.Context(), k, pageOf(many("a", auditPage)...), pageOf(many("b", auditPage)...))
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no second intent before the end of the first act")
	}
	if s.acted[0] != "a0" || len(s.acted) != 2*auditPage {
		t.Errorf("acted on %d keys, first %q", len(s.acted), s.acted[0])
	}
}

// Limits are exact, whatever is on its way when they are asked.
func TestFlowLimits(t *testing.T) {
	mixed := []string{"protected:a", "a", "gone:b", "b", "changed:c", "c", "d"}
	for _, c := range []struct {
		name   string
		limits config.Limits
		acts   int
		by     string
	}{
		{"keys", config.Limits{MaxKeys: 3}, 3, "max_keys: 3"},
		{"just enough", config.Limits{MaxKeys: 4}, 4, ""},
		{"one", config.Limits{MaxKeys: 1}, 1, "max_keys: 1"},
		{"percent", config.Limits{MaxPercent: 2}, 2, "max_percent: 2% of 100 keys on s/0"},
		{"percent, just enough", config.Limits{MaxPercent: 4}, 4, ""},
	} {
		for _, size := range []int{1, 2, 3, 7} {
			t.Run(fmt.Sprintf("%s by %d", c.name, size), func(t *testing.T) {
				s, w, k := newStage(t, c.limits)
				var pages []scanner.Page
				for part := range slices.Chunk(mixed, size) {
					pages = append(pages, pageOf(part...))
				}
				err := through(t.Context(), k, pages...)
				by, _ := w.allow.stoppedBy()
				if len(s.acted) != c.acts || by != c.by || errors.Is(err, scanner.ErrStop) != (c.by != "") || k.full != (c.by != "") {
					t.Errorf("acted on %q, stopped by %q, error %v", s.acted, by, err)
				}
			})
		}
	}
}

// What can't be put on record is not done, and what is under way is told.
func TestFlowWithoutIntent(t *testing.T) {
	for unable := 1; unable <= 2; unable++ {
		s, _, k := newStage(t, config.Limits{})
		s.unable = unable
		err := through(t.Context(), k, pageOf(many("a", auditPage)...), pageOf(many("b", auditPage)...), pageOf("c"))
		want := auditPage * (unable - 1)
		if !errors.Is(err, ErrState) || len(s.acted) != want || k.outcomes.Unlinked != int64(want) {
			t.Errorf("write %d fails: %v after %d keys, of which %d are told", unable, err, len(s.acted), k.outcomes.Unlinked)
		}
	}
}

// A server that refuses everything ends the shard, and gives back what was
// reserved for the keys behind it.
func TestFlowEndsWithTheServer(t *testing.T) {
	s, w, k := newStage(t, config.Limits{MaxKeys: 5000})
	s.err = deleterError("READONLY You can't write against a read only replica.")
	err := through(t.Context(), k, pageOf(many("a", auditPage)...), pageOf(many("b", auditPage)...), pageOf("c"))
	if !errors.Is(err, s.err) || len(s.acted) > 0 {
		t.Errorf("%v after %d keys", err, len(s.acted))
	}
	if failed := k.outcomes.Failed; failed == 0 || failed > auditPage || w.allow.keys != failed {
		t.Errorf("%d failed, %d are reserved", failed, w.allow.keys)
	}
}

// Stopped, a run finishes the batch at hand and acts on nothing more.
func TestFlowIsStopped(t *testing.T) {
	s, w, k := newStage(t, config.Limits{MaxKeys: 5000})
	ctx, cancel := context.WithCancel(t.Context())
	first := 0
	s.before = func(keys []string) {
		if first == 0 {
			first = len(keys)
			cancel()
		} else {
			t.Errorf("a second batch, of %q", keys[0])
		}
	}
	err := through(ctx, k, pageOf(many("a", auditPage)...), pageOf(many("b", auditPage)...), pageOf("c"))
	if !errors.Is(err, context.Canceled) || len(s.acted) != first || k.outcomes.Unlinked != int64(first) || w.allow.keys != int64(first) {
		t.Errorf("%v after %d keys of %d, %d told, %d reserved", err, len(s.acted), first, k.outcomes.Unlinked, w.allow.keys)
	}
}

// A panic in one of the goroutines is the shard's error.
func TestFlowPanics(t *testing.T) {
	s, _, k := newStage(t, config.Limits{})
	s.before = func([]string) { panic("act") }
	if err := through(t.Context(), k, pageOf("a"), pageOf("b")); err == nil || !strings.Contains(err.Error(), "act") {
		t.Errorf("error %v", err)
	}
	k.scan = &scanner.Scanner{} // has nothing to scan with
	if _, err := k.flow(t.Context()); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("error %v", err)
	}
}

// Who may be the first to look at a key.
func TestLean(t *testing.T) {
	can := topology.Can{Script: true, Unlink: true, MemoryUsage: true}
	auto := &config.Delete{Method: config.MethodAuto}
	for name, c := range map[string]struct {
		want   bool
		mode   Mode
		can    topology.Can
		change func(w *run)
	}{
		"by name":               {true, Execute, can, func(*run) {}},
		"small thresholds":      {true, Execute, can, func(w *run) { w.Job.Select.MinElements, w.Job.Select.MinBytes = 1000, 1<<20 }},
		"limits of keys":        {true, Execute, can, func(w *run) { w.Job.Limits = config.Limits{MaxKeys: 1, MaxPercent: 1} }},
		"no MEMORY USAGE":       {true, Execute, topology.Can{Script: true, Unlink: true}, func(*run) {}},
		"report":                {false, Report, can, func(*run) {}},
		"scan":                  {false, Scan, can, func(*run) {}},
		"no UNLINK":             {false, Execute, topology.Can{Script: true}, func(*run) {}},
		"no scripts":            {false, Execute, topology.Can{Unlink: true}, func(*run) {}},
		"kept for a time":       {false, Execute, can, func(w *run) { w.Job.Action.Delete = &config.Delete{KeepFor: 1} }},
		"drain":                 {false, Execute, can, func(w *run) { w.Job.Action.Delete = &config.Delete{Method: config.MethodDrain} }},
		"method unlink":         {false, Execute, can, func(w *run) { w.Job.Action.Delete = &config.Delete{Method: config.MethodUnlink} }},
		"no delete":             {false, Execute, can, func(w *run) { w.Job.Action.Delete = nil }},
		"a limit of bytes":      {false, Execute, can, func(w *run) { w.Job.Limits.MaxBytes = 1 }},
		"a budget of elements":  {false, Execute, can, func(w *run) { w.Pace.ElementsPerSecond = 1 }},
		"a budget of bytes":     {false, Execute, can, func(w *run) { w.Pace.BytesPerSecond = 1 }},
		"elements of a shard":   {false, Execute, can, func(w *run) { w.Pace.PerShard.ElementsPerSecond = 1 }},
		"bytes of a shard":      {false, Execute, can, func(w *run) { w.Pace.PerShard.BytesPerSecond = 1 }},
		"only large ones":       {false, Execute, can, func(w *run) { w.Job.Select.MinElements = 1001 }},
		"only large ones, size": {false, Execute, can, func(w *run) { w.Job.Select.MinBytes = 1<<20 + 1 }},
		"of the trash":          {false, Execute, can, func(w *run) { w.Trash = &Trash{} }},
	} {
		w, k := newRun(&script{}, c.mode, config.Limits{})
		w.Job.Action.Delete = auto
		k.shard.Can = c.can
		if c.change(w); k.lean() != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

func TestLarge(t *testing.T) {
	for _, c := range []struct {
		key  scanner.Key
		want bool
	}{
		{scanner.Key{Bytes: scanner.Unknown, Elements: scanner.Unknown}, false},
		{scanner.Key{Bytes: 1 << 20, Elements: 1000, Type: "set"}, false},
		{scanner.Key{Bytes: 1<<20 + 1, Elements: scanner.Unknown}, true},
		{scanner.Key{Bytes: scanner.Unknown, Elements: 1001}, true},
		{scanner.Key{Bytes: 1, Elements: 1, Type: "stream"}, true},
	} {
		if large(&c.key) != c.want {
			t.Errorf("%+v", c.key)
		}
	}
}
