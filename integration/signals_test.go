package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// another is a client of a server that has nothing to do with the test's own.
func another(t *testing.T, s *server, connections int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: s.addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: connections, ReadTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// meanwhile lets so many other clients repeat a step until end is called.
// What they are refused fails the test.
func meanwhile(t *testing.T, s *server, clients int, step func(ctx context.Context, c *redis.Client) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := another(t, s, clients)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := step(ctx, c); err != nil && ctx.Err() == nil {
					t.Errorf("another client: %v", err)
					return
				}
			}
		})
	}
	end = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(end)
	return end
}

// arrivals sends a command again and again, each over a connection of its
// own, whether the ones before were answered or not, until end is called. A
// command that takes longer than the next one stays away is always followed
// by one that waits already: clients that wait for their answers would all be
// answered at once, and leave the server idle until they ask again.
func arrivals(t *testing.T, s *server, every time.Duration, args ...any) (end func()) {
	t.Helper()
	c := another(t, s, 300)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			all.Go(func() {
				if err := c.Do(context.Background(), args...).Err(); err != nil {
					t.Errorf("another client: %v", err)
				}
			})
		}
	})
	end = sync.OnceFunc(func() { close(stop); all.Wait() })
	t.Cleanup(end)
	return end
}

// many is a step of one command n times, in one round trip, and a rest.
func many(n int, rest time.Duration, args func(i int) []any) func(context.Context, *redis.Client) error {
	return func(ctx context.Context, c *redis.Client) error {
		p := c.Pipeline()
		for i := range n {
			p.Do(ctx, args(i)...)
		}
		_, err := p.Exec(ctx)
		time.Sleep(rest)
		return err
	}
}

// withDebug lets a test use DEBUG, which 7.0 and later refuse as they are.
func withDebug(b serverBinary) []option {
	if b.since(7, 0) {
		return []option{"enable-debug-command yes"}
	}
	return nil
}

// shows skips a test where the server's INFO has no such field.
func shows(t *testing.T, s *server, section, field string) {
	t.Helper()
	if _, told := s.info(t, section)[field]; !told {
		t.Skipf("%s does not show %s", s.bin, field)
	}
}

// number is a field of INFO.
func (s *server) number(t *testing.T, section, field string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s.info(t, section)[field], 10, 64)
	if err != nil {
		t.Fatalf("%s: %s: %v", s.addr, field, err)
	}
	return n
}

// TestHoldsForServer: each signal of a server's own work holds a run while the
// condition is there in truth. The signals of its peers are in
// TestHoldsForPeers, what people give in TestHolds.
func TestHoldsForServer(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		t.Run("AOF rewrite", func(t *testing.T) {
			t.Parallel()
			h := drainSlowly(t, standalone(t, b), "")
			goOn := stoppedChild(t, h.owner(), "BGREWRITEAOF")
			h.holds("an AOF rewrite is in progress")
			goOn()
			h.goesOn("an AOF rewrite is in progress")
		})
		t.Run("aof_growth", func(t *testing.T) {
			t.Parallel()
			// The rewrite of the test's own is the only one.
			d := standalone(t, b, "appendonly yes", "appendfsync no", "auto-aof-rewrite-percentage 0", "rdbcompression no")
			h := drainSlowly(t, d, "hold_when: {aof_growth: 4MiB, snapshot: false}")
			// What is new makes the AOF larger than when the run began, also
			// after a rewrite: that may not hold for ever.
			for i := range 6 {
				h.owner().do(t, 0, "SET", fmt.Sprint("new:", i), strings.Repeat("x", 1<<20))
			}
			h.holds("the AOF has grown by 6.", "MiB, line 4.0 MiB")
			h.owner().do(t, 0, "BGREWRITEAOF")
			h.goesOn("the AOF has grown by 6.", "MiB, line 4.0 MiB")
		})
		t.Run("lazyfree_pending", func(t *testing.T) {
			t.Parallel()
			d := standalone(t, b)
			shows(t, d.masters[0], "memory", "lazyfree_pending_objects")
			h := drainSlowly(t, d, "hold_when: {lazyfree_pending: 3}")
			// However large the keys are, they are free within a fraction of a
			// second; so who frees them is stopped.
			goOn, err := stopLazyfree(t, h.owner())
			switch {
			case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported):
				t.Skip(err) // a container may not trace
			case err != nil:
				t.Fatal(err)
			}
			for i := range 5 {
				h.owner().do(t, 0, "EVAL", "for i=1,1000 do redis.call('sadd',KEYS[1],'member:'..i) end return redis.call('unlink',KEYS[1])",
					1, fmt.Sprint("unlinked:", i))
			}
			h.holds("5 unlinked keys are not free yet, line 3")
			goOn()
			h.goesOn("5 unlinked keys are not free yet, line 3")
		})
		t.Run("ping", func(t *testing.T) {
			t.Parallel()
			h := drainSlowly(t, standalone(t, b, withDebug(b)...), "hold_when: {ping: 50ms}")
			end := arrivals(t, h.owner(), 140*time.Millisecond, "DEBUG", "SLEEP", "0.15")
			h.holds("a PING takes ", "ms, line 50ms")
			end()
			h.goesOn("a PING takes ", "ms, line 50ms")
		})
		t.Run("ops_per_second", func(t *testing.T) {
			t.Parallel()
			h := drainSlowly(t, standalone(t, b), "hold_when: {ops_per_second: 5000}")
			end := meanwhile(t, h.owner(), 1, many(200, 10*time.Millisecond, func(int) []any { return []any{"SET", "counter", "1"} }))
			h.holds(" operations a second, line 5,000")
			end()
			h.goesOn(" operations a second, line 5,000")
		})
		t.Run("cpu", func(t *testing.T) {
			t.Parallel()
			h := drainSlowly(t, standalone(t, b), "hold_when: {cpu: 60%}")
			// Some 20 ms each, and always one whose turn is next.
			end := meanwhile(t, h.owner(), 2, many(1, 0, func(int) []any {
				return []any{"EVAL", "local n=0 for i=1,3000000 do n=n+i end return n", 0}
			}))
			h.holds("the server uses ", "% of a core, line 60%")
			end()
			h.goesOn("the server uses ", "% of a core, line 60%")
		})
		t.Run("evictions", func(t *testing.T) {
			t.Parallel()
			// Of what has a TTL only: the hash itself is not to be evicted.
			h := drainSlowly(t, standalone(t, b, "maxmemory-policy volatile-ttl"), "hold_when: {evictions: 50}")
			m := h.owner()
			write := many(20, 5*time.Millisecond, func(int) []any {
				return []any{"SETEX", fmt.Sprint("cached:", time.Now().UnixNano()), 3600, strings.Repeat("x", 4096)}
			})
			for range 50 {
				if err := write(t.Context(), m.client(0)); err != nil {
					t.Fatal(err)
				}
			}
			m.do(t, 0, "CONFIG", "SET", "maxmemory", m.number(t, "memory", "used_memory"))
			end := meanwhile(t, m, 1, write)
			h.holds(" keys a second are evicted, line 50")
			end()
			h.goesOn(" keys a second are evicted, line 50")
			if n := m.number(t, "stats", "evicted_keys"); n == 0 {
				t.Error("nothing was evicted")
			}
		})
		t.Run("memory", func(t *testing.T) {
			t.Parallel()
			d := standalone(t, b)
			m := d.masters[0]
			shows(t, m, "memory", "maxmemory")
			h := drainSlowly(t, d, "hold_when: {memory: 90%}")
			m.do(t, 0, "SETRANGE", "ballast", 40<<20, "x") // 5% of it are more than clients need
			m.do(t, 0, "CONFIG", "SET", "maxmemory", m.number(t, "memory", "used_memory")*100/95)
			h.holds("% of maxmemory are in use, line 90%")
			m.do(t, 0, "CONFIG", "SET", "maxmemory", "1gb")
			h.goesOn("% of maxmemory are in use, line 90%")
		})
		t.Run("no longer read", func(t *testing.T) {
			t.Parallel()
			if !b.hasACL() {
				t.Skip("has no users")
			}
			d := standalone(t, b, "user janitor on >sweep-9 ~* +@all")
			h := drainSlowlyAs(t, d, ", username: janitor, password: sweep-9", "")
			h.owner().do(t, 0, "ACL", "SETUSER", "janitor", "-info")
			h.holds("snapshot can no longer be read")
			for _, signal := range []string{"replica_lag", "replica_lag_bytes", "replica_lost", "replica_buffers", "lazyfree_pending", "loading", "cluster_down"} {
				if !h.says("msg=held", signal+" can no longer be read") {
					t.Errorf("%s does not hold", signal)
				}
			}
			h.owner().do(t, 0, "ACL", "SETUSER", "janitor", "+info")
			h.goesOn("snapshot can no longer be read")
		})
	})
}
