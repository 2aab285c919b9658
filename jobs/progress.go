package jobs

import "sync/atomic"

// Progress counts a run while it goes on; it may be read at any time.
type Progress struct {
	KeysTotal   atomic.Int64 // DBSIZE of the shards so far opened
	KeysScanned atomic.Int64
	KeysMatched atomic.Int64
	KeysActed   atomic.Int64 // removed, or that would be
	Elements    atomic.Int64 // removed
}
