package jobs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/throttle"
)

// ErrBusy: another run holds the job's lock.
var ErrBusy = errors.New("another run holds the lock")

// ErrLockLost: the lock could not be renewed, so another run may hold it.
var ErrLockLost = errors.New("the lock was lost")

// The lock lives 15 s in the server and is renewed every 5 s. We count on it
// until 13 s after the last renewal that was confirmed was sent: two seconds
// are left for clocks that run at different speeds, and for a write that is
// on its way.
const (
	lockTTL    = 15 * time.Second
	lockRenew  = 5 * time.Second
	lockTrust  = 13 * time.Second
	lockPoll   = 250 * time.Millisecond
	lockRetry  = time.Second // of a renewal that the server refused
	lockPrefix = "keyjanitor:lock:"
)

// isLockName recognises what lockName makes.
func isLockName(name string) bool {
	job, ours := strings.CutPrefix(name, lockPrefix)
	job, part, parted := strings.Cut(job, "/")
	if parted {
		i, of, ok := strings.Cut(part, "-of-")
		if digits := strings.Trim(i+of, "0123456789") == "" && i != "" && of != ""; !ok || !digits {
			return false
		}
	}
	return ours && job != "" && len(job) <= 64 &&
		strings.Trim(job, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// lease is one run's hold on its job, kept in the target itself: whoever can
// reach the data can see it.
type lease struct {
	rdb   *redis.Client
	name  string
	token string
	until atomic.Int64 // monotonic: nanoseconds since start
	// The server refuses writes for now: nobody else takes the lock meanwhile,
	// though it may run out.
	refused atomic.Bool
	start   time.Time
	stop    context.CancelFunc
	done    chan struct{}
}

// takeLease waits up to wait for the job's lock, and for as long as refused
// says of an error that it is to be tried again, after a wait. lost is called
// once if it is lost later.
//
// Sends: SET NX PX (2.6.12) to the primary that owns the lock's name, in
// database 0, and GET where it is taken; each 250 ms, O(1).
func takeLease(ctx context.Context, shards []*topology.Shard, job string, wait time.Duration, refused func(context.Context, error) bool, lost func(error)) (*lease, error) {
	name := lockPrefix + job
	rdb, err := lockClient(shards, name)
	if err != nil {
		return nil, err
	}
	var token [16]byte
	_, _ = rand.Read(token[:]) // never fails, says its documentation
	l := &lease{rdb: rdb, name: name, token: hex.EncodeToString(token[:]), start: time.Now(), done: make(chan struct{})}
	for deadline := time.Now().Add(wait); ; {
		sent := time.Now()
		ok, err := l.take(ctx)
		if err != nil && refused(ctx, err) {
			continue
		}
		if err != nil {
			_ = rdb.Close()
			return nil, fmt.Errorf("take the lock %q: %w", name, err)
		}
		if ok {
			l.trust(sent)
			break
		}
		if time.Now().After(deadline) {
			_ = rdb.Close()
			return nil, fmt.Errorf("%w of job %q", ErrBusy, job)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			_ = rdb.Close()
			return nil, ctx.Err()
		}
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.renew(renewing, lost)
	return l, nil
}

// lockClient is a client for where a lock lives.
func lockClient(shards []*topology.Shard, name string) (*redis.Client, error) {
	for _, s := range shards {
		if s.Err == nil && s.Owns(topology.Slot(name)) {
			o := *s.Client().Options()
			o.DB = 0
			return redis.NewClient(&o), nil
		}
	}
	return nil, fmt.Errorf("take the lock %q: no reachable node owns its slot", name)
}

// othersAtWork reports whether another job's run may be going on at this
// moment, and so empties by itself what it has in the trash.
//
// Sends: EXISTS of the job's lock; O(1).
func (w *run) othersAtWork(ctx context.Context, job string) bool {
	if job == "-" || job == w.Job.Name {
		return false
	}
	rdb, err := lockClient(w.all, lockPrefix+job)
	if err != nil {
		return true
	}
	defer rdb.Close()
	n, err := rdb.Exists(ctx, lockPrefix+job).Result()
	return n > 0 || err != nil
}

// take tries once. A lock that an attempt without a reply took is ours too.
func (l *lease) take(ctx context.Context) (bool, error) {
	ok, err := l.rdb.SetNX(ctx, l.name, l.token, lockTTL).Result()
	if err != nil || ok {
		return ok, err
	}
	holder, err := l.rdb.Get(ctx, l.name).Result()
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE") {
		return false, nil // gone just now, or somebody else's key in our place
	}
	return err == nil && holder == l.token, err
}

func (l *lease) trust(sent time.Time) {
	l.until.Store(int64(sent.Add(lockTrust).Sub(l.start)))
}

// held reports, by our own monotonic clock, whether the lock is surely ours.
func (l *lease) held() bool {
	return l == nil || time.Since(l.start) < time.Duration(l.until.Load())
}

func (l *lease) renew(ctx context.Context, lost func(error)) {
	defer close(l.done)
	next := lockRenew
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
		next = lockRenew
		sent := time.Now()
		ours, err := l.expireIn(ctx, lockTTL)
		if err == nil && !ours && l.refused.Load() { // it may have run out
			ours, err = l.take(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case throttle.Refusal(err) != "":
			l.refused.Store(true)
			next = lockRetry
		case err == nil && ours:
			l.trust(sent)
			l.refused.Store(false)
		case err == nil, !l.held():
			l.refused.Store(false)
			l.until.Store(0)
			lost(ErrLockLost)
			return
		}
	}
}

// expireIn sets the lock's time to live if it is still ours.
//
// Sends: WATCH, GET, MULTI, PEXPIRE, EXEC; O(1).
func (l *lease) expireIn(ctx context.Context, ttl time.Duration) (ours bool, err error) {
	err = l.rdb.Watch(ctx, func(tx *redis.Tx) error {
		holder, err := tx.Get(ctx, l.name).Result()
		if errors.Is(err, redis.Nil) || err == nil && holder != l.token {
			return nil
		}
		if err != nil {
			return err
		}
		queued, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.PExpire(ctx, l.name, ttl)
			return nil
		})
		ours = err == nil
		if redis.HasErrorPrefix(err, "EXECABORT") { // why, PEXPIRE was told
			err = queued[0].Err()
		}
		return err
	}, l.name)
	if errors.Is(err, redis.TxFailedErr) {
		return false, nil
	}
	return ours, err
}

// release gives the lock back: a TTL of 0 takes the key away at once.
func (l *lease) release() {
	l.stop()
	<-l.done
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = l.expireIn(ctx, 0) // it expires by itself otherwise
	_ = l.rdb.Close()
}

// leased is a gate that lets nothing pass once the lock is not surely ours.
// It counts what drains remove while they go on, for one key may take hours.
type leased struct {
	*throttle.Gate
	lease   *lease
	drained *atomic.Int64
}

// Observe tells the gate, and counts.
func (g leased) Observe(kind string, n int, took time.Duration) {
	g.Gate.Observe(kind, n, took)
	if strings.HasPrefix(kind, "drain ") || strings.HasPrefix(kind, "trim ") {
		g.drained.Add(int64(n))
	}
}

// Wait waits as the gate does, and then looks at the lock.
func (g leased) Wait(ctx context.Context, commands, elements int, bytes int64) error {
	if err := g.Gate.Wait(ctx, commands, elements, bytes); err != nil {
		return err
	}
	for !g.lease.held() {
		if !g.lease.refused.Load() {
			return ErrLockLost
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock: %w", ctx.Err())
		}
	}
	return nil
}
