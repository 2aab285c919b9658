package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// SignalRefused is the signal of a server that refuses commands like ours for
// now.
const SignalRefused = "refused"

// refusals are how replies begin by which a server, while it stays what it
// is, refuses whatever one sends: a script runs for longer than the server
// lets it, a snapshot failed, too few replicas are there, a replica lost its
// primary, a cluster lacks slots. Where the server becomes another (LOADING,
// READONLY) a cursor means nothing any more: those are not for waiting.
var refusals = []string{"BUSY ", "MISCONF ", "NOREPLICAS ", "MASTERDOWN ", "CLUSTERDOWN The cluster is down"}

// Refusal is why, in words, what failed is refused for now: by what a reply
// says, or what an error says of itself by a method of that name; "" of any
// other error, and of none.
func Refusal(err error) string {
	if own, is := errors.AsType[interface {
		error
		Refusal() string
	}](err); is {
		return own.Refusal()
	}
	reply, is := errors.AsType[redis.Error](err)
	if !is {
		return ""
	}
	text := reply.Error()
	for _, r := range refusals {
		// Within a transaction, and before 7.0 within a script, the words come wrapped.
		at := strings.Index(text, r)
		if at == 0 || at > 0 && (text[at-1] == '-' || strings.HasPrefix(text, "EXECABORT ")) {
			sentence, _, _ := strings.Cut(text[at:], ". ")
			return "the server refuses commands: " + sentence
		}
	}
	return ""
}

// retryAfter is how long a command that was refused is not tried again.
const retryAfter = time.Second

// Again tells whether a step that failed may be taken again: the server refused
// it for now, and Again has waited a second. Without a line for SignalRefused
// nobody waits.
func (g *Gate) Again(ctx context.Context, err error) bool {
	words := Refusal(err)
	return words != "" && g.health != nil && g.health.refused(ctx, words) == nil
}

// refused waits until a command that was refused may be tried again. What it
// says holds work, until two seconds after it was said last, for everything
// but the attempt that finds out whether it is over.
func (h *Health) refused(ctx context.Context, words string) error {
	h.mu.Lock()
	asks := func(l Line) bool { return l.Signal == SignalRefused }
	waits := slices.ContainsFunc(h.hold, asks) || slices.ContainsFunc(h.stop, asks)
	if waits {
		h.refusal, h.refusedUntil = words, time.Now().Add(2*retryAfter)
	}
	h.mu.Unlock()
	if !waits {
		return errors.New(words)
	}
	timer := time.NewTimer(retryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return fmt.Errorf("refused: %w", ctx.Err())
	}
}
