package integration

import (
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// restart ends the process and starts it again with the data that it has.
func (s *server) restart(t *testing.T) {
	t.Helper()
	s.do(t, 0, "SAVE")
	s.stop()
	s.done = make(chan struct{})
	s.cmd = exec.Command(s.bin.path, filepath.Join(s.dir, "server.conf"))
	dieWithTests(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	eventually(t, startLimit, s.addr+" is there again", s.answers)
}

// moveSlots moves the first n slots of one master, with their keys, to
// another.
func (d *deployment) moveSlots(t *testing.T, from, to *server, n int) {
	t.Helper()
	host, port, _ := net.SplitHostPort(to.addr)
	source, target := myID(t, from), myID(t, to)
	first := slices.Index(d.masters, from) * slots / len(d.masters)
	for slot := first; slot < first+n; slot++ {
		to.do(t, 0, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
		from.do(t, 0, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
		for {
			keys := from.do(t, 0, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
			if len(keys) == 0 {
				break
			}
			from.do(t, 0, append([]any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}, keys...)...)
		}
		for _, m := range []*server{to, from} {
			m.do(t, 0, "CLUSTER", "SETSLOT", slot, "NODE", target)
		}
	}
}

// TestScanIsMended: what becomes of the deployment in the middle of a scan, a
// key that was there throughout is counted once, and no exit 0 lacks one.
func TestScanIsMended(t *testing.T) {
	t.Parallel()
	eachServerThat(t, func(b serverBinary) bool { return b.since(3, 2) }, "has no MIGRATE with KEYS", func(t *testing.T, b serverBinary) {
		const keys = 12_000
		scan := func(t *testing.T, d *deployment, meanwhile func()) {
			t.Helper()
			flags := args("scan", "--url", d.url(), "--prefix", "small:", "--commands-per-second", "15000", "--format", "json")
			o := newOperator(t)
			r := o.start(t, flags...)
			time.Sleep(500 * time.Millisecond) // somewhere in the middle: the scan takes some seconds
			if r.ended() {
				t.Fatal("the scan was over before anything happened")
			}
			meanwhile()
			s := r.wait().exit(0).summary()
			s.complete(true)
			if s.KeysScanned != keys || s.KeysMatched != keys {
				s.from.error("%d keys scanned, %d matched, there are %d", s.KeysScanned, s.KeysMatched, keys)
			}
			if !strings.Contains(strings.Join(s.Notes, "\n"), "was scanned again") {
				s.from.error("no note that a shard was scanned again: %q", s.Notes)
			}
		}
		fill := func(t *testing.T, d *deployment) {
			t.Helper()
			loaders := map[*server]*loader{}
			for i := range keys {
				key := fmt.Sprintf("small:%d", i)
				m := d.owner(key)
				if loaders[m] == nil {
					loaders[m] = newLoader(t, m.addr, 0)
				}
				loaders[m].cmd("SET", key, "x")
			}
			for _, l := range loaders {
				l.close()
			}
		}
		t.Run("restart", func(t *testing.T) {
			d := standalone(t, b)
			fill(t, d)
			scan(t, d, func() { d.masters[0].restart(t) })
		})
		t.Run("cluster", func(t *testing.T) {
			d := startCluster(t, b)
			fill(t, d)
			for i, r := range d.replicas {
				eventually(t, time.Minute, "replica in step", func() bool {
					return r.doInt(t, 0, "DBSIZE") == d.masters[i].doInt(t, 0, "DBSIZE")
				})
			}
			t.Run("slots", func(t *testing.T) {
				scan(t, d, func() { d.moveSlots(t, d.masters[0], d.masters[1], 100) })
			})
			t.Run("restart", func(t *testing.T) {
				scan(t, d, func() { d.masters[2].restart(t) })
			})
			t.Run("failover", func(t *testing.T) {
				scan(t, d, func() {
					d.replicas[0].do(t, 0, "CLUSTER", "FAILOVER")
					eventually(t, time.Minute, "the replica took over", func() bool {
						return d.replicas[0].info(t, "replication")["role"] == "master"
					})
				})
			})
		})
	})
}

// TestResume: a scan that was killed goes on where it was, and tells the same
// in the end as one that was not.
func TestResume(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		seed(t, d, 8000)
		o := newOperator(t)
		flags := args("scan", "--url", d.url(), "--format", "json", "--state-dir", "state")
		whole := o.run(t, flags...).exit(0).summary()
		slow := append(flags, "--commands-per-second", "4000")
		first := o.start(t, slow...)
		eventually(t, 30*time.Second, "the place in the scan is on disk", func() bool {
			return len(o.places()) > 0 || first.ended()
		})
		first.signal(syscall.SIGKILL)
		if r := first.wait(); r.code == 0 {
			r.fatal("the scan was over before it could be killed")
		}
		s := o.run(t, append(flags, "--resume")...).exit(0).summary()
		s.complete(true)
		if !strings.Contains(strings.Join(s.Notes, "\n"), "went on from where a run was") {
			s.from.error("it began anew: %q", s.Notes)
		}
		if s.KeysScanned != whole.KeysScanned || s.KeysMatched != whole.KeysMatched || s.Bytes != whole.Bytes {
			s.from.error("%d scanned, %d matched, %d bytes, want %d, %d, %d",
				s.KeysScanned, s.KeysMatched, s.Bytes, whole.KeysScanned, whole.KeysMatched, whole.Bytes)
		}
		names := func(s summary) (out []string) {
			for _, f := range s.Findings {
				out = append(out, fmt.Sprint(f.DB, *f.Key))
			}
			slices.Sort(out)
			return out
		}
		if !slices.Equal(names(s), names(whole)) {
			s.from.error("the findings differ from those of a scan that was not killed")
		}
		if places, _ := filepath.Glob(filepath.Join(o.dir, "state", "checkpoints", "*")); len(places) > 0 {
			t.Errorf("places are left: %v", places)
		}
	})
}

// places are the files of where scans are, but for those that are just being
// written.
func (o *operator) places() []string {
	all, _ := filepath.Glob(filepath.Join(o.dir, "state", "checkpoints", "*"))
	return slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, ".new") })
}

// TestResumeEdited: a place that is not as it was written is none.
func TestResumeEdited(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		seed(t, d, 3000)
		o := newOperator(t)
		flags := args("scan", "--url", d.url(), "--format", "json", "--state-dir", "state")
		first := o.start(t, append(flags, "--commands-per-second", "3000")...)
		var places []string
		eventually(t, 30*time.Second, "the place in the scan is on disk", func() bool {
			places = o.places()
			return len(places) > 0 || first.ended()
		})
		first.signal(syscall.SIGKILL)
		first.wait()
		for _, place := range places {
			data, err := os.ReadFile(place)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(place, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := o.run(t, append(flags, "--resume")...).exit(0).summary()
		if s.KeysScanned != d.size(t) || strings.Contains(strings.Join(s.Notes, "\n"), "went on from") {
			s.from.error("%d keys scanned of %d, notes %q", s.KeysScanned, d.size(t), s.Notes)
		}
	})
}

// TestCountsAfterMending: a run whose connections are cut goes on, and counts
// what it did once.
func TestCountsAfterMending(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		l := newLoader(t, m.addr, 0)
		const lists, each = 3000, 20
		for i := range lists {
			args := []string{"RPUSH", fmt.Sprint("l:", i)}
			for j := range each {
				args = append(args, fmt.Sprint(j))
			}
			l.cmd(args...)
		}
		l.close()
		o := newOperator(t)
		o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]}}\njobs:\n  - name: short\n    target: here\n"+
			"    select: {prefix: [\"l:\"]}\n    action: {trim: {keep: 5, keep_end: tail}}\n    mode: execute\n"+
			"pace: {commands_per_second: 9000}\n", m.addr))
		r := o.start(t, "run", "--config", "c.yaml", "--all", "--format", "json")
		trimmed := func() (n int64) {
			for _, v := range m.pipeline(t, 0, func(p redis.Pipeliner) {
				for i := range lists {
					p.Do(t.Context(), "LLEN", fmt.Sprint("l:", i))
				}
			}) {
				if v.(int64) == 5 {
					n++
				}
			}
			return n
		}
		eventually(t, 30*time.Second, "some are trimmed", func() bool { return trimmed() > 100 || r.ended() })
		for _, line := range strings.Split(fmt.Sprint(m.do(t, 0, "CLIENT", "LIST")), "\n") {
			// Every connection but the test's own.
			if addr := field(line, "addr"); addr != "" && !strings.Contains(line, "cmd=client") {
				_ = m.client(0).Do(t.Context(), "CLIENT", "KILL", addr).Err() // it may be gone
			}
		}
		res := r.wait().exit(0, 3)
		s := res.runs()["short"]
		// What a lost reply was about may be told as failed.
		n, failed := trimmed(), s.Outcomes["failed"]
		if got := s.Outcomes["trimmed"]; n != lists || got > n || got+failed < n {
			res.error("%d are trimmed, %d told, %d failed", n, got, failed)
		}
	})
}

// field is one field of a line of CLIENT LIST.
func field(line, name string) string {
	for f := range strings.FieldsSeq(line) {
		if v, ok := strings.CutPrefix(f, name+"="); ok {
			return v
		}
	}
	return ""
}

// TestParts: workers that share out the shards miss none, and their reports
// join to that of one worker.
func TestParts(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasCluster, "has no cluster", func(t *testing.T, b serverBinary) {
		d := startCluster(t, b)
		seed(t, d, 1500)
		o := newOperator(t)
		whole := o.run(t, "scan", "--url", d.url(), "--format", "json").exit(0).summary()
		var parts []string
		for i := range 2 {
			part := fmt.Sprintf("part%d.json", i)
			o.run(t, "scan", "--url", d.url(), "--format", "json", "--output", part, "--shard", fmt.Sprintf("%d/2", i+1)).exit(0)
			parts = append(parts, part)
		}
		s := o.run(t, args("report", "merge", "--format", "json", parts)...).exit(0).summary()
		if len(s.Shards) != 3 || s.KeysScanned != whole.KeysScanned || s.Bytes != whole.Bytes {
			s.from.error("%d shards, %d keys, %d bytes, want 3, %d, %d", len(s.Shards), s.KeysScanned, s.Bytes, whole.KeysScanned, whole.Bytes)
		}
		o.run(t, args("report", "merge", parts, parts[0])...).exit(2)

		// Replicas are scanned, and what is found is removed at the primaries.
		w := observe(t, d)
		before := d.size(t)
		s = o.run(t, "clean", "--url", d.url(), "--prefix", "small:", "--read-from", "replica", "--execute", "--format", "json").exit(0).summary()
		if n := w.calls(t, "scan"); n > 2*3 {
			t.Errorf("the primaries were scanned: %d calls", n)
		}
		if gone := before - d.size(t); gone != s.removed() || gone == 0 {
			s.from.error("%d keys are gone, %d were reported", gone, s.removed())
		}
	})
}

// TestScanByScript finds what a scan without one finds.
func TestScanByScript(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasMemoryUsage, "has no MEMORY USAGE", func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		seed(t, d, 1500)
		for _, name := range hostileNames() {
			d.masters[0].do(t, 1, "SET", name, strings.Repeat("x", 3000))
		}
		o := newOperator(t)
		flags := args("scan", "--url", d.url(), "--min-bytes", "2000B", "--top", "100000", "--format", "json")
		plain := o.run(t, flags...).exit(0).summary()
		s := o.run(t, append(flags, "--script")...).exit(0).summary()
		// Which elements MEMORY USAGE weighs is not always the same.
		off := float64(s.Bytes)/float64(max(1, plain.Bytes)) - 1
		if s.KeysScanned != plain.KeysScanned || s.KeysMatched != plain.KeysMatched || math.Abs(off) > 0.01 || plain.KeysMatched == 0 {
			s.from.error("%d scanned, %d matched, %d bytes, want %d, %d, %d",
				s.KeysScanned, s.KeysMatched, s.Bytes, plain.KeysScanned, plain.KeysMatched, plain.Bytes)
		}
		o.run(t, "scan", "--url", d.url(), "--script").exit(2)
	})
}

// TestSlotMoving: where a slot is on its way nothing can be set aside, and the
// key is left as it is; it goes once the slot has come to rest.
func TestSlotMoving(t *testing.T) {
	t.Parallel()
	eachServerThat(t, func(b serverBinary) bool { return b.since(3, 2) }, "has no MIGRATE with KEYS", func(t *testing.T, b serverBinary) {
		d := startCluster(t, b, noUnlinkOn(b)...)
		load(t, d, 0, "hash", "big", 5000)
		from := d.owner("big")
		to := d.masters[(slices.Index(d.masters, from)+1)%len(d.masters)]
		slot := slotOf("big")
		to.do(t, 0, "CLUSTER", "SETSLOT", slot, "IMPORTING", myID(t, from))
		from.do(t, 0, "CLUSTER", "SETSLOT", slot, "MIGRATING", myID(t, to))
		before := digestOf(t, d)

		o := newOperator(t)
		flags := args("delete", "--url", d.url(), "--key", "big", "--method", "drain", "--execute", "--format", "json")
		s := o.run(t, flags...).exit(3).summary()
		s.outcomes(map[string]int64{"failed": 1})
		if !strings.Contains(s.Findings[0].Reason, "slot moving") {
			s.from.error("the reason is %q", s.Findings[0].Reason)
		}
		mustEqual(t, before, digestOf(t, d))

		for _, m := range []*server{to, from} {
			m.do(t, 0, "CLUSTER", "SETSLOT", slot, "STABLE")
		}
		o.run(t, flags...).exit(0).summary().outcomes(map[string]int64{"drained": 1})
		mustEqual(t, before, digestOf(t, d), keyID{0, "big"})
	})
}

// TestScanLeavesNoTrace: a scan by bytes changes neither idle times nor
// frequencies; one by elements says whose it had to reset.
func TestScanLeavesNoTrace(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasMemoryUsage, "has no MEMORY USAGE", func(t *testing.T, b serverBinary) {
		for _, use := range []struct{ policy, ask string }{{"allkeys-lru", "IDLETIME"}, {"allkeys-lfu", "FREQ"}} {
			t.Run(use.policy, func(t *testing.T) {
				t.Parallel()
				d := standalone(t, b, option("maxmemory-policy "+use.policy), "lfu-decay-time 0")
				m := d.masters[0]
				l := newLoader(t, m.addr, 0)
				const each = 200
				for i := range each * len(kinds) {
					l.fill(kinds[i%len(kinds)], fmt.Sprintf("key:%d", i), 40)
				}
				l.close()
				read := func() (out []int64) {
					for _, v := range m.pipeline(t, 0, func(p redis.Pipeliner) {
						for i := range each * len(kinds) {
							p.Do(t.Context(), "OBJECT", use.ask, fmt.Sprintf("key:%d", i))
						}
					}) {
						out = append(out, v.(int64))
					}
					return out
				}
				if use.ask == "IDLETIME" {
					eventually(t, 20*time.Second, "keys are idle", func() bool { return slices.Min(read()) >= 3 })
				}
				was := read()
				touched := func() (n int) {
					for i, v := range read() {
						// An idle time only grows, and a counter that does not decay stays.
						if use.ask == "IDLETIME" && v < was[i] || use.ask == "FREQ" && v != was[i] {
							n++
						}
					}
					return n
				}
				o := newOperator(t)
				s := o.run(t, "scan", "--url", d.url(), "--min-bytes", "1MiB", "--format", "json").exit(0).summary()
				if n := touched(); n > 0 || strings.Contains(strings.Join(s.Notes, "\n"), "was reset") {
					s.from.error("a scan by bytes left its trace on %d keys", n)
				}
				s = o.run(t, "scan", "--url", d.url(), "--min-elements", "1000", "--format", "json").exit(0).summary()
				if n := touched(); n > 0 && b.since(7, 2) {
					s.from.error("a scan by elements left its trace on %d keys, in spite of NO-TOUCH", n)
				}
				told := strings.Contains(strings.Join(s.Notes, "\n"), "was reset by asking for their length")
				if told == b.since(7, 2) {
					s.from.error("the report tells of keys that were touched: %v", told)
				}
			})
		}
	})
}
