package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyjanitor/keyjanitor/internal/topology"
)

// Progress counts a run while it goes on; it may be read at any time.
type Progress struct {
	KeysTotal   atomic.Int64 // DBSIZE of the shards so far opened; 0 where keys are named
	KeysScanned atomic.Int64
	KeysMatched atomic.Int64
	KeysActed   atomic.Int64 // removed, or that would be
	Elements    atomic.Int64 // removed

	Shards atomic.Int64 // that are worked on

	mu    sync.Mutex
	waits map[string]Wait // by shard
}

// Wait is a shard whose work waits now.
type Wait struct {
	Shard   string    `json:"shard"`
	Addr    string    `json:"addr"`
	Reasons []string  `json:"reasons"`
	Since   time.Time `json:"since"`
}

// add counts a shard in.
func (p *Progress) add(s *topology.Shard) {
	p.Shards.Add(1)
	p.KeysTotal.Add(max(0, s.Keys))
}

// drop counts a shard out, with what was seen of it.
func (p *Progress) drop(s *topology.Shard, scanned int64) {
	p.Shards.Add(-1)
	p.KeysTotal.Add(-max(0, s.Keys))
	p.KeysScanned.Add(-scanned)
}

func (p *Progress) hold(s *topology.Shard, reasons []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(reasons) == 0 {
		delete(p.waits, s.ID)
		return
	}
	if p.waits == nil {
		p.waits = map[string]Wait{}
	}
	w, held := p.waits[s.ID]
	if !held {
		w = Wait{Shard: s.ID, Addr: s.Addr, Since: time.Now()}
	}
	w.Reasons = reasons
	p.waits[s.ID] = w
}

// Waits are the shards whose work waits.
func (p *Progress) Waits() []Wait {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.AppendSeq([]Wait{}, maps.Values(p.waits))
	slices.SortFunc(out, func(a, b Wait) int { return strings.Compare(a.Shard, b.Shard) })
	return out
}

// toldWaits is of how many shards words tell.
const toldWaits = 2

// WaitsInWords tells where work waits, of so many shards, and why; "" where it
// doesn't.
func WaitsInWords(waits []Wait, shards int64) string {
	if len(waits) == 0 {
		return ""
	}
	if shards <= 1 {
		return strings.Join(waits[0].Reasons, "; ")
	}
	var told []string
	for _, w := range waits[:min(len(waits), toldWaits)] {
		told = append(told, w.Addr+": "+strings.Join(w.Reasons, "; "))
	}
	if more := len(waits) - toldWaits; more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("on %d of %d shards: %s", len(waits), shards, strings.Join(told, ", "))
}
