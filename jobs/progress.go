package jobs

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Progress counts a run while it goes on; it may be read at any time.
type Progress struct {
	KeysTotal   atomic.Int64 // DBSIZE of the shards so far opened
	KeysScanned atomic.Int64
	KeysMatched atomic.Int64
	KeysActed   atomic.Int64 // removed, or that would be
	Elements    atomic.Int64 // removed

	mu   sync.Mutex
	held map[string][]string // reasons, by shard
}

func (p *Progress) hold(shard string, reasons []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[string][]string{}
	}
	p.held[shard] = reasons
	if len(reasons) == 0 {
		delete(p.held, shard)
	}
}

// Reasons are all reasons for which the run waits.
func (p *Progress) Reasons() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []string{}
	for _, reasons := range p.held {
		for _, r := range reasons {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Held is why the run waits, in words, and on how many shards; "" where it
// doesn't.
func (p *Progress) Held() (reason string, shards int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, reasons := range p.held {
		if reason == "" || reasons[0] < reason {
			reason = reasons[0]
		}
	}
	return reason, len(p.held)
}
