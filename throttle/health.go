package throttle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrCritical: a signal is over the line past which a run is to end.
var ErrCritical = errors.New("stopped by a critical signal")

// Line is a number that a signal must not exceed.
type Line struct {
	Signal string
	Limit  float64
	Text   string // the limit in words, such as "64MiB"; "" where a signal is yes or no
}

// Reading is what a signal says at one moment: a number, and what it is in
// words, such as "replica 10.0.0.7:6379 is 96 MiB behind".
type Reading struct {
	Value float64
	Words string
}

// Vitals are the readings of one moment by signal. What the server does not
// show is absent.
type Vitals map[string]Reading

// Hold is a reason for which work waited, and for how long.
type Hold struct {
	Signal string
	Reason string // the latest, in words
	Took   time.Duration
}

// Health judges the vitals of one server. It is safe for concurrent use.
type Health struct {
	hold, stop []Line

	mu      sync.Mutex
	lost    error           // there is no talking to the server
	seen    map[string]bool // signals that could be read once
	reasons map[string]string
	fatal   string
	changed chan struct{} // closed at each change of what holds
	holds   map[string]*Hold
	last    time.Time // of the sample before

	refusal      string    // the words of the last command that was refused
	refusedUntil time.Time // for so long they stand
	tries        bool      // all that holds is that: one attempt may pass
}

// NewHealth returns a judge by lines over which work waits and lines over
// which it ends.
func NewHealth(hold, stop []Line) *Health {
	return &Health{
		hold: hold, stop: stop, seen: map[string]bool{}, reasons: map[string]string{},
		changed: make(chan struct{}), holds: map[string]*Hold{},
	}
}

// Take judges the vitals of now and returns what begins and what ends to hold
// work, in words.
//
// A signal that was never shown is unknown and holds nothing. One that was
// and is not any more holds: nobody knows what it would say.
func (h *Health) Take(v Vitals, now time.Time) (begun, ended []string) {
	h.Lose(nil)
	return h.take(v, now, false)
}

func (h *Health) take(v Vitals, now time.Time, asItWas bool) (begun, ended []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := v[SignalRefused].Value > 0 // by the server, when it was asked for its vitals
	if !told && now.Before(h.refusedUntil) {
		v[SignalRefused] = Reading{Value: 1, Words: h.refusal}
	} else if !told {
		v[SignalRefused] = Reading{}
	}
	passed := now.Sub(h.last)
	if h.last.IsZero() {
		passed = 0
	}
	h.last = now
	for signal := range v {
		h.seen[signal] = true
	}
	reasons := map[string]string{}
	for _, line := range h.hold {
		r, known := v[line.Signal]
		switch {
		case known && r.Value > line.Limit:
			reasons[line.Signal] = inWords(r, line)
			if asItWas && math.IsInf(r.Value, 1) {
				reasons[line.Signal] = r.Words
			}
		case !known && h.seen[line.Signal]:
			reasons[line.Signal] = line.Signal + " can no longer be read"
		}
	}
	for signal, reason := range h.reasons { // they held until now
		hold := h.holds[signal]
		hold.Took += passed
		if _, still := reasons[signal]; !still {
			ended = append(ended, reason)
		}
	}
	for signal, reason := range reasons {
		if h.holds[signal] == nil {
			h.holds[signal] = &Hold{Signal: signal}
		}
		h.holds[signal].Reason = reason
		if _, held := h.reasons[signal]; !held {
			begun = append(begun, reason)
		}
	}
	for _, line := range h.stop {
		if r, known := v[line.Signal]; known && r.Value > line.Limit && !math.IsInf(r.Value, 1) && h.fatal == "" {
			h.fatal = inWords(r, line)
		}
	}
	h.reasons = reasons
	h.tries = !told && len(reasons) == 1 && reasons[SignalRefused] != ""
	close(h.changed)
	h.changed = make(chan struct{})
	slices.Sort(begun)
	slices.Sort(ended)
	return begun, ended
}

// TakeSome judges some signals while the server does not tell the others: what
// it said last goes on to hold.
func (h *Health) TakeSome(some Vitals, now time.Time) (begun, ended []string) {
	h.mu.Lock()
	v := Vitals{}
	for signal := range h.seen { // as it was
		if reason := h.reasons[signal]; reason != "" {
			v[signal] = Reading{Value: math.Inf(1), Words: reason}
		} else {
			v[signal] = Reading{Value: math.Inf(-1)}
		}
	}
	delete(v, SignalRefused)
	maps.Copy(v, some)
	h.mu.Unlock()
	return h.take(v, now, true)
}

// Lose makes work that is held end with an error: the server does not answer,
// and what holds it may never be over. Nil says that it answers again.
func (h *Health) Lose(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = err
	close(h.changed)
	h.changed = make(chan struct{})
}

func inWords(r Reading, line Line) string {
	words := r.Words
	if words == "" {
		words = line.Signal
	}
	if line.Text != "" {
		words += ", line " + line.Text
	}
	return words
}

// Wait blocks while a signal holds work. Its error is ErrCritical, with the
// reason, or ctx's.
func (h *Health) Wait(ctx context.Context) error {
	for {
		h.mu.Lock()
		fatal, held, changed, lost := h.fatal, len(h.reasons) > 0 && !h.tries, h.changed, h.lost
		h.mu.Unlock()
		switch {
		case fatal != "":
			return fmt.Errorf("%w: %s", ErrCritical, fatal)
		case !held:
			return ctx.Err()
		case lost != nil:
			return fmt.Errorf("held, and the server does not answer: %w", lost)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("held: %w", ctx.Err())
		}
	}
}

// Reasons are why work waits now, in words; none if it doesn't.
func (h *Health) Reasons() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]string, 0, len(h.reasons))
	for _, reason := range h.reasons {
		out = append(out, reason)
	}
	slices.Sort(out)
	return out
}

// Critical is the reason for which work is to end; "" if it isn't.
func (h *Health) Critical() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fatal
}

// Holds is what work waited for so far, by signal.
func (h *Health) Holds() []Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Hold
	for signal, hold := range h.holds {
		sum := *hold
		if h.reasons[signal] != "" { // it goes on
			sum.Took += time.Since(h.last)
		}
		out = append(out, sum)
	}
	slices.SortFunc(out, func(a, b Hold) int { return strings.Compare(a.Signal, b.Signal) })
	return out
}

// Unknown are the signals with a line that were never shown.
func (h *Health) Unknown() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	if h.last.IsZero() {
		return nil // nobody has looked yet
	}
	for _, line := range slices.Concat(h.hold, h.stop) {
		if !h.seen[line.Signal] && !slices.Contains(out, line.Signal) {
			out = append(out, line.Signal)
		}
	}
	return out
}
