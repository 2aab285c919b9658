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
	by     string // the first limit that was in the way
	over   bool   // a limit of the whole run was
}

// reserve takes one key of so many bytes, or says which limit is in the way:
// for good only where nothing is given back any more.
func (a *allowance) reserve(bytes int64) (limit string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch l := a.limits; {
	case l.MaxKeys > 0 && a.keys >= l.MaxKeys:
		return fmt.Sprintf("max_keys: %d", l.MaxKeys)
	case l.MaxBytes > 0 && a.bytes+bytes > int64(l.MaxBytes):
		return "max_bytes: " + humanize.IBytes(uint64(l.MaxBytes))
	}
	a.keys++
	a.bytes += bytes
	return ""
}

// resumed takes keys that an earlier part of the same run acted on.
func (a *allowance) resumed(keys int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys += keys
}

func (a *allowance) release(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys--
	a.bytes -= bytes
}

// end records a limit that ended the whole run, or one shard. The first is
// the one that the summary names.
func (a *allowance) end(by string, whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == "" {
		a.by = by
	}
	a.over = a.over || whole
}

// stoppedBy is the limit that was reached, or "", and whether it ended the
// whole run.
func (a *allowance) stoppedBy() (by string, whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by, a.over
}
