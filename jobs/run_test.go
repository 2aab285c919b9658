package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
)

var errSignal = errors.New("stopped by a signal")

// How a run ended decides the exit code.
func TestRunEnds(t *testing.T) {
	unwritable := fmt.Errorf("%w: no space left", ErrState)
	lost := errors.New("connection lost")
	bad := errors.New("line 3: not JSON")
	for _, c := range []struct {
		name     string
		mode     Mode
		setup    func(w *run, one, two *worker)
		cause    error
		want     error
		complete bool
	}{
		{"all went well", Execute, nil, nil, nil, true},
		{"all went well in a scan", Scan, nil, nil, nil, true},
		{"a shard failed", Scan, func(_ *run, one, _ *worker) { one.err, one.complete = lost, false }, nil, ErrPartial, false},
		{"a shard was not scanned to its end", Scan, func(_ *run, one, _ *worker) { one.complete = false }, nil, ErrPartial, false},
		{"every shard failed", Scan, func(_ *run, one, two *worker) {
			one.err, two.err, one.complete, two.complete = lost, lost, false, false
		}, nil, ErrFailed, false},
		{"every shard failed, one after some work", Scan, func(_ *run, one, two *worker) {
			one.err, two.err, one.complete, two.complete, one.scanned = lost, lost, false, false, 10
		}, nil, ErrPartial, false},
		{"a key failed", Execute, func(_ *run, one, _ *worker) { one.outcomes.Failed = 1 }, nil, ErrPartial, true},
		{"a key stays in the trash", Execute, func(_ *run, one, _ *worker) { one.outcomes.Trashed, one.undrained = 1, 1 }, nil, ErrPartial, true},
		{"a key that stayed in the trash was finished by who took over", Execute, func(w *run, one, _ *worker) {
			before := newWorker(w, one.shard)
			before.outcomes.Trashed, before.undrained = 1, 1
			one.outcomes.Finished = 1
			w.retired = []*worker{before}
		}, nil, nil, true},
		{"a key is kept", Execute, func(_ *run, one, _ *worker) { one.outcomes.Trashed = 1 }, nil, nil, true},
		{"gone, changed and protected are no failures", Execute, func(_ *run, one, _ *worker) {
			one.outcomes = Outcomes{Gone: 1, Changed: 1, Protected: 1, Finished: 1}
		}, nil, nil, true},
		{"a limit", Execute, func(w *run, _, _ *worker) { w.allow.end("max_keys: 1", true) }, nil, ErrLimit, false},
		{"a limit and a failure", Execute, func(w *run, one, _ *worker) {
			w.allow.end("max_keys: 1", true)
			one.outcomes.Failed = 1
		}, nil, ErrLimit, false},
		{"a limit of time", Execute, func(w *run, one, _ *worker) {
			w.allow.end("time: 1h", true)
			one.complete = false
		}, ErrLimit, ErrLimit, false},
		{"a signal", Execute, func(_ *run, one, _ *worker) { one.complete = false }, errSignal, errSignal, false},
		{"a signal after a limit", Execute, func(w *run, one, _ *worker) {
			w.allow.end("max_percent", false)
			one.complete = false
		}, errSignal, errSignal, false},
		{"the lock was lost", Execute, func(_ *run, one, _ *worker) { one.complete = false }, ErrLockLost, ErrLockLost, false},
		{"the audit can't be written", Execute, func(_ *run, one, _ *worker) { one.err, one.complete = unwritable, false }, nil, ErrState, false},
		{"the audit can't be written, and a signal", Execute, func(_ *run, one, _ *worker) {
			one.err, one.complete = unwritable, false
		}, errSignal, ErrState, false},
		{"a bad list of keys", Execute, func(w *run, _, _ *worker) { w.keysErr = bad }, nil, ErrKeys, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, one := newRun(&script{}, c.mode, config.Limits{})
			two := newWorker(w, &topology.Shard{ID: "s/1"})
			one.complete, two.complete = true, true
			if c.setup != nil {
				c.setup(w, one, two)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.cause != nil {
				cancel(c.cause)
			}
			s, err := w.close(ctx, []*worker{one, two})
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if s.Complete != c.complete {
				t.Errorf("complete is %t, want %t", s.Complete, c.complete)
			}
			if len(s.Shards) != 2 || s.Finished.IsZero() {
				t.Errorf("%d shards, finished %v", len(s.Shards), s.Finished)
			}
			if one.err != nil && s.Shards[0].Error != one.err.Error() {
				t.Errorf("the shard's error is %q", s.Shards[0].Error)
			}
		})
	}
}

// A panic in the work on a shard is that shard's error, not the process's end.
func TestPanicOfAShard(t *testing.T) {
	var log bytes.Buffer
	w, k := newRun(&script{}, Execute, config.Limits{})
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.Pace.Parallel = 1
	w.parallel(t.Context(), []*worker{k}, func(*worker, context.Context) error { panic("nil map") })
	if k.err == nil || !strings.Contains(k.err.Error(), "nil map") {
		t.Errorf("the shard's error is %v", k.err)
	}
	if !strings.Contains(log.String(), "run_test.go") {
		t.Errorf("the log has no stack: %s", log.String())
	}
}

// What fails because the run is over is no error of the shard, unless it is
// that the record could not be kept.
func TestErrorsOfAnEndedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, k := newRun(&script{}, Execute, config.Limits{})
	k.keep(ctx, context.Canceled)
	if k.err != nil {
		t.Errorf("kept %v", k.err)
	}
	k.keep(ctx, ErrState)
	if !errors.Is(k.err, ErrState) {
		t.Errorf("kept %v, want ErrState", k.err)
	}
}

func TestRoute(t *testing.T) {
	alone := []*worker{{shard: &topology.Shard{DB: 0}}, {shard: &topology.Shard{DB: 3}}}
	cluster := []*worker{
		{shard: &topology.Shard{Server: topology.Server{Cluster: true}, Slots: []topology.SlotRange{{First: 0, Last: 12181}}}},
		{shard: &topology.Shard{Server: topology.Server{Cluster: true}, Slots: []topology.SlotRange{{First: 12182, Last: 12182}}}},
	}
	for _, c := range []struct {
		name string
		in   []*worker
		key  Named
		want *worker
	}{
		{"database 0", alone, Named{Name: "foo"}, alone[0]},
		{"database 3", alone, Named{Name: "foo", DB: 3}, alone[1]},
		{"a database without keys", alone, Named{Name: "foo", DB: 4}, nil},
		{"the owner of the slot", cluster, Named{Name: "foo"}, cluster[1]},
		{"by hash tag", cluster, Named{Name: "x{foo}y"}, cluster[1]},
		{"another database of a cluster", cluster, Named{Name: "foo", DB: 3}, nil},
	} {
		if got := route(c.in, c.key); got != c.want {
			t.Errorf("%s: another shard", c.name)
		}
	}
}

func TestHomeless(t *testing.T) {
	w, _ := newRun(&script{}, Execute, config.Limits{})
	w.databases = map[int]error{5: nil, 99: errors.New("ERR DB index is out of range")}
	var told []Finding
	w.Stream = func(f Finding) error { told = append(told, f); return nil }
	w.homeless(Named{Name: "a", DB: 5})
	w.cluster = true
	w.homeless(Named{Name: "a", DB: 5})
	w.homeless(Named{Name: "a"})
	w.cluster = false
	w.homeless(Named{Name: "a", DB: 99})
	if w.summary.Outcomes != (Outcomes{Gone: 1, Failed: 3}) {
		t.Errorf("outcomes %+v", w.summary.Outcomes)
	}
	if len(told) != 4 || !strings.Contains(told[3].Reason, "out of range") || told[0].Reason != "" || !strings.Contains(told[1].Reason, "database 5") || !strings.Contains(told[2].Reason, "slot") {
		t.Errorf("told %+v", told)
	}
}

// A reader that went away ends the run, once.
func TestStreamThatFails(t *testing.T) {
	w, k := newRun(&script{}, Scan, config.Limits{})
	calls, cancelled := 0, 0
	w.Stream = func(Finding) error { calls++; return errors.New("broken pipe") }
	w.cancel = func(error) { cancelled++ }
	k.found(Finding{Name: "a"})
	k.found(Finding{Name: "b"})
	if calls != 1 || cancelled != 1 {
		t.Errorf("%d calls after the first failure, cancelled %d times", calls, cancelled)
	}
}

// In report mode leftovers are counted, and only leftovers: the lock of a job
// that is running is none.
func TestLeftoversInAReport(t *testing.T) {
	w, k := newRun(&script{}, Report, config.Limits{})
	tag := w.namer.Tag(topology.Slot("k"))
	for _, name := range []string{
		lockPrefix + "nightly", "keyjanitor:trash:{x}", "",
		"keyjanitor:trash:{" + tag + "}:1:k:5:-1:job:0123456789abcdef:k", // kept
		"keyjanitor:trash:{" + tag + "}:1:d:0:-1:job:0123456789abcdef:k",
	} {
		if err := k.finish(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if k.waiting != 1 {
		t.Errorf("%d leftovers, want 1", k.waiting)
	}
}
