package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRefusedConnection: a server that refuses a new connection has carried
// out nothing that was to go over it, whatever the client library makes of it.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		if !b.hasACL() {
			t.Skip("has no users")
		}
		const n = 15_000
		for _, typ := range []string{"hash", "list", "zset"} {
			start := func(t *testing.T) (m *server, o *operator, run *running, left func() int64) {
				d := standalone(t, b, "user janitor on >sweep-9 ~* +@all", "lua-time-limit 100")
				m, o = d.masters[0], newOperator(t)
				load(t, d, 0, typ, "big", n)
				run = o.start(t, "delete", "--url", strings.Replace(d.url(), "://", "://janitor:sweep-9@", 1), "--key", "big", "--method", "drain",
					"--elements-per-second", "3000", "--execute", "--format", "json")
				left = func() (sum int64) {
					for _, name := range m.names(t, 0) {
						sum += m.doInt(t, 0, map[string]string{"hash": "HLEN", "list": "LLEN", "zset": "ZCARD"}[typ], name)
					}
					return sum
				}
				eventually(t, 30*time.Second, "the drain has begun", func() bool { return left() < n || run.ended() })
				return m, o, run, left
			}
			t.Run(typ+", another password", func(t *testing.T) {
				t.Parallel()
				m, o, run, left := start(t)
				m.do(t, 0, "ACL", "SETUSER", "janitor", "resetpass", ">another")
				m.do(t, 0, "CLIENT", "KILL", "USER", "janitor")
				s := run.wait().exit(3).summary()
				if left() == 0 || *s.ElementsRemoved > n-left() {
					s.from.error("%d elements removed, it says; %d are left", *s.ElementsRemoved, left())
				}
				m.do(t, 0, "ACL", "SETUSER", "janitor", "resetpass", ">sweep-9")
				o.run(t, "delete", "--url", "redis://janitor:sweep-9@"+m.addr, "--key", "none", "--method", "drain", "--execute", "--format", "json").
					exit(0).summary().outcomes(map[string]int64{"finished": 1, "gone": 1})
				if left() > 0 {
					t.Errorf("%d elements are left", left())
				}
			})
			t.Run(typ+", BUSY", func(t *testing.T) {
				t.Parallel()
				m, o, run, left := start(t)
				m.do(t, 0, "CLIENT", "KILL", "USER", "janitor")
				end := refusals["BUSY"](t, m)
				eventually(t, 30*time.Second, "held", func() bool { return strings.Contains(run.err.String(), "busy running a script") || run.ended() })
				time.Sleep(time.Second)
				end()
				r := run.wait()
				s := r.summary()
				if r.code == 3 { // a batch was on its way when the connection went
					s.outcomes(map[string]int64{"trashed": 1})
					s = o.run(t, "delete", "--url", "redis://janitor:sweep-9@"+m.addr, "--key", "none", "--method", "drain", "--execute", "--format", "json").
						exit(0).summary()
				}
				if got := s.Outcomes["drained"] + s.Outcomes["finished"]; got != 1 || left() > 0 {
					s.from.error("neither drained nor finished; %d elements are left", left())
				}
			})
		}
	})
}

// TestRefusedStart: a run that begins while the server refuses commands waits
// as one does that is at work, with its lock as with everything else.
func TestRefusedStart(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for name, refuse := range refusals {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := standalone(t, b, "save 86400 1000000", "lua-time-limit 100")
				m := d.masters[0]
				load(t, d, 0, "hash", "big", 5000)
				o := newOperator(t)
				o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]}}\njobs: [{name: sweep, target: here, select: {match: [\"big\"]}, "+
					"action: {delete: {method: drain}}, mode: execute}]\n", m.addr))
				end := refuse(t, m)
				run := o.start(t, "run", "--config", "c.yaml", "--all", "--format", "json")
				words := map[string]string{"BUSY": "busy running a script"}[name]
				if words == "" {
					words = name + " "
				}
				eventually(t, 30*time.Second, "held", func() bool { return strings.Contains(run.err.String(), words) || run.ended() })
				if name == "MISCONF" { // what only looks is not refused
					if s := o.run(t, "scan", "--url", d.url(), "--format", "json").exit(0).summary(); s.KeysScanned != 1 {
						s.from.error("%d keys scanned", s.KeysScanned)
					}
				}
				time.Sleep(1500 * time.Millisecond)
				if run.ended() {
					run.wait().fatal("it did not wait")
				}
				end()
				run.wait().exit(0).runs()["sweep"].outcomes(map[string]int64{"drained": 1})
			})
		}
	})
}

// TestRefusedForLong: a lock that runs out because its renewal is refused is
// nobody else's meanwhile.
func TestRefusedForLong(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		load(t, d, 0, "hash", "big", 20_000)
		o := newOperator(t)
		o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]}}\npace: {elements_per_second: 5000}\njobs: [{name: sweep, target: here, "+
			"select: {match: [\"big\"]}, action: {delete: {method: drain}}, mode: execute}]\n", m.addr))
		run := o.start(t, "run", "--config", "c.yaml", "--all", "--format", "json")
		locked := func() bool { return m.doInt(t, 0, "EXISTS", "keyjanitor:lock:sweep") == 1 }
		eventually(t, 30*time.Second, "the drain has begun", func() bool { return m.doInt(t, 0, "EXISTS", "big") == 0 || run.ended() })
		end := refusals["NOREPLICAS"](t, m)
		eventually(t, 30*time.Second, "the lock has run out", func() bool { return !locked() || run.ended() })
		time.Sleep(time.Second)
		end()
		run.wait().exit(0).runs()["sweep"].outcomes(map[string]int64{"drained": 1})
	})
}
