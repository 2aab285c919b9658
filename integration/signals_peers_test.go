package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stopped stops a server's process until goOn is called.
func stopped(t *testing.T, s *server) (goOn func()) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn = sync.OnceFunc(func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) })
	t.Cleanup(goOn)
	return goOn
}

// overwrite writes so many MiB, most of which nobody keeps.
func overwrite(t *testing.T, s *server, mib int) {
	t.Helper()
	for range mib {
		s.do(t, 0, "SET", "overwritten", strings.Repeat("x", 1<<20))
	}
}

// raised is a flag file that holds the run, and lower removes it.
func raised(h *held, flag string) (lower func()) {
	h.t.Helper()
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.holds("the flag file " + flag + " is there")
	return func() {
		h.t.Helper()
		if err := os.Remove(flag); err != nil {
			h.t.Fatal(err)
		}
		h.until("the flag file holds no longer", func() bool { return h.says("no longer held", flag) })
	}
}

// TestHoldsForPeers: what is wrong with a server's replicas, with its
// cluster, or with itself as a whole, holds a run.
func TestHoldsForPeers(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		t.Run("replica_lag_bytes", func(t *testing.T) {
			t.Parallel()
			d, replica := replicated(t, b)
			h := drainSlowly(t, d, "hold_when: {replica_lag: 0, replica_lag_bytes: 1MiB}")
			// How far a replica is that has not told yet, nobody knows.
			h.until("the replica has said how far it is", func() bool {
				return !strings.Contains(d.masters[0].info(t, "replication")["slave0"], "offset=0,")
			})
			goOn := stopped(t, replica)
			overwrite(t, d.masters[0], 3)
			h.holds("replica "+replica.addr+" is 3.", "MiB behind, line 1.0 MiB")
			goOn()
			h.goesOn("replica "+replica.addr+" is 3.", "MiB behind, line 1.0 MiB")
		})
		t.Run("replica_buffers", func(t *testing.T) {
			t.Parallel()
			d, replica := replicated(t, b)
			m := d.masters[0]
			shows(t, m, "memory", "mem_clients_slaves")
			h := drainSlowly(t, d, "hold_when: {replica_lag: 0, replica_lag_bytes: 0, replica_buffers: 4MiB}")
			goOn := stopped(t, replica)
			// The kernel keeps some 10 MB of it. From 7.0 on the backlog, 1 MiB,
			// is no buffer of a replica's.
			overwrite(t, m, 24)
			r := m.info(t, "memory")
			t.Logf("mem_clients_slaves %s, mem_total_replication_buffers %q, mem_replication_backlog %q",
				r["mem_clients_slaves"], r["mem_total_replication_buffers"], r["mem_replication_backlog"])
			h.holds("MiB wait to be sent to replicas, line 4.0 MiB")
			goOn()
			h.goesOn("MiB wait to be sent to replicas, line 4.0 MiB")
		})
		t.Run("loading", func(t *testing.T) {
			t.Parallel()
			if !b.since(6, 2) {
				t.Skip("has no way to make a load of little data slow")
			}
			flag := filepath.Join(t.TempDir(), "hold")
			// A server that loads looks after its clients each 2 MiB.
			d := standalone(t, b, append(withDebug(b), "rdbcompression no", "key-load-delay 300000")...)
			m := d.masters[0]
			h := drainSlowly(t, d, fmt.Sprintf("hold_when: {flag_file: %q}", flag))
			for i := range 12 {
				m.do(t, 0, "SETRANGE", fmt.Sprint("ballast:", i), 21<<17, "x")
			}
			// Held in time, so that no batch meets the server as it begins to load.
			lower := raised(h, flag)
			before := h.left()
			loaded := make(chan error, 1)
			go func() { loaded <- m.client(0).Do(t.Context(), "DEBUG", "RELOAD").Err() }()
			h.begins("the server is loading its data")
			lower()
			select {
			case err := <-loaded:
				t.Errorf("loaded before the flag file was gone: %v", err)
			default:
			}
			if err := <-loaded; err != nil {
				t.Fatal(err)
			}
			if after := h.left(); after > before || after < before-3000 {
				t.Errorf("%d fields were removed while held", before-after)
			}
			h.goesOn("the server is loading its data")
		})
		t.Run("loading, in the middle of a batch", func(t *testing.T) {
			t.Parallel()
			if !b.since(6, 2) {
				t.Skip("has no way to make a load of little data slow")
			}
			d := standalone(t, b, append(withDebug(b), "rdbcompression no", "key-load-delay 200000")...)
			m := d.masters[0]
			load(t, d, 0, "hash", "big", 30_000)
			o := newOperator(t)
			r := o.start(t, "clean", "--action", "delete", "--prefix", "big", "--url", d.url(), "--method", "drain",
				"--elements-per-second", "10000", "--execute", "--format", "json")
			eventually(t, 30*time.Second, "the drain has begun", func() bool {
				return slices.ContainsFunc(m.names(t, 0), isTrash) || r.ended()
			})
			for i := range 10 {
				m.do(t, 0, "SETRANGE", fmt.Sprint("ballast:", i), 21<<17, "x")
			}
			// The next batch meets the server as it loads, before a sample tells.
			m.do(t, 0, "DEBUG", "RELOAD")
			s := r.wait().exit(0).summary()
			if s.Outcomes["drained"] != 1 && s.Outcomes["finished"] != 1 {
				s.from.error("neither drained nor finished")
			}
			if !strings.Contains(fmt.Sprint(s.Holds), "the server is loading its data") {
				s.from.error("holds %+v do not tell of the load", s.Holds)
			}
			if n := m.doInt(t, 0, "DBSIZE"); n != 10 {
				s.from.error("%d keys are left", n)
			}
		})
		t.Run("cluster_down", func(t *testing.T) {
			t.Parallel()
			if !b.hasCluster() {
				t.Skip("has no cluster")
			}
			flag := filepath.Join(t.TempDir(), "hold")
			d := startMasters(t, b, "cluster-require-full-coverage yes", "cluster-node-timeout 2000")
			h := drainSlowly(t, d, fmt.Sprintf("hold_when: {flag_file: %q, ping: 0}", flag))
			lower := raised(h, flag)
			calls := h.removals()
			var other *server
			for _, m := range d.masters {
				if m != h.owner() {
					other = m
				}
			}
			goOn := stopped(t, other)
			h.begins("the state of the cluster is fail")
			lower()
			time.Sleep(1500 * time.Millisecond) // a sample and a half
			if n := h.removals() - calls; n > 0 {
				t.Errorf("%d batches were removed while held", n)
			}
			goOn()
			h.until("the cluster is whole", func() bool {
				return strings.Contains(fmt.Sprint(h.owner().do(t, 0, "CLUSTER", "INFO")), "cluster_state:ok")
			})
			h.goesOn("the state of the cluster is fail")
		})
	})
}

// removals is how many batches were removed from the hash, by the server's
// count. A cluster that is down tells nothing of the hash itself.
func (h *held) removals() int64 {
	h.t.Helper()
	var calls int64
	_, _ = fmt.Sscanf(h.owner().info(h.t, "commandstats")["cmdstat_hdel"], "calls=%d", &calls)
	if calls == 0 {
		h.t.Fatal("no HDEL was counted")
	}
	return calls
}
