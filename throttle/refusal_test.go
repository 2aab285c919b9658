package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// reply is an error that a server sent.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

func TestRefusal(t *testing.T) {
	for text, want := range map[string]string{
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that"://
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk",
		"NOREPLICAS Not enough good replicas to write.":                                     "NOREPLICAS Not enough good replicas to write.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL":                "BUSY Redis is busy running a script",
		"CLUSTERDOWN The cluster is down":                                                   "CLUSTERDOWN The cluster is down",
		"EXECABORT Transaction discarded because of: MISCONF Errors writing to the AOF":     "MISCONF Errors writing to the AOF",
		"ERR Error running script (call to f_1): @user_script:1: -MISCONF Redis is. Errors": "MISCONF Redis is",
		// Others, and others' words in a key's name.
		"CLUSTERDOWN Hash slot not served":                  "",
		"BUSYGROUP Consumer Group name already exists":      "",
		"BUSYKEY Target key name already exists.":           "",
		"LOADING Redis is loading the dataset in memory":    "",
		"READONLY You can't write against a read only":      "",
		"ERR unknown command 'x', with args: 'MISCONF a'":   "",
		"NOPERM No permissions to access the 'BUSY ' key":   "",
		"OOM command not allowed when used memory > 'max'":  "",
		"MASTERDOWN Link with MASTER is down and replica":   "MASTERDOWN Link with MASTER is down and replica",
		"ERR Error running script: @user_script: NOREPLICA": "",
	} {
		if want != "" {
			want = "the server refuses commands: " + want
		}
		if got := Refusal(fmt.Errorf("act: %w", reply(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, err := range []error{nil, errors.New("BUSY no reply"), context.Canceled} {
		if got := Refusal(err); got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}

// TestRefused: what is refused is tried again once a second, as one hold that
// ends by itself.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth([]Line{{SignalRefused, 0, ""}, {"lag", 5, "5s"}}, nil)
		g := New(Options{Target: time.Millisecond, Share: 1})
		g.SetHealth(h)
		take := func(v Vitals) (begun, ended []string) { return h.Take(v, time.Now()) }
		take(Vitals{"lag": {}})

		start := time.Now()
		busy := reply("BUSY Redis is busy running a script. You can")
		attempts, begun := 0, []string{}
		for ; attempts < 5; attempts++ {
			if err := g.Wait(t.Context(), 1, 0, 0); err != nil {
				t.Fatal(err)
			}
			if !g.Again(t.Context(), busy) {
				t.Fatal("not to be taken again")
			}
			b, ended := take(Vitals{"lag": {}})
			begun = append(begun, b...)
			if len(ended) > 0 {
				t.Errorf("attempt %d: ended %q", attempts, ended)
			}
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("five attempts took %v", took)
		}
		want := []string{"the server refuses commands: BUSY Redis is busy running a script"}
		if !slices.Equal(begun, want) || !slices.Equal(h.Reasons(), want) {
			t.Errorf("held for %q, %q", begun, h.Reasons())
		}
		// Another signal holds the attempt, too.
		take(Vitals{"lag": {Value: 9}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Wait(ctx, 1, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("passed: %v", err)
		}
		if _, ended := take(Vitals{"lag": {}}); !slices.Contains(ended, want[0]) || len(h.Reasons()) > 0 {
			t.Errorf("ended %q, left %q", ended, h.Reasons())
		}
		// What the sampling is told lets no attempt pass.
		take(Vitals{"lag": {}, SignalRefused: {1, "busy"}})
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Wait(ctx, 1, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("passed: %v", err)
		}
		if h.TakeSome(Vitals{"lag": {}}, time.Now()); len(h.Reasons()) > 0 {
			t.Errorf("still %q", h.Reasons())
		}
		if g.Again(t.Context(), reply("LOADING")) || g.Again(t.Context(), nil) {
			t.Error("another error is to be taken again")
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if g.Again(cancelled, busy) {
			t.Error("again although interrupted")
		}
	})
}

// TestRefusedWithoutALine: then it is an error like another; past the line of
// stop_when the run ends.
func TestRefusedWithoutALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := reply("BUSY Redis is busy")
		g := New(Options{Target: time.Millisecond, Share: 1})
		if g.Again(t.Context(), busy) {
			t.Error("again without anybody looking at the server")
		}
		g.SetHealth(NewHealth(nil, nil))
		if g.Again(t.Context(), busy) {
			t.Error("again without a line")
		}
		h := NewHealth(nil, []Line{{SignalRefused, 0, ""}})
		g.SetHealth(h)
		if !g.Again(t.Context(), busy) {
			t.Error("failed before the line could end the run")
		}
		h.Take(Vitals{}, time.Now())
		if err := g.Wait(t.Context(), 1, 0, 0); !errors.Is(err, ErrCritical) || !strings.Contains(err.Error(), "BUSY") {
			t.Errorf("%v", err)
		}
	})
}
