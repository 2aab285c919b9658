package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// held is a drain that goes on for a while, of one hash on one server, with a
// neighbour that pings the server meanwhile.
type held struct {
	t     *testing.T
	o     *operator
	d     *deployment
	run   *running
	trash string // the name of the hash while it is drained
}

// drainSlowly begins a drain that takes some ten seconds, under a
// configuration that holds or stops as lines say.
func drainSlowly(t *testing.T, d *deployment, lines string) *held {
	t.Helper()
	return drainSlowlyAs(t, d, "", lines)
}

// drainSlowlyAs has more to say of the target, such as a user.
func drainSlowlyAs(t *testing.T, d *deployment, target, lines string) *held {
	t.Helper()
	const fields = 30_000
	load(t, d, 0, "hash", "big", fields)
	h := &held{t: t, o: newOperator(t), d: d}
	p := startProbe(t, h.owner())
	t.Cleanup(func() { t.Logf("a neighbour meanwhile: %v", p.end()) })
	h.o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]%s}}\n%s\n", d.masters[0].addr, target, lines))
	h.run = h.o.start(t, "delete", "--config", "c.yaml", "--target", "here", "--key", "big", "--method", "drain",
		"--elements-per-second", "3000", "--execute", "--format", "json")
	h.until("the drain has begun", func() bool {
		if i := slices.IndexFunc(h.owner().names(t, 0), isTrash); i >= 0 {
			h.trash = h.owner().names(t, 0)[i]
		}
		return h.trash != "" && h.left() < fields && h.left() > 0
	})
	return h
}

// owner is the server that has the hash.
func (h *held) owner() *server { return h.d.owner("big") }

func (h *held) until(what string, cond func() bool) {
	h.t.Helper()
	h.within(30*time.Second, what, cond)
}

// within is until with another limit.
func (h *held) within(limit time.Duration, what string, cond func() bool) {
	h.t.Helper()
	eventually(h.t, limit, what, func() bool { return cond() || h.run.ended() })
	if h.run.ended() {
		h.run.wait().fatal("ended before: %s", what)
	}
}

// left is how many fields there are.
func (h *held) left() int64 {
	h.t.Helper()
	return h.owner().doInt(h.t, 0, "HLEN", h.trash)
}

// says reports whether the run said, on one line, all of this.
func (h *held) says(parts ...string) bool {
	for line := range strings.Lines(h.run.err.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

// holdLimit is how long a signal may be over its line before the run is held:
// a second until the next sample, one more for what is a rate, and the rest
// for a busy machine.
const holdLimit = 10 * time.Second

// begins waits until the run says that it is held for a reason with these
// words, and returns how long that took.
func (h *held) begins(words ...string) time.Duration {
	h.t.Helper()
	start := time.Now()
	h.within(holdLimit, fmt.Sprintf("held: %q", words), func() bool { return h.says(append(words, "msg=held")...) })
	took := time.Since(start)
	h.t.Logf("held after %v: %q", took.Round(10*time.Millisecond), words)
	return took
}

// holds waits until the run says that it is held for a reason with these
// words, and sees that nothing is removed then. It returns how long it took
// until the run was held.
func (h *held) holds(words ...string) time.Duration {
	h.t.Helper()
	took := h.begins(words...)
	// The batch at hand may still be on its way.
	before := int64(-1)
	h.until("nothing is removed any more", func() bool {
		was := before
		before = h.left()
		time.Sleep(600 * time.Millisecond)
		return was == before
	})
	time.Sleep(time.Second)
	if after := h.left(); after != before {
		h.t.Errorf("%d fields were removed while held", before-after)
	}
	return took
}

// goesOn sees that the run goes on by itself, ends well and tells of the hold.
func (h *held) goesOn(words ...string) {
	h.t.Helper()
	before := h.left()
	h.until(fmt.Sprintf("no longer held: %q", words), func() bool { return h.says(append(words, "no longer held")...) })
	h.until("it goes on", func() bool { return h.left() < before })
	h.o.run(h.t, "ctl", "pace", "--config", "c.yaml", "--elements-per-second", "1000000").exit(0)
	s := h.run.wait().exit(0).summary()
	s.outcomes(map[string]int64{"drained": 1})
	for _, hold := range s.Holds {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(hold.Reason, w) }) && hold.Seconds > 0.5 {
			return
		}
	}
	s.from.error("holds %+v do not tell of %q", s.Holds, words)
}

// replicated is a server with a replica that is in step, which the options are
// for.
func replicated(t *testing.T, b serverBinary, options ...option) (d *deployment, replica *server) {
	t.Helper()
	d, replica = standalone(t, b), startServer(t, b, options...)
	follow(t, replica, d.masters[0])
	eventually(t, 30*time.Second, "the replica is in step", func() bool {
		return strings.Contains(d.masters[0].info(t, "replication")["slave0"], "state=online") &&
			d.masters[0].info(t, "persistence")["rdb_bgsave_in_progress"] == "0"
	})
	return d, replica
}

func follow(t *testing.T, replica, master *server) {
	t.Helper()
	host, port, _ := strings.Cut(master.addr, ":")
	replica.do(t, 0, "SLAVEOF", host, port)
}

// stoppedChild begins a snapshot that goes on until goOn is called: one of
// this little data takes long only if something keeps it from ending.
func stoppedChild(t *testing.T, s *server, command string) (goOn func()) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("no way to find a server's child is known here")
	}
	for range 10 {
		s.do(t, 0, command)
		if child := childOf(t, s); child != 0 {
			var once sync.Once
			goOn = func() { once.Do(func() { _ = syscall.Kill(child, syscall.SIGCONT) }) }
			t.Cleanup(goOn)
			return goOn
		}
	}
	t.Fatal("ten snapshots were over before their process could be stopped")
	return nil
}

// TestHolds: each trouble holds a run, with its reason in words, and is over
// by itself.
func TestHolds(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		t.Run("replica stopped", func(t *testing.T) {
			t.Parallel()
			d, replica := replicated(t, b)
			const line = 2 * time.Second
			h := drainSlowly(t, d, "hold_when: {replica_lag: 2s}")
			_ = replica.cmd.Process.Signal(syscall.SIGSTOP)
			// A server counts whole seconds and is sampled once a second.
			if over := h.holds("replica "+replica.addr+" has said nothing for", "s, line 2s") - line; over > 4*time.Second {
				t.Errorf("held only %v after the line was crossed", over)
			}
			_ = replica.cmd.Process.Signal(syscall.SIGCONT)
			h.goesOn("replica "+replica.addr+" has said nothing for", "s, line 2s")
		})
		t.Run("replica lost", func(t *testing.T) {
			t.Parallel()
			d, replica := replicated(t, b)
			h := drainSlowly(t, d, "")
			replica.do(t, 0, "SLAVEOF", "NO", "ONE")
			h.holds("1 of 1 replicas are lost")
			follow(t, replica, d.masters[0])
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
			goOn := stoppedChild(t, d.masters[0], "BGSAVE")
			h.holds("BGSAVE is in progress")
			goOn()
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
		t.Run("two flag files", func(t *testing.T) {
			t.Parallel()
			wait, end := filepath.Join(t.TempDir(), "wait"), filepath.Join(t.TempDir(), "end")
			h := drainSlowly(t, standalone(t, b), fmt.Sprintf("hold_when: {flag_file: %q}\nstop_when: {flag_file: %q}", wait, end))
			for _, flag := range []string{wait, end} {
				if err := os.WriteFile(flag, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if flag == wait {
					h.holds("the flag file " + wait + " is there")
				}
			}
			if s := h.run.wait().exit(4).summary(); s.StoppedBy != "stop_when: the flag file "+end+" is there" {
				s.from.error("stopped by %q", s.StoppedBy)
			}
		})
		t.Run("pause", func(t *testing.T) {
			t.Parallel()
			h := drainSlowly(t, standalone(t, b), "")
			// The answers tell what is, not what will be.
			if r := h.o.run(t, "ctl", "pause", "--reason", "a deployment").exit(0); strings.Count(r.stdout, "paused by an operator: a deployment") != 2 {
				r.error("the run is not held at once")
			}
			if r := h.o.run(t, "ctl", "pace", "--elements-per-second", "2900", "--max-share", "7%").exit(0); !strings.Contains(r.stdout, "7%, 2,900 elements/s") {
				r.error("the answer does not tell the pace")
			}
			h.holds("paused by an operator: a deployment")
			if r := h.o.run(t, "ctl", "status").exit(0); !strings.Contains(r.stdout, "paused by an operator: a deployment") {
				r.error("the status does not tell of the pause")
			}
			h.run.signal(syscall.SIGUSR1)
			h.until("SIGUSR1 prints the state", func() bool { return strings.Contains(h.run.err.String(), "ELEMENTS") })
			if r := h.o.run(t, "ctl", "resume").exit(0); strings.Contains(r.stdout, "a deployment") {
				r.error("the run is still held")
			}
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
