package deleter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// bench is a deleter with scripted neighbours.
type bench struct {
	t   *testing.T
	del *Deleter

	// The gate.
	batch   int
	waits   [][3]int64 // commands, elements, bytes
	gateErr error
	again   func(error) bool // nil: never

	// The journal.
	begun, done []string
	journalErr  error

	paced []string // what the gate was told

	// The store: what it was asked, and what it answers.
	calls   []string
	reply   map[string]Reply // by key; else Acted
	opened  func(trash string) (*Opened, error)
	freeing []int64

	results []Result
}

func newBench(t *testing.T, can Abilities) *bench {
	b := &bench{t: t, batch: 100, reply: map[string]Reply{}}
	b.opened = func(string) (*Opened, error) { return b.steps(3), nil }
	b.del = New(b, b, Options{
		Can: can, Namer: namer, Journal: b,
		Protected: func(name string) bool { return strings.HasPrefix(name, "session:") },
	})
	return b
}

func (b *bench) act(ctx context.Context, orders ...Order) error {
	return b.del.Act(ctx, orders, func(r Result) { b.results = append(b.results, r) })
}

func (b *bench) Wait(ctx context.Context, commands, elements int, bytes int64) error {
	b.waits = append(b.waits, [3]int64{int64(commands), int64(elements), bytes})
	return errors.Join(ctx.Err(), b.gateErr)
}
func (b *bench) Batch(string) int   { return b.batch }
func (b *bench) Pipeline(n int) int { return n }
func (b *bench) Anew(kind string)   { b.paced = append(b.paced, "anew "+kind) }
func (b *bench) Observe(kind string, n int, _ time.Duration) {
	b.paced = append(b.paced, fmt.Sprint(kind, " ", n))
}

func (b *bench) Again(_ context.Context, err error) bool {
	return err != nil && b.again != nil && b.again(err)
}

func (b *bench) Begin(names []string) error {
	b.begun = append(b.begun, names...)
	return b.journalErr
}

func (b *bench) Done(name string) error {
	b.done = append(b.done, name)
	return nil
}

// open is what the journal remembers.
func (b *bench) open() []string {
	return slices.DeleteFunc(slices.Clone(b.begun), func(name string) bool { return slices.Contains(b.done, name) })
}

func (b *bench) answer(o *Order) Reply {
	if r, ok := b.reply[o.Key]; ok {
		return r
	}
	return Reply{Status: Acted, Elements: max(0, o.Elements)}
}

func (b *bench) Remove(ctx context.Context, orders []Order, how Method) []Reply {
	if ctx.Err() != nil {
		b.t.Error("a call that nobody waited for")
	}
	var keys []string
	var out []Reply
	for i := range orders {
		keys = append(keys, orders[i].Key)
		out = append(out, b.answer(&orders[i]))
	}
	b.calls = append(b.calls, fmt.Sprint(how, " ", strings.Join(keys, " ")))
	return out
}

func (b *bench) SetAside(_ context.Context, o Order, trash string) Reply {
	if t, ours := namer.Parse(trash); !ours || t.Original != o.Key || !slices.Contains(b.open(), trash) {
		b.t.Errorf("%q set aside as %q, which the journal or a later run does not know", o.Key, trash)
	}
	b.calls = append(b.calls, "aside "+o.Key)
	if r := b.answer(&o); r.Status != Grown {
		return r
	}
	return Reply{Status: Acted}
}

func (b *bench) Open(_ context.Context, trash string) (*Opened, error) {
	b.calls = append(b.calls, "open")
	return b.opened(trash)
}

func (b *bench) Freeing(context.Context) (int64, bool) {
	b.calls = append(b.calls, "freeing")
	if len(b.freeing) == 0 {
		return 0, false
	}
	n := b.freeing[0]
	if len(b.freeing) > 1 {
		b.freeing = b.freeing[1:]
	}
	return n, true
}

// drainer takes so many steps of ten elements.
type drainer struct {
	left   int
	before func() error // each step
}

func (d *drainer) Kind() string { return "drain hash" }

func (d *drainer) Next(context.Context, int) (Step, error) {
	if err := d.before(); err != nil {
		return Step{}, err
	}
	d.left--
	return removing(10, d.left == 0), nil
}

func (b *bench) steps(n int) *Opened {
	return &Opened{Drainer: &drainer{n, func() error { b.calls = append(b.calls, "step"); return nil }}, Type: "hash", Largest: 1 << 30, Each: 5}
}

func (b *bench) wantOutcomes(want ...Outcome) {
	b.t.Helper()
	var got []Outcome
	for _, r := range b.results {
		got = append(got, r.Outcome)
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("outcomes %q, want %q", got, want)
	}
}

func (b *bench) wantCalls(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.calls, want) {
		b.t.Errorf("calls %q, want %q", b.calls, want)
	}
}

var modern = Abilities{Unlink: true, Script: true, MemoryUsage: true, Jemalloc: true, StreamUnlink: true, WatchSeesPersist: true}

func small(key string) Order {
	return Order{Key: key, Type: "hash", Elements: 10, Bytes: 1000, Method: Auto}
}

func big(key string) Order {
	return Order{Key: key, Type: "hash", Elements: 1_000_000, Bytes: 30 << 20, Method: Auto}
}

func TestOutcomes(t *testing.T) {
	b := newBench(t, modern)
	b.reply = map[string]Reply{
		"gone": {Status: StillGone}, "changed": {Status: Unmet, Elements: 3}, "refused": {Err: says("NOPERM no")},
		"acted": {Status: Acted, Elements: 12},
	}
	untyped := Order{Key: "untyped", Elements: Unknown, Bytes: Unknown, Method: Auto}
	if err := b.act(t.Context(), small("session:1"), untyped, small("acted"), small("gone"), small("changed"), small("refused")); err != nil {
		t.Fatal(err)
	}
	b.wantOutcomes(Protected, Failed, Unlinked, Gone, Changed, Failed)
	b.wantCalls("unlink acted gone changed refused")
	for _, r := range b.results {
		acted := r.Outcome == Unlinked
		if acted != (r.Elements == 12) || acted != (r.Bytes == 1000) || acted != (r.Batches == 1) {
			t.Errorf("%+v", r)
		}
		if (r.Reason == "") == (r.Outcome == Failed || r.Outcome == Changed) {
			t.Errorf("%s for the reason %q", r.Outcome, r.Reason)
		}
	}
}

// Without UNLINK small keys go by DEL; one that has grown meanwhile is
// drained, and numbers come from what was removed, not from what was seen.
func TestGrownIsDrained(t *testing.T) {
	b := newBench(t, Abilities{})
	b.reply["grown"] = Reply{Status: Grown, Elements: 5000}
	if err := b.act(t.Context(), small("a"), small("grown")); err != nil {
		t.Fatal(err)
	}
	b.wantOutcomes(Deleted, Drained)
	b.wantCalls("del a grown", "aside grown", "open", "step", "step", "step")
	if r := b.results[1]; r.Elements != 30 || r.Bytes != 150 || r.Batches != 3 || r.Method != Drain {
		t.Errorf("%+v", r)
	}
	if len(b.open()) != 0 {
		t.Errorf("the journal keeps %q", b.open())
	}
}

func TestRehearsedOutcomes(t *testing.T) {
	b := newBench(t, Abilities{})
	b.reply = map[string]Reply{"a": {Status: Rehearsed}, "b": {Status: Rehearsed}}
	if err := b.act(t.Context(), small("a"), big("b")); err != nil {
		t.Fatal(err)
	}
	b.wantOutcomes(WouldAct, WouldAct)
	b.wantCalls("del a", "aside b")
}

// What can't be remembered is not done.
func TestJournalThatCannotBeWritten(t *testing.T) {
	b := newBench(t, Abilities{})
	b.journalErr = errors.New("disk full")
	if err := b.act(t.Context(), big("a"), big("b")); !errors.Is(err, b.journalErr) {
		t.Errorf("%v, want %v", err, b.journalErr)
	}
	b.wantOutcomes()
	b.wantCalls()
}

// A name that no later run could read is never given.
func TestUnreadableNameIsNotGiven(t *testing.T) {
	b := newBench(t, Abilities{})
	b.del.o.Job = "a:b"
	if err := b.act(t.Context(), big("a")); err == nil {
		t.Error("no error")
	}
	b.wantCalls()
	if len(b.begun) != 0 {
		t.Errorf("journal %q", b.begun)
	}
}

// What the journal remembers after a key was not set aside, and whether the
// run goes on.
func TestNotSetAside(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply Reply
		want  []Outcome
		open  int // names that the journal keeps
		fatal bool
	}{
		{"gone", Reply{Status: StillGone}, []Outcome{Gone, Drained}, 0, false},
		{"changed", Reply{Status: Unmet}, []Outcome{Changed, Drained}, 0, false},
		{"refused", Reply{Err: says("NOPERM no")}, []Outcome{Failed, Drained}, 0, false},
		{"slot moving", Reply{Err: says("TRYAGAIN Multiple keys")}, []Outcome{Failed, Drained}, 0, false},
		{"taken", Reply{Err: errTaken}, []Outcome{Failed, Drained}, 0, false},
		{"not writable", Reply{Err: says("READONLY You can't write")}, []Outcome{Failed}, 0, true},
		{"reply lost", Reply{Err: errLost}, []Outcome{Failed}, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, Abilities{})
			b.reply["a"] = test.reply
			err := b.act(t.Context(), big("a"), big("b"))
			if (err != nil) != test.fatal || test.fatal && !errors.Is(err, test.reply.Err) {
				t.Errorf("error %v", err)
			}
			b.wantOutcomes(test.want...)
			if len(b.open()) != test.open {
				t.Errorf("the journal keeps %q, want %d", b.open(), test.open)
			}
			if r := b.results[0]; r.Elements != 0 || r.Bytes != 0 {
				t.Errorf("counted without a reply: %+v", r)
			}
		})
	}
}

// phased handles five elements in a first step and removes three in a second.
type phased struct{ steps int }

func (p *phased) Kind() string { return []string{"acknowledge", "drain stream"}[min(p.steps, 1)] }

func (p *phased) Next(context.Context, int) (Step, error) {
	p.steps++
	if p.steps == 1 {
		return Step{Handled: 5}, nil
	}
	return removing(3, true), nil
}

// Each kind of step is steered by what it handled, and starts slow with each
// key.
func TestEachKindOfStepIsPaced(t *testing.T) {
	b := newBench(t, Abilities{Script: true})
	b.opened = func(string) (*Opened, error) {
		return &Opened{Drainer: &phased{}, Type: "stream", Largest: 1 << 30}, nil
	}
	if err := b.act(t.Context(), big("a"), big("b")); err != nil {
		t.Fatal(err)
	}
	one := []string{"set aside 0", "anew acknowledge", "acknowledge 5", "anew drain stream", "drain stream 3"}
	if want := slices.Concat(one, one); !slices.Equal(b.paced, want) {
		t.Errorf("%q, want %q", b.paced, want)
	}
	if r := b.results[0]; r.Elements != 3 {
		t.Errorf("%d elements removed, want 3", r.Elements)
	}
}
