package throttle

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
)

// Budget bounds commands, elements and bytes per second. It may be shared by
// any number of gates: what one takes, the others wait for.
type Budget struct {
	mu                        sync.Mutex
	commands, elements, bytes *rate.Limiter // nil: unlimited
}

// Set changes the budget, for what is to come and what waits.
func (b *Budget) Set(commands, elements, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.commands, b.elements, b.bytes = limiter(commands), limiter(elements), limiter(bytes)
}

func (b *Budget) limits() (commands, elements, bytes *rate.Limiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commands, b.elements, b.bytes
}

// slicesPerSecond is how finely a rate is dealt out: a quarter of a second's
// worth may go at once, and no batch is larger than that, so that a small
// budget becomes small batches rather than rare large ones.
const slicesPerSecond = 4

// NewBudget returns a budget of so many per second; 0 is unlimited.
func NewBudget(commands, elements, bytes int64) *Budget {
	return &Budget{commands: limiter(commands), elements: limiter(elements), bytes: limiter(bytes)}
}

func limiter(perSecond int64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), int(max(1, perSecond/slicesPerSecond)))
}

// Wait blocks until the budget allows so many commands, elements about to be
// removed and bytes about to be released, or ctx is done.
func (b *Budget) Wait(ctx context.Context, commands, elements int, bytes int64) error {
	for _, w := range []struct {
		limiter func() *rate.Limiter
		n       int64
	}{
		{func() *rate.Limiter { return b.commands }, int64(commands)},
		{func() *rate.Limiter { return b.elements }, int64(elements)},
		{func() *rate.Limiter { return b.bytes }, bytes},
	} {
		if err := b.waitN(ctx, w.limiter, w.n); err != nil {
			return fmt.Errorf("wait for budget: %w", err)
		}
	}
	return nil
}

// waitN takes n of one limiter in pieces, for none may exceed the burst: a
// quarter of a second each, after which a budget that was set counts.
func (b *Budget) waitN(ctx context.Context, which func() *rate.Limiter, n int64) error {
	for n > 0 {
		b.mu.Lock()
		l := which()
		b.mu.Unlock()
		if l == nil {
			break
		}
		piece := min(n, int64(l.Burst()))
		if err := l.WaitN(ctx, int(piece)); err != nil {
			return err
		}
		n -= piece
	}
	return ctx.Err()
}

// burst is the most that l lets through in one piece, at most n and at least 1.
func burst(l *rate.Limiter, n int) int {
	if l != nil {
		n = min(n, l.Burst())
	}
	return max(1, n)
}
