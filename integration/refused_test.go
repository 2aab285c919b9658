package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestRefusedHolds: a server that refuses commands for now holds a run, with
// its own words, and the run goes on by itself. A run without that line fails,
// and the next finishes what it began.
func TestRefusedHolds(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for name, refuse := range refusals {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := standalone(t, b, "save 86400 1000000", "lua-time-limit 100")
				h := drainSlowly(t, d, "")
				end := refuse(t, d.masters[0])
				if name == "BUSY" { // then the test learns nothing either
					words := "busy running a script"
					h.until("held", func() bool { return strings.Contains(h.run.err.String(), words) })
					time.Sleep(2 * time.Second)
					end()
					h.goesOn(words)
					return
				}
				h.holds(name + " ")
				end()
				h.goesOn(name + " ")
			})
		}
		t.Run("no line", func(t *testing.T) {
			t.Parallel()
			d := standalone(t, b)
			h := drainSlowly(t, d, "hold_when: {refused: false}")
			end := refusals["NOREPLICAS"](t, d.masters[0])
			s := h.run.wait().exit(3).summary()
			s.outcomes(map[string]int64{"trashed": 1})
			end()
			h.o.run(t, "clean", "--config", "c.yaml", "--target", "here", "--prefix", "none", "--execute", "--format", "json").exit(0).
				summary().outcomes(map[string]int64{"finished": 1})
		})
		t.Run("stop_when", func(t *testing.T) {
			t.Parallel()
			d := standalone(t, b)
			h := drainSlowly(t, d, "stop_when: {refused: true}")
			defer refusals["NOREPLICAS"](t, d.masters[0])()
			if s := h.run.wait().exit(4).summary(); s.StoppedBy != "stop_when: the server refuses commands: NOREPLICAS Not enough good slaves to write." &&
				s.StoppedBy != "stop_when: the server refuses commands: NOREPLICAS Not enough good replicas to write." {
				s.from.error("stopped by %q", s.StoppedBy)
			}
		})
		// Where each key goes in one step, too: no key is told failed that was
		// refused, and none is counted twice.
		t.Run("purge", func(t *testing.T) {
			t.Parallel()
			d := standalone(t, b)
			const keys = 20_000
			m := d.masters[0]
			for i := range keys {
				m.do(t, 0, "SET", fmt.Sprintf("p:%d", i), "x")
			}
			o := newOperator(t)
			run := o.start(t, "clean", "--url", d.url(), "--prefix", "p:", "--commands-per-second", "800", "--execute", "--format", "json")
			eventually(t, 30*time.Second, "it has begun", func() bool { n := m.doInt(t, 0, "DBSIZE"); return n < keys && n > 0 || run.ended() })
			end := refusals["NOREPLICAS"](t, m)
			eventually(t, 30*time.Second, "held", func() bool { return run.ended() || strings.Contains(run.err.String(), "NOREPLICAS") })
			before := m.doInt(t, 0, "DBSIZE")
			if before == 0 {
				t.Error("it was over before")
			}
			time.Sleep(1500 * time.Millisecond)
			if after := m.doInt(t, 0, "DBSIZE"); after != before {
				t.Errorf("%d keys went meanwhile", before-after)
			}
			end()
			o.run(t, "ctl", "pace", "--commands-per-second", "1000000").exit(0)
			done := "unlinked"
			if !b.hasUnlink() {
				done = "deleted"
			}
			run.wait().exit(0).summary().outcomes(map[string]int64{done: keys})
		})
		// What only removes goes on when there is no memory left.
		t.Run("OOM", func(t *testing.T) {
			t.Parallel()
			d := standalone(t, b)
			h := drainSlowly(t, d, "")
			d.masters[0].do(t, 0, "CONFIG", "SET", "maxmemory", "1")
			before := h.left()
			h.until("it goes on", func() bool { return h.left() < before })
			h.o.run(t, "ctl", "pace", "--config", "c.yaml", "--elements-per-second", "1000000").exit(0)
			s := h.run.wait().exit(0).summary()
			s.outcomes(map[string]int64{"drained": 1})
		})
		// A server that became a replica is not written to any more.
		t.Run("READONLY", func(t *testing.T) {
			t.Parallel()
			d, other := standalone(t, b), standalone(t, b)
			h := drainSlowly(t, d, "")
			host, port, _ := strings.Cut(other.masters[0].addr, ":")
			d.masters[0].do(t, 0, "SLAVEOF", host, port)
			s := h.run.wait().exit(3).summary()
			s.outcomes(map[string]int64{"trashed": 1})
		})
	})
}

// TestMasterDown: what is read from a replica that lost its primary would be
// old: the scan is held, whether or not the replica itself refuses, and goes on
// when it is in step again.
func TestMasterDown(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, stale := range []string{"yes", "no"} {
			t.Run("stale data "+stale, func(t *testing.T) {
				t.Parallel()
				d, replica := replicated(t, b, option("slave-serve-stale-data "+stale))
				m := d.masters[0]
				const keys = 12_000
				for i := range keys {
					m.do(t, 0, "SET", fmt.Sprint("k:", i), "x")
				}
				o := newOperator(t)
				run := o.start(t, "scan", "--url", d.url(), "--read-from", "replica", "--commands-per-second", "12000", "--format", "json")
				eventually(t, 30*time.Second, "it has begun", func() bool {
					var calls int
					_, _ = fmt.Sscanf(replica.info(t, "commandstats")["cmdstat_scan"], "calls=%d", &calls)
					return calls > 5 || run.ended() // fewer see what it may do
				})
				replica.do(t, 0, "SLAVEOF", "127.0.0.1", "1")
				eventually(t, 30*time.Second, "held", func() bool {
					return run.ended() || strings.Contains(run.err.String(), "the replica that is read has lost its primary") ||
						stale == "no" && strings.Contains(run.err.String(), "MASTERDOWN ")
				})
				follow(t, replica, m)
				s := run.wait().exit(0).summary()
				s.complete(true)
				if s.KeysScanned != keys || !strings.Contains(strings.Join(s.Notes, "\n"), ": held ") {
					s.from.error("%d keys scanned of %d; notes %q", s.KeysScanned, keys, s.Notes)
				}
			})
		}
	})
}

// refusals are conditions under which a server refuses writes, or everything,
// by how its replies begin; each returns what ends it.
var refusals = map[string]func(t *testing.T, s *server) (end func()){
	"MISCONF": func(t *testing.T, s *server) func() {
		t.Helper()
		// Nothing can take the name of a directory that holds something.
		inTheWay := filepath.Join(s.dir, "dump.rdb")
		if err := os.MkdirAll(filepath.Join(inTheWay, "full"), 0o700); err != nil {
			t.Fatal(err)
		}
		save := func(status string) {
			s.do(t, 0, "BGSAVE")
			eventually(t, 30*time.Second, "the snapshot is "+status, func() bool {
				i := s.info(t, "persistence")
				return i["rdb_last_bgsave_status"] == status && i["rdb_bgsave_in_progress"] == "0"
			})
		}
		save("err")
		return func() {
			if err := os.RemoveAll(inTheWay); err != nil {
				t.Fatal(err)
			}
			save("ok")
		}
	},
	"NOREPLICAS": func(t *testing.T, s *server) func() {
		t.Helper()
		s.do(t, 0, "CONFIG", "SET", "min-slaves-to-write", "1")
		return func() { s.do(t, 0, "CONFIG", "SET", "min-slaves-to-write", "0") }
	},
	"BUSY": func(t *testing.T, s *server) func() {
		t.Helper()
		// A connection of its own: nothing sends it again.
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte("EVAL \"while true do end\" 0\r\n")); err != nil {
			t.Fatal(err)
		}
		busy := func() bool { return redis.HasErrorPrefix(s.client(0).Get(t.Context(), "x").Err(), "BUSY") }
		eventually(t, 30*time.Second, "the server is busy", busy)
		return func() {
			s.do(t, 0, "SCRIPT", "KILL")
			eventually(t, 30*time.Second, "the script has ended", func() bool { return !busy() })
		}
	},
}
