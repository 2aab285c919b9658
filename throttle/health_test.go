package throttle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(
			[]Line{{"lag", 5, "5s"}, {"snapshot", 0, ""}, {"never", 1, ""}},
			[]Line{{"lag", 60, "1m"}})
		take := func(v Vitals, begun, ended []string) {
			t.Helper()
			b, e := h.Take(v, time.Now())
			if !slices.Equal(b, begun) || !slices.Equal(e, ended) {
				t.Errorf("%v: begun %q, ended %q, want %q, %q", v, b, e, begun, ended)
			}
		}
		lag := func(n float64) Reading { return Reading{n, "replica a is behind"} }
		take(Vitals{"lag": lag(5), "snapshot": {0, ""}}, nil, nil)
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(Vitals{"lag": lag(6), "snapshot": {1, "BGSAVE is in progress"}},
			[]string{"BGSAVE is in progress", "replica a is behind, line 5s"}, nil)

		done := make(chan error, 1)
		go func() { done <- h.Wait(t.Context()) }()
		time.Sleep(2 * time.Second)
		// None overrides another.
		take(Vitals{"lag": lag(6), "snapshot": {0, ""}}, nil, []string{"BGSAVE is in progress"})
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("goes on although one signal still holds")
		default:
		}
		// What can no longer be read holds; what never could does not.
		time.Sleep(time.Second)
		take(Vitals{"snapshot": {0, ""}}, nil, nil)
		if r := h.Reasons(); !slices.Equal(r, []string{"lag can no longer be read"}) {
			t.Errorf("%q", r)
		}
		time.Sleep(time.Second)
		take(Vitals{"lag": lag(0), "snapshot": {0, ""}}, nil, []string{"lag can no longer be read"})
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []Hold{{"lag", "lag can no longer be read", 4 * time.Second}, {"snapshot", "BGSAVE is in progress", 2 * time.Second}}
		if got := h.Holds(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if u := h.Unknown(); !slices.Equal(u, []string{"never"}) {
			t.Errorf("unknown: %v", u)
		}

		// A server that does not answer holds as it did, and what people say counts.
		h.Take(Vitals{"lag": lag(7), "snapshot": {0, ""}}, time.Now())
		if h.TakeSome(Vitals{"snapshot": {1, "a flag"}}, time.Now()); !slices.Equal(h.Reasons(), []string{"a flag", "replica a is behind, line 5s"}) {
			t.Errorf("%q", h.Reasons())
		}
		h.Lose(errors.New("i/o timeout"))
		if err := h.Wait(t.Context()); err == nil || errors.Is(err, ErrCritical) {
			t.Errorf("held work of a server that is gone: %v", err)
		}

		h.Take(Vitals{"lag": lag(61), "snapshot": {0, ""}}, time.Now())
		if err := h.Wait(t.Context()); !errors.Is(err, ErrCritical) || h.Critical() == "" {
			t.Errorf("%v", err)
		}
	})
}

func TestHeldWorkIsInterrupted(t *testing.T) {
	h := NewHealth([]Line{{"a", 0, ""}}, nil)
	h.Take(Vitals{"a": {1, ""}}, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
