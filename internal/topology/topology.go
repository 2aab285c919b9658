// Package topology finds the servers of a target and learns what each can do.
//
// It promises that a shard's client reaches the one process that was opened,
// or nothing: every connection is checked as it connects. It refuses to guess
// addresses without checking the node's id, to follow redirects, to send
// anything twice and, unless told to expect writes, to send anything that
// writes.
package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// Options say how a target is opened. The zero value is a read-only scan of
// every database that has keys.
type Options struct {
	Databases   []int         // instead of Target.DBs
	DialTimeout time.Duration // 0: 5s
	ReadTimeout time.Duration // 0: 5s; also for writing a command
	Parallel    int           // nodes questioned at once; 0: 16
	// Writes says that the shards will be written to. A replica is then
	// refused, and abilities are learned with commands that would write if
	// their random key existed.
	Writes bool
	Logger *slog.Logger // seeds that did not answer; nil: nobody is told
}

// Topology is a target as it was found. It does not follow later changes.
type Topology struct {
	Cluster bool
	Notes   []string // what the reader of a report should know

	shards []*Shard
}

// Shards returns the shards in a fixed order: by database, or by first slot.
// Those with Err set are among them.
func (t *Topology) Shards() []*Shard { return t.shards }

// Close closes every connection.
func (t *Topology) Close() error {
	var errs []error
	for _, s := range t.shards {
		if s.client != nil {
			errs = append(errs, s.client.Close())
		}
	}
	return errors.Join(errs...)
}

var silence sync.Once

// Open finds the target's shards: the first address that answers is asked
// what it is, and in a cluster, once, for the slot map. A cluster node that
// cannot be reached becomes a shard with Err; an error comes back only when
// there is no shard to work on.
//
// Sends, per node, all O(1): what Shard.Verify sends, INFO memory, cluster
// and keyspace, and one probe per ability, see probe. CLUSTER SLOTS (3.0) to
// one node. SELECT and DBSIZE per database.
func Open(ctx context.Context, t config.Target, o Options) (*Topology, error) {
	silence.Do(func() { redis.SetLogger(quiet{}) })
	top, err := open(ctx, t, o.withDefaults(t))
	if err != nil {
		return nil, fmt.Errorf("open target %q: %w", t.Name, err)
	}
	return top, nil
}

func (o Options) withDefaults(t config.Target) Options {
	if len(o.Databases) == 0 {
		o.Databases = t.DBs
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 5 * time.Second
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = 5 * time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func open(ctx context.Context, t config.Target, o Options) (*Topology, error) {
	switch t.Mode {
	case config.ModeAuto, config.ModeStandalone, config.ModeCluster, "":
	default:
		return nil, fmt.Errorf("mode %q is not known", t.Mode)
	}
	if len(t.Addresses) == 0 {
		return nil, errors.New("no address configured")
	}
	d, err := newDialer(t, o)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, addr := range t.Addresses {
		top, err := openSeed(ctx, d, t.Mode, o, addr)
		if err == nil {
			for _, err := range failures {
				o.Logger.Warn("configured address skipped", "reason", err.Error())
			}
			return top, nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, oneLine(failures)
}

// oneLine joins errors for a message of one line.
func oneLine(errs []error) error {
	args := make([]any, len(errs))
	for i, err := range errs {
		args[i] = err
	}
	return fmt.Errorf(strings.TrimSuffix(strings.Repeat("%w; ", len(errs)), "; "), args...)
}
