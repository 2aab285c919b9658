package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// held is a drain that goes on for a while, of one hash on one server.
type held struct {
	t    *testing.T
	o    *operator
	d    *deployment
	run  *running
	file string // the configuration
}

// drainSlowly begins a drain that takes some ten seconds, under a
// configuration that holds or stops as lines say.
func drainSlowly(t *testing.T, d *deployment, lines string) *held {
	t.Helper()
	load(t, d, 0, "hash", "big", 30_000)
	h := &held{t: t, o: newOperator(t), d: d}
	h.file = h.o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]}}\n%s\n", d.masters[0].addr, lines))
	h.run = h.o.start(t, "delete", "--config", "c.yaml", "--target", "here", "--key", "big", "--method", "drain",
		"--elements-per-second", "3000", "--execute", "--format", "json")
	h.until("the drain has begun", func() bool { return h.left() < 30_000 && h.left() > 0 })
	return h
}

func (h *held) until(what string, cond func() bool) {
	h.t.Helper()
	eventually(h.t, 30*time.Second, what, func() bool { return cond() || h.run.ended() })
	if h.run.ended() {
		h.run.wait().fatal("ended before: %s", what)
	}
}

// left is how many fields there are, under whatever name.
func (h *held) left() int64 {
	m := h.d.masters[0]
	for _, name := range m.names(h.t, 0) {
		return m.doInt(h.t, 0, "HLEN", name)
	}
	return 0
}

// holds waits until the run says that it is held for a reason, and sees that
// nothing is removed then.
func (h *held) holds(reason string) {
	h.t.Helper()
	h.until("held: "+reason, func() bool {
		text := h.run.err.String()
		return strings.Contains(text, "msg=held") && strings.Contains(text, reason)
	})
	// The batch at hand may still be on its way.
	before := int64(-1)
	h.until("nothing is removed any more", func() bool {
		was := before
		before = h.left()
		time.Sleep(300 * time.Millisecond)
		return was == before
	})
	time.Sleep(time.Second)
	if after := h.left(); after != before {
		h.t.Errorf("%d fields were removed while held", before-after)
	}
}

// goesOn sees that the run ends well by itself and tells of the hold.
func (h *held) goesOn(reason string) {
	h.t.Helper()
	before := h.left()
	h.until("it goes on", func() bool { return h.left() < before })
	h.o.run(h.t, "ctl", "pace", "--config", "c.yaml", "--elements-per-second", "1000000").exit(0)
	s := h.run.wait().exit(0).summary()
	s.outcomes(map[string]int64{"drained": 1})
	for _, hold := range s.Holds {
		if strings.Contains(hold.Reason, reason) && hold.Seconds > 0.5 {
			return
		}
	}
	s.from.error("holds %+v do not tell of %q", s.Holds, reason)
}

// replicated starts a server with a replica that is in step.
func replicated(t *testing.T, b serverBinary, options ...option) (d *deployment, replica *server) {
	t.Helper()
	d, replica = standalone(t, b), startServer(t, b, options...)
	host, port, _ := strings.Cut(d.masters[0].addr, ":")
	replica.do(t, 0, "SLAVEOF", host, port)
	eventually(t, 30*time.Second, "the replica is in step", func() bool {
		return strings.Contains(d.masters[0].info(t, "replication")["slave0"], "state=online") &&
			d.masters[0].info(t, "persistence")["rdb_bgsave_in_progress"] == "0"
	})
	return d, replica
}

// TestHolds: each trouble holds a run, with its reason in words, and is over
// by itself.
func TestHolds(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		t.Run("replica stopped", func(t *testing.T) {
			t.Parallel()
			d, replica := replicated(t, b)
			h := drainSlowly(t, d, "hold_when: {replica_lag: 2s}")
			_ = replica.cmd.Process.Signal(syscall.SIGSTOP)
			h.holds("has said nothing for")
			_ = replica.cmd.Process.Signal(syscall.SIGCONT)
			h.goesOn("line 2s")
		})
		t.Run("replica lost", func(t *testing.T) {
			t.Parallel()
			d, replica := replicated(t, b)
			h := drainSlowly(t, d, "")
			replica.do(t, 0, "SLAVEOF", "NO", "ONE")
			h.holds("1 of 1 replicas are lost")
			host, port, _ := strings.Cut(d.masters[0].addr, ":")
			replica.do(t, 0, "SLAVEOF", host, port)
			h.goesOn("replicas are lost")
		})
		t.Run("replica lost, stop_when", func(t *testing.T) {
			t.Parallel()
			d, replica := replicated(t, b)
			h := drainSlowly(t, d, "stop_when: {replica_lost: true}")
			replica.do(t, 0, "SLAVEOF", "NO", "ONE")
			s := h.run.wait().exit(4).summary()
			if !strings.Contains(s.StoppedBy, "replicas are lost") {
				s.from.error("stopped_by is %q", s.StoppedBy)
			}
			s.outcomes(map[string]int64{"trashed": 1})
		})
		t.Run("snapshot", func(t *testing.T) {
			t.Parallel()
			d := standalone(t, b, "rdbcompression no")
			h := drainSlowly(t, d, "")
			// A snapshot of this takes long only if something keeps it from ending.
			d.masters[0].do(t, 0, "BGSAVE")
			child := childOf(t, d.masters[0])
			if child == 0 {
				t.Skip("the snapshot was over before its process could be stopped")
			}
			h.holds("BGSAVE is in progress")
			_ = syscall.Kill(child, syscall.SIGCONT)
			h.goesOn("BGSAVE is in progress")
		})
		t.Run("flag file", func(t *testing.T) {
			t.Parallel()
			flag := filepath.Join(t.TempDir(), "hold")
			h := drainSlowly(t, standalone(t, b), fmt.Sprintf("hold_when: {flag_file: %q}", flag))
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h.holds("the flag file " + flag + " is there")
			if err := os.Remove(flag); err != nil {
				t.Fatal(err)
			}
			h.goesOn("flag file")
		})
		t.Run("pause", func(t *testing.T) {
			t.Parallel()
			h := drainSlowly(t, standalone(t, b), "")
			h.o.run(t, "ctl", "pause", "--reason", "a deployment").exit(0)
			h.holds("paused by an operator: a deployment")
			if r := h.o.run(t, "ctl", "status").exit(0); !strings.Contains(r.stdout, "paused by an operator: a deployment") {
				r.error("the status does not tell of the pause")
			}
			h.run.signal(syscall.SIGUSR1)
			h.until("SIGUSR1 prints the state", func() bool { return strings.Contains(h.run.err.String(), "ELEMENTS") })
			h.o.run(t, "ctl", "resume").exit(0)
			h.goesOn("a deployment")
			h.o.run(t, "ctl", "status").exit(1)
		})
		t.Run("stop", func(t *testing.T) {
			t.Parallel()
			h := drainSlowly(t, standalone(t, b), "")
			h.o.run(t, "ctl", "pause").exit(0)
			h.holds("paused by an operator")
			h.o.run(t, "ctl", "stop").exit(0)
			h.run.wait().exit(143).summary().outcomes(map[string]int64{"trashed": 1})
		})
		t.Run("outside the window", func(t *testing.T) {
			t.Parallel()
			now := time.Now().UTC()
			late := now.Add(3*time.Hour).Format("15:04") + "-" + now.Add(4*time.Hour).Format("15:04")
			d := standalone(t, b)
			load(t, d, 0, "hash", "big", 5000)
			o := newOperator(t)
			o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]}}\nhold_when: {only_between: [%q]}\n", d.masters[0].addr, late))
			r := o.start(t, "delete", "--config", "c.yaml", "--target", "here", "--key", "big", "--execute", "--format", "json")
			eventually(t, 30*time.Second, "held", func() bool { return strings.Contains(r.err.String(), "not between "+late) || r.ended() })
			if n := d.masters[0].doInt(t, 0, "HLEN", "big"); n != 5000 {
				t.Errorf("%d fields are left", n)
			}
			r.signal(syscall.SIGTERM)
			r.wait().exit(143)
		})
	})
}
