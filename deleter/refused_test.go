package deleter

import (
	"context"
	"errors"
	"strings"
	"testing"
)

var busy = says("BUSY Redis is busy running a script.")

// untilTried answers BUSY about keys until somebody has tried again so often.
func (b *bench) untilTried(times int, keys ...string) {
	for _, key := range keys {
		b.reply[key] = Reply{Err: busy}
	}
	b.again = func(err error) bool {
		if !errors.Is(err, busy) {
			return false
		}
		if times--; times == 0 {
			for _, key := range keys {
				delete(b.reply, key)
			}
		}
		return true
	}
}

// TestRefusedIsTriedAgain: what the server refused for now is acted on when it
// no longer does, once, and what it did accept is not acted on again.
func TestRefusedIsTriedAgain(t *testing.T) {
	b := newBench(t, modern)
	b.untilTried(2, "b", "c")
	if err := b.act(t.Context(), small("a"), small("b"), small("c")); err != nil {
		t.Fatal(err)
	}
	b.wantCalls("unlink a b c", "unlink b c", "unlink b c")
	b.wantOutcomes(Unlinked, Unlinked, Unlinked)

	b = newBench(t, Abilities{Script: true})
	b.untilTried(3, "big")
	if err := b.act(t.Context(), big("big")); err != nil {
		t.Fatal(err)
	}
	b.wantCalls("aside big", "aside big", "aside big", "aside big", "open", "step", "step", "step")
	b.wantOutcomes(Drained)
	if len(b.open()) > 0 {
		t.Errorf("the journal still has %q", b.open())
	}
}

func TestRefusedStepIsTriedAgain(t *testing.T) {
	b := newBench(t, Abilities{Script: true})
	b.untilTried(4)
	refused := 0
	b.opened = func(string) (*Opened, error) {
		if refused++; refused == 1 {
			return nil, busy
		}
		return &Opened{Drainer: &drainer{3, func() error {
			b.calls = append(b.calls, "step")
			if refused++; refused == 4 || refused == 5 {
				return busy
			}
			return nil
		}}, Type: "hash", Largest: 1 << 30}, nil
	}
	if err := b.act(t.Context(), big("big")); err != nil {
		t.Fatal(err)
	}
	b.wantCalls("aside big", "open", "open", "step", "step", "step", "step", "step")
	b.wantOutcomes(Drained)
	if r := b.results[0]; r.Elements != 30 {
		t.Errorf("%d elements, want the 30 that were removed", r.Elements)
	}
}

// TestRefusedForGood: where nobody waits, nothing is left half done.
func TestRefusedForGood(t *testing.T) {
	b := newBench(t, modern)
	b.untilTried(1<<30, "a")
	b.again = nil
	if err := b.act(t.Context(), small("a"), small("b")); !errors.Is(err, busy) {
		t.Errorf("%v, want the refusal", err)
	}
	b.wantOutcomes(Failed, Unlinked)

	b = newBench(t, Abilities{Script: true})
	ctx, cancel := context.WithCancel(t.Context())
	b.untilTried(1<<30, "big")
	b.again = func(error) bool { cancel(); return true }
	if err := b.act(ctx, big("big")); !errors.Is(err, busy) {
		t.Errorf("%v, want the refusal", err)
	}
	b.wantOutcomes(Failed)
	if len(b.open()) > 0 {
		t.Errorf("the journal still has %q", b.open())
	}
}

func TestRefusedSweepIsTriedAgain(t *testing.T) {
	s := newSweeper(t)
	s.answer["b"] = Swept{Reply: Reply{Err: busy}}
	s.answer["c"] = s.answer["b"]
	s.again = func(error) bool { s.answer = nil; return true }
	if err := s.sweep(t.Context(), unmeasured("a", "b", "c", "d")...); err != nil {
		t.Fatal(err)
	}
	s.wantOutcomes(Unlinked, Unlinked, Unlinked, Unlinked)
	if len(s.calls) != 2 || !strings.HasPrefix(s.calls[1], "sweep  b c ") {
		t.Errorf("calls %q", s.calls)
	}
}
