package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// judgesOf are the ways in which a server, with all else that it has, lets a
// key be judged and acted on in one step: by a script, and under WATCH. 2.8
// replicates scripts by their text and is never sent one.
func judgesOf(b serverBinary) []way {
	return slices.DeleteFunc(waysOf(b), func(w way) bool { return w.unlink != b.hasUnlink() })
}

func eachWay(t *testing.T, fn func(t *testing.T, b serverBinary, w way)) {
	t.Helper()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, w := range judgesOf(b) {
			t.Run(w.name, func(t *testing.T) { fn(t, b, w) })
		}
	})
}

// content is what a list, a sorted set or a stream holds, in order; of a
// stream the ids.
func (s *server) content(t *testing.T, db int, key string) (out []string) {
	t.Helper()
	var rows []any
	switch kind := s.do(t, db, "TYPE", key); kind {
	case "list":
		rows, _ = s.do(t, db, "LRANGE", key, 0, -1).([]any)
	case "zset":
		rows, _ = s.do(t, db, "ZRANGE", key, 0, -1).([]any)
	case "stream":
		rows, _ = s.do(t, db, "XRANGE", key, "-", "+").([]any)
		for i := range rows {
			rows[i] = rows[i].([]any)[0]
		}
	case "none":
	default:
		t.Fatalf("%q is a %v", key, kind)
	}
	for _, row := range rows {
		out = append(out, row.(string))
	}
	return out
}

// mustHold fails unless a key holds exactly these.
func (s *server) mustHold(t *testing.T, key string, want []string) {
	t.Helper()
	got := s.content(t, 0, key)
	if slices.Equal(got, want) {
		return
	}
	edge := func(list []string) string {
		if len(list) > 6 {
			return fmt.Sprintf("%q…%q", list[:3], list[len(list)-3:])
		}
		return fmt.Sprintf("%q", list)
	}
	t.Errorf("%s holds %d: %s; want %d: %s", key, len(got), edge(got), len(want), edge(want))
}

// xadd adds entries to a stream. The reply to each is two lines.
func (l *loader) xadd(key string, ids ...string) {
	for _, id := range ids {
		l.cmd("XADD", key, id, "f", "v")
		l.sent++
	}
}

// end is where a trim by number keeps entries.
type end struct{ name, kind string }

var ends = []end{{"head", "list"}, {"tail", "list"}, {"highest", "zset"}, {"lowest", "zset"}, {"newest", "stream"}}

// endsOf are those that a server has types for.
func endsOf(b serverBinary) []end {
	if b.hasStreams() {
		return ends
	}
	return ends[:4]
}

// kept are the n entries at an end.
func (e end) kept(all []string, n int) []string {
	n = min(n, len(all))
	if e.name == "head" || e.name == "lowest" {
		return all[:n]
	}
	return all[len(all)-n:]
}

// A trim to N leaves the N at the kept end, whatever the length was, and
// nothing of what a rule does not name is touched. Doing it again does
// nothing.
func TestTrimToNumber(t *testing.T) {
	t.Parallel()
	const keep = 100
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		bystand(t, d, 0, 100)
		l := newLoader(t, m.addr, 0)
		for _, kind := range []string{"list", "zset", "stream"} {
			if kind == "stream" && !b.hasStreams() {
				continue
			}
			for _, n := range []int{1, keep - 1, keep, keep + 1, keep + 100, 20_000} {
				for _, e := range ends {
					if e.kind == kind {
						l.entries(kind, fmt.Sprintf("trim:%s:%d", e.name, n), n)
					}
				}
			}
		}
		// Others under the same names, which no trim of theirs fits.
		for _, kind := range []string{"hash", "set", "string"} {
			l.fill(kind, "trim:other:"+kind, 3000)
		}
		l.close()
		o := newOperator(t)
		for _, e := range endsOf(b) {
			t.Run(e.name, func(t *testing.T) {
				before := digestOf(t, d)
				want := map[string][]string{}
				var removed, longer int64
				for k := range before {
					all := m.contentOf(t, k, e)
					if all == nil {
						continue
					}
					want[k.name] = e.kept(all, keep)
					if len(all) > keep {
						longer++
						removed += int64(len(all) - keep)
					}
				}
				base := args("clean", "--url", d.url(), "--prefix", "trim:"+e.name+":", "--action", "trim", "--keep", keep, "--keep-end", e.name, "--format", "json")
				if e.kind == "stream" && !w.scripts {
					// What groups wait for can't be told without a script.
					s := o.run(t, args(base, "--execute")...).exit(3).summary()
					s.outcomes(map[string]int64{"failed": longer})
					if !strings.Contains(s.Findings[0].Reason, "+eval") {
						s.from.error("does not say what is missing")
					}
					mustEqual(t, before, digestOf(t, d))
					return
				}
				s := o.run(t, base...).exit(0).summary()
				mustEqual(t, before, digestOf(t, d))
				s.outcomes(map[string]int64{"would_act": longer})

				obs := observe(t, d)
				s = o.run(t, args(base, "--execute")...).exit(0).summary()
				obs.nothingForbidden(t)
				s.outcomes(map[string]int64{"trimmed": longer})
				if *s.ElementsRemoved != removed {
					s.from.error("elements_removed %d, want %d", *s.ElementsRemoved, removed)
				}
				for key, list := range want {
					m.mustHold(t, key, list)
				}
				after := digestOf(t, d)
				for k, is := range after {
					if _, trimmed := want[k.name]; !trimmed && is.sum != before[k].sum {
						t.Errorf("%v was touched", k)
					}
				}
				o.run(t, args(base, "--execute")...).exit(0).summary().outcomes(nil)
				mustEqual(t, after, digestOf(t, d))
			})
		}
	})
}

// contentOf is the content of a key that a test made for one end; nil for
// others.
func (s *server) contentOf(t *testing.T, k keyID, e end) []string {
	var n int
	if got, _ := fmt.Sscanf(k.name, "trim:"+e.name+":%d", &n); got != 1 {
		return nil
	}
	return s.content(t, 0, k.name)
}

// entries fills a key with n entries whose order tells when they came.
func (l *loader) entries(kind, key string, n int) {
	switch kind {
	case "list":
		l.fill("list", key, n)
	case "zset":
		for i := range n {
			l.cmd("ZADD", key, strconv.Itoa(i/3+1), fmt.Sprintf("member:%08d", i))
		}
	case "stream":
		for i := range n {
			l.xadd(key, fmt.Sprintf("%d-%d", 1_000_000+i/3, i%3+1))
		}
	}
}

// A trim that keeps nothing is a delete of what it would trim, and says so.
func TestTrimKeepsNothing(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		fill := func() {
			d.flush(t)
			for _, kind := range kinds {
				load(t, d, 0, kind, "q:"+kind, 2000)
			}
			if b.hasStreams() {
				l := newLoader(t, m.addr, 0)
				l.entries("stream", "q:stream", 2000)
				l.close()
				group(t, m, "q:stream", "g", 0)
			}
		}
		o := newOperator(t)
		for _, e := range endsOf(b) {
			fill()
			before := digestOf(t, d)
			base := args("clean", "--url", d.url(), "--prefix", "q:", "--action", "trim", "--keep", 0, "--keep-end", e.name, "--format", "json")
			if e.kind == "stream" {
				// With it would go what a group has not acknowledged.
				o.run(t, args(base, "--execute")...).exit(2).says("acknowledged")
				mustEqual(t, before, digestOf(t, d))
				base = args(base, "--force-unacknowledged")
			}
			s := o.run(t, base...).exit(0).summary()
			s.outcomes(map[string]int64{"would_act": 1})
			mustEqual(t, before, digestOf(t, d))
			s = o.run(t, args(base, "--execute")...).exit(0).summary()
			mustEqual(t, before, digestOf(t, d), keyID{0, "q:" + e.kind})
			if s.removed() != 1 || !strings.Contains(strings.Join(s.Notes, " "), "deleted") {
				s.from.error("%s: %d removed, and it has to be said that it is a delete", e.name, s.removed())
			}
		}
	})
}

// The rule is judged again by the command that trims: what was changed when
// that was already on its way stays as it is.
func TestTrimRechecks(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		for _, action := range [][]string{
			{"--action", "trim", "--keep", "10", "--keep-end", "tail", "--type", "list"},
			{"--action", "trim", "--older-than", "1h", "--score", "unix_seconds"},
			{"--action", "expire", "--ttl", "1m"},
		} {
			kind := map[bool]string{true: "zset", false: "list"}[action[2] == "--older-than"]
			for _, c := range []struct {
				name   string
				flags  []string
				change []string
			}{
				{"shorter", []string{"--min-elements", "900"}, []string{map[string]string{"list": "LTRIM", "zset": "ZREMRANGEBYRANK"}[kind], "k", "0", "199"}},
				{"no TTL any more", []string{"--ttl-under", "2h"}, []string{"PERSIST", "k"}},
				{"longer TTL", []string{"--ttl-under", "2h"}, []string{"EXPIRE", "k", "10000"}},
				{"shorter TTL", []string{"--ttl-over", "30m"}, []string{"EXPIRE", "k", "100"}},
				{"another type", nil, []string{"RENAME", "other", "k"}},
				{"gone", nil, []string{"DEL", "k"}},
			} {
				if action[1] == "expire" && c.name == "another type" && len(c.flags) == 0 {
					continue // any type gets a TTL
				}
				// PERSIST right before EXEC is what no WATCH before 6.0.7 tells.
				for _, at := range []string{"EVALSHA", "WATCH", "EXEC"} {
					if (at == "EVALSHA") != w.scripts {
						continue
					}
					t.Run(fmt.Sprintf("%s %s, %s at %s", action[1], kind, c.name, at), func(t *testing.T) {
						d.flush(t)
						load(t, d, 0, kind, "k", 1000)
						load(t, d, 0, "hash", "other", 1000)
						m.do(t, 0, "EXPIRE", "k", 3600)
						other := newWire(t, m.addr)
						done := false
						var want digest
						p := startProxy(t, m, func(p *passing) {
							about := slices.Contains(p.near, "k") || slices.Contains(p.args, "k")
							if done || !about || p.verb() != at {
								return
							}
							done = true
							if _, err := other.send(c.change); err != nil {
								t.Error(err)
							}
							want = digestOf(t, d)
						}, nil)
						o := newOperator(t)
						r := o.run(t, args("clean", through(t, o, d, []*proxy{p}), "--prefix", "k", action, c.flags, "--execute", "--format", "json")...).exit(0, 3)
						if len(c.flags) > 0 && strings.HasPrefix(c.flags[0], "--ttl") && !w.scripts && !b.since(6, 2) {
							r.exit(3).summary().outcomes(map[string]int64{"failed": 1})
							return
						}
						if !done {
							r.fatal("%s was never sent", at)
						}
						mustEqual(t, want, digestOf(t, d))
						s := r.exit(0).summary()
						if s.Outcomes["changed"]+s.Outcomes["gone"] != 1 {
							r.error("neither changed nor gone")
						}
					})
				}
			}
		}
	})
}

// Jobs trim as the command line does, and the audit tells of each key.
func TestTrimJobs(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		bystand(t, d, 0, 50)
		now := int(m.clockOf(t, "unix_seconds"))
		l := newLoader(t, m.addr, 0)
		want := map[string][]string{}
		for i := range 3 {
			n := strconv.Itoa(i)
			l.entries("list", "queue:"+n, 2000)
			for j := range 2000 {
				l.cmd("ZADD", "delay:"+n, strconv.Itoa(now-(2000-j)*1000), strconv.Itoa(j))
			}
			if b.hasStreams() {
				for j := range 2000 {
					l.xadd("events:"+n, fmt.Sprintf("%d-%d", (now-(2000-j)*1000)*1000, j))
				}
			}
		}
		l.close()
		for i := range 3 {
			n := strconv.Itoa(i)
			want["queue:"+n] = m.content(t, 0, "queue:"+n)[1900:]
			// 86 steps of 1000 s are a day; the cutoff moves on while this runs,
			// so half a step is left on either side.
			want["delay:"+n] = m.content(t, 0, "delay:"+n)[2000-86:]
			if b.hasStreams() {
				want["events:"+n] = m.content(t, 0, "events:"+n)[2000-86:]
			}
		}
		before := digestOf(t, d)
		jobs := []job{
			{name: "short-queues", prefix: "queue:", also: ", types: [list]", more: []string{"action: {trim: {keep: 100, keep_end: tail}}", "mode: execute"}},
			{name: "old-delays", prefix: "delay:", also: ", types: [zset]", more: []string{"action: {trim: {older_than: 86500s, score: unix_seconds}}", "mode: execute"}},
		}
		if b.hasStreams() {
			jobs = append(jobs, job{name: "old-events", prefix: "events:", also: ", types: [stream]", more: []string{"action: {trim: {older_than: 86500s}}", "mode: execute"}})
		}
		o := newOperator(t)
		conf := o.config(t, d, "", jobs...)
		for _, s := range o.run(t, "run", "--config", conf, "--all", "--report", "--format", "json").exit(0).runs() {
			s.outcomes(map[string]int64{"would_act": 3})
		}
		mustEqual(t, before, digestOf(t, d))
		for _, s := range o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(0).runs() {
			s.outcomes(map[string]int64{"trimmed": 3})
		}
		audit := o.state(t)
		for key, list := range want {
			m.mustHold(t, key, list)
			if !strings.Contains(audit, key) {
				t.Errorf("the audit does not tell of %s", key)
			}
		}
		if !strings.Contains(audit, "trim: keep 100 tail") {
			t.Error("the audit does not say what was done")
		}
	})
}
