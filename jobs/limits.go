package jobs

import (
	"fmt"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// allowance is what a run may still act on. What an act would take is
// reserved before it, and given back where it was not taken.
type allowance struct {
	mu     sync.Mutex
	limits config.Limits
	keys   int64
	bytes  int64
	by     string // the limit that ended the run
}

// reserve takes one key of so many bytes, or says that the run is over.
func (a *allowance) reserve(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch l := a.limits; {
	case l.MaxKeys > 0 && a.keys >= l.MaxKeys:
		a.stop(fmt.Sprintf("max_keys: %d", l.MaxKeys))
	case l.MaxBytes > 0 && a.bytes+bytes > int64(l.MaxBytes):
		a.stop("max_bytes: " + humanize.IBytes(uint64(l.MaxBytes)))
	default:
		a.keys++
		a.bytes += bytes
		return true
	}
	return false
}

func (a *allowance) release(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys--
	a.bytes -= bytes
}

// stop records the first limit that was reached; the caller holds mu.
func (a *allowance) stop(by string) {
	if a.by == "" {
		a.by = by
	}
}

// end records a limit that was reached elsewhere: of time, or of one shard.
func (a *allowance) end(by string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(by)
}

// stoppedBy is the limit that was reached, or "".
func (a *allowance) stoppedBy() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by
}
