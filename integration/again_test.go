package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Scenes of what comes back, or goes away, while a run waits.

// TestPrunePaused: an entry that is in the index again keeps its keys, however
// long the run waited before it came to them.
func TestPrunePaused(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		const clients = 300
		l := newLoader(t, m.addr, 0)
		for i := range clients {
			l.cmd("HMSET", "seen", fmt.Sprint("c", i), "1000000000")
			l.cmd("SET", fmt.Sprint("client:c", i), "old")
		}
		l.close()
		o := newOperator(t)
		r := o.start(t, "clean", "--url", d.url(), "--match", "seen", "--action", "prune-index", "--older-than", "1h",
			"--value", "unix_seconds", "--also", "client:%entry%", "--commands-per-second", "300", "--execute", "--format", "json")
		pending := func() (out []string) {
			for _, name := range m.names(t, 0) {
				if strings.HasPrefix(name, "keyjanitor:pending:") {
					for _, v := range m.do(t, 0, "HKEYS", name).([]any) {
						out = append(out, v.(string))
					}
				}
			}
			return out
		}
		eventually(t, 30*time.Second, "entries are pending", func() bool { return len(pending()) > 0 || r.ended() })
		o.run(t, "ctl", "pause").exit(0)
		eventually(t, 30*time.Second, "held", func() bool { return strings.Contains(r.err.String(), "paused by an operator") || r.ended() })
		time.Sleep(500 * time.Millisecond) // the batch at hand
		back := pending()
		if len(back) == 0 {
			t.Fatal("nothing was pending while the run waited")
		}
		for _, entry := range back {
			m.do(t, 0, "SET", "client:"+entry, "fresh")
			m.do(t, 0, "HSET", "seen", entry, time.Now().Unix())
		}
		o.run(t, "ctl", "resume").exit(0)
		s := r.wait().exit(0).summary()
		for _, entry := range back {
			if v := m.client(0).Get(t.Context(), "client:"+entry).Val(); v != "fresh" {
				s.from.error("client:%s of an entry that came back is %q", entry, v)
				break
			}
		}
		if n := m.doInt(t, 0, "HLEN", "seen"); n != int64(len(back)) || len(pending()) > 0 {
			t.Errorf("%d entries are in the index, %d came back; %d are pending", n, len(back), len(pending()))
		}
	})
}

// TestInPlaceReplaced: a key that was put in the place of one that is drained
// under its own name is another key.
func TestInPlaceReplaced(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, append(noUnlinkOn(b), `rename-command RENAMENX ""`)...)
		m := d.masters[0]
		load(t, d, 0, "hash", "big", 30_000)
		o := newOperator(t)
		r := o.start(t, "clean", "--url", d.url(), "--prefix", "big", "--min-elements", "10000", "--in-place",
			"--elements-per-second", "5000", "--execute", "--format", "json")
		eventually(t, 30*time.Second, "the drain has begun", func() bool { return m.doInt(t, 0, "HLEN", "big") < 30_000 || r.ended() })
		m.do(t, 0, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HMSET', KEYS[1], 'a', '1', 'b', '2')", 1, "big")
		s := r.wait().exit(0).summary()
		s.outcomes(map[string]int64{"changed": 1})
		if n := m.doInt(t, 0, "HLEN", "big"); n != 2 {
			s.from.error("the new key has %d fields, want 2", n)
		}
	})
}

// TestIdleReplicaDies: what a replica knew of reads is unknown when it is gone,
// and nothing more is judged without it.
func TestIdleReplicaDies(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d, replica := standalone(t, b), startServer(t, b)
		host, port, _ := net.SplitHostPort(d.masters[0].addr)
		replica.do(t, 0, "SLAVEOF", host, port)
		l := newLoader(t, d.masters[0].addr, 0)
		const keys = 6000
		for i := range keys {
			l.cmd("SET", fmt.Sprint("i:", i), "x")
		}
		l.close()
		eventually(t, 30*time.Second, "keys are idle on both", func() bool {
			return replica.doInt(t, 0, "DBSIZE") == keys && replica.doInt(t, 0, "OBJECT", "IDLETIME", "i:1") >= 3 &&
				d.masters[0].doInt(t, 0, "OBJECT", "IDLETIME", fmt.Sprint("i:", keys-1)) >= 3
		})
		o := newOperator(t)
		r := o.start(t, "clean", "--url", d.url(), "--prefix", "i:", "--idle-over", "2s", "--commands-per-second", "4000", "--execute", "--format", "json")
		eventually(t, 30*time.Second, "some are gone", func() bool { return d.size(t) < keys || r.ended() })
		replica.stop()
		dead := d.size(t)
		time.Sleep(200 * time.Millisecond) // the page at hand
		left := d.size(t)
		s := r.wait().exit(1, 3).summary()
		s.complete(false)
		if after := d.size(t); after == 0 || left-after > 500 {
			s.from.error("%d keys were there when the replica died, %d soon after, and %d in the end", dead, left, after)
		}
	})
}

// TestResumedRunTellsItsOwn: a job that was stopped in mid-drain goes on, and
// tells what it did itself, and nothing of what the first run did.
func TestResumedRunTellsItsOwn(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		load(t, d, 0, "hash", "big", 40_000)
		bystand(t, d, 0, 50)
		o := newOperator(t)
		config := func(pace string) {
			o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]}}\npace: {elements_per_second: %s}\njobs:\n  - name: drain\n    target: here\n"+
				"    select: {prefix: [\"big\"]}\n    action: {delete: {method: drain}}\n    mode: execute\n", m.addr, pace))
		}
		config("5000")
		first := o.start(t, "run", "--config", "c.yaml", "--all", "--format", "json")
		left := func() (n int64) {
			for _, name := range m.names(t, 0) {
				if isTrash(name) {
					n = m.doInt(t, 0, "HLEN", name)
				}
			}
			return n
		}
		eventually(t, 30*time.Second, "the drain has begun", func() bool { n := left(); return n > 0 && n < 40_000 || first.ended() })
		first.signal(syscall.SIGTERM)
		first.wait().exit(143)
		rest := left()
		config("1000000")
		s := o.run(t, "run", "--config", "c.yaml", "--all", "--format", "json").exit(0).runs()["drain"]
		s.outcomes(map[string]int64{"finished": 1})
		if s.ElementsRemoved == nil || *s.ElementsRemoved != rest {
			s.from.error("elements_removed is not %d", rest)
		}
		s.complete(true)
	})
}

// TestStalledWhileHeld: a server that stands still for a while does not let a
// run go on that people hold.
func TestStalledWhileHeld(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		flag := filepath.Join(t.TempDir(), "hold")
		h := drainSlowly(t, standalone(t, b), fmt.Sprintf("hold_when: {flag_file: %q}", flag))
		if err := os.WriteFile(flag, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h.holds("the flag file " + flag + " is there")
		before := h.left()
		p := h.d.masters[0].cmd.Process
		_ = p.Signal(syscall.SIGSTOP)
		time.Sleep(7 * time.Second) // longer than a sample waits for its answer
		_ = p.Signal(syscall.SIGCONT)
		time.Sleep(2 * time.Second)
		if after := h.left(); after != before {
			t.Errorf("%d fields were removed while the flag file was there", before-after)
		}
		h.run.signal(syscall.SIGTERM)
		<-h.run.done
	})
}

// TestTrimManyConsumers: what consumers have pending is asked of the first
// entry, not of all of them.
func TestTrimManyConsumers(t *testing.T) {
	eachServerThat(t, serverBinary.hasStreams, "has no streams", func(t *testing.T, b serverBinary) {
		d := standalone(t, b, noUnlinkOn(b)...)
		m := d.masters[0]
		const entries, consumers = 12_000, 10_000
		m.pipeline(t, 0, func(p redis.Pipeliner) {
			for i := range entries {
				p.Do(t.Context(), "XADD", "s", fmt.Sprintf("%d-0", i+1), "f", "v")
			}
			p.Do(t.Context(), "XGROUP", "CREATE", "s", "g", "0")
		})
		m.pipeline(t, 0, func(p redis.Pipeliner) {
			for i := range consumers {
				p.Do(t.Context(), "XREADGROUP", "GROUP", "g", fmt.Sprint("c", i), "COUNT", 1, "STREAMS", "s", ">")
			}
		})
		ack := []any{"XACK", "s", "g"}
		for i := range 5000 {
			ack = append(ack, fmt.Sprintf("%d-0", i+1))
		}
		m.do(t, 0, ack...)
		w := observe(t, d)
		s := newOperator(t).run(t, "clean", "--url", d.url(), "--prefix", "s", "--type", "stream", "--action", "trim", "--keep", "1000", "--execute", "--format", "json").exit(0).summary()
		w.nothingSlow(t)
		if n := m.doInt(t, 0, "XLEN", "s"); n != entries-5000 {
			s.from.error("%d entries are left, want %d", n, entries-5000)
		}
	})
}
