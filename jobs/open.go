package jobs

import (
	"cmp"
	"context"
	"time"

	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/throttle"
)

// open opens the target, once no node of it is busy with a script: then one
// can't learn what it lets us do.
func (w *run) open(ctx context.Context) (*topology.Topology, error) {
	for {
		top, err := topology.Open(ctx, w.Target, topology.Options{Writes: w.Mode != Scan, Logger: w.Log})
		refused := err
		if err == nil {
			for _, s := range top.Shards() {
				if throttle.Refusal(s.Err) != "" {
					refused = s.Err
				}
			}
		}
		if !w.waitOut(ctx, refused) {
			return top, err
		}
		if err == nil {
			_ = top.Close() // nothing was asked of it
		}
	}
}

// waitOut waits a second where an error is a refusal for now and the run waits
// for the end of those.
func (w *run) waitOut(ctx context.Context, err error) bool {
	words := throttle.Refusal(err)
	if words == "" || !w.HoldWhen.Refused {
		return false
	}
	if words != w.heldFor {
		w.Log.Warn("held", "job", cmp.Or(w.Job.Name, "-"), "reason", words)
		w.heldFor = words
	}
	select {
	case <-time.After(time.Second):
		return true
	case <-ctx.Done():
		return false
	}
}
