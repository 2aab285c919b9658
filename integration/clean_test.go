package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// form is one way in which a deployment is set up or told to delete, and what
// then becomes of the big keys.
type form struct {
	name    string
	opts    []option
	flags   []string
	user    bool // come as the user who lacks UNLINK
	offers  func(serverBinary) bool
	outcome func(serverBinary) string
}

func always(o string) func(serverBinary) string { return func(serverBinary) string { return o } }

// forms has every way in which UNLINK is there or not: on a server before 4.0
// all of them end in a drain.
var forms = []form{
	{name: "as it is", offers: func(serverBinary) bool { return true }, outcome: serverBinary.bigOutcome},
	{name: "UNLINK renamed away", opts: []option{noUnlink}, offers: serverBinary.hasUnlink, outcome: always("drained")},
	{name: "UNLINK refused by ACL", opts: []option{userWithoutUnlink}, user: true, offers: serverBinary.hasACL, outcome: always("drained")},
	{name: "method drain", flags: []string{"--method", "drain"}, offers: serverBinary.hasUnlink, outcome: always("drained")},
}

// TestClean is the main job. It does not run beside others: it reads the slow
// log, and commands are slow where two cores are shared.
func TestClean(t *testing.T) {
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, f := range forms {
			if f.offers(b) {
				t.Run(f.name, func(t *testing.T) { cleanForm(t, standalone(t, b, append(f.opts, slow20ms)...), f) })
			}
		}
	})
}

func cleanForm(t *testing.T, d *deployment, f form) {
	t.Helper()
	set := seed(t, d, size.small)
	before := digestOf(t, d)
	o := newOperator(t)
	url := d.url()
	if f.user {
		url = strings.Replace(url, "redis://", "redis://"+noUnlinkU+":"+noUnlinkP+"@", 1)
	}
	base := args("clean", "--url", url, atLeast(size.threshold), f.flags, "--format", "json")

	// Reporting runs the same path up to the act, and changes nothing.
	w := observe(t, d)
	s := o.run(t, args(base, "--all-keys")...).exit(0).summary()
	w.nothingForbidden(t)
	w.wroteNothing(t, "unlink", "del", "renamenx", "persist")
	mustEqual(t, before, digestOf(t, d))
	s.complete(true)
	s.outcomes(map[string]int64{"would_act": 4})
	mustFindBig(t, d, set, s)

	// Acting on every name needs consent.
	for _, vague := range [][]string{nil, {"--match", "*"}, {"--match", "**"}, {"--match", "?*"}, {"--match", "big:*", "--match", "*"}} {
		o.run(t, args(base, vague, "--execute")...).exit(2)
	}
	mustEqual(t, before, digestOf(t, d))

	w = observe(t, d)
	probes := make([]*probe, len(d.masters))
	for i, m := range d.masters {
		probes[i] = startProbe(t, m)
	}
	r := o.run(t, args(base, "--all-keys", "--execute")...)
	for i, p := range probes {
		t.Logf("%s: neighbour of %s: %v", f.name, d.masters[i].addr, p.end())
	}
	r.exit(0)
	w.nothingSlow(t)
	w.nothingForbidden(t)
	outcome := f.outcome(d.bin)
	t.Logf("%s: %s in %v", f.name, outcome, r.took.Round(time.Millisecond))
	if outcome == "drained" {
		if n := w.calls(t, "renamenx"); n < 4 {
			t.Errorf("four keys were to be set aside, RENAMENX was called %d times", n)
		}
	} else if n := w.calls(t, "unlink"); n < 4 {
		t.Errorf("UNLINK was called %d times", n)
	}
	if n := w.calls(t, "unlink"); n > 0 && f.name == "method drain" && n > 2*int64(len(d.masters)) {
		t.Errorf("UNLINK was called %d times in a drain", n)
	}
	mustEqual(t, before, digestOf(t, d), set.ids()...)

	s = r.summary()
	s.complete(true)
	s.outcomes(map[string]int64{outcome: 4})
	mustFindBig(t, d, set, s)
	if s.ElementsRemoved == nil || *s.ElementsRemoved != set.elements() {
		r.error("elements_removed is not %d", set.elements())
	}
	if s.BytesReleased == nil || *s.BytesReleased < 0 {
		r.error("bytes_released is missing")
	}
	if s.StoppedBy != "" || s.Error != "" {
		r.error("stopped_by %q, error %q", s.StoppedBy, s.Error)
	}
	for _, fd := range s.Findings {
		if fd.Outcome != outcome || fd.Method == "" {
			r.error("%s: outcome %q, method %q, want %s", *fd.Key, fd.Outcome, fd.Method, outcome)
		}
		if outcome == "drained" && fd.Batches < 10 && fd.Type != "list" {
			r.error("%s: drained in %d batches", *fd.Key, fd.Batches)
		}
	}

	// Nothing is left to do, and that is no error.
	s = o.run(t, args(base, "--all-keys", "--execute")...).exit(0).summary()
	s.outcomes(nil)
}

// TestCleanJournal reads every single command of a drain with its duration.
func TestCleanJournal(t *testing.T) {
	eachServer(t, func(t *testing.T, b serverBinary) {
		opts := []option{logAll}
		if b.hasUnlink() {
			opts = append(opts, noUnlink)
		}
		d := standalone(t, b, opts...)
		for _, kind := range aggregates {
			load(t, d, 0, kind, "big:"+kind, 60_000)
		}
		load(t, d, 0, "ties", "big:ties", 60_000)
		bystand(t, d, 0, 2000)
		before := digestOf(t, d)
		o := newOperator(t)
		w := observe(t, d)
		r := o.run(t, args("clean", "--url", d.url(), "--prefix", "big:", "--execute", "--format", "json")...).exit(0)
		lines := w.journal(t)
		mustEqual(t, before, digestOf(t, d), keyID{0, "big:hash"}, keyID{0, "big:set"}, keyID{0, "big:list"}, keyID{0, "big:zset"}, keyID{0, "big:ties"})
		r.summary().outcomes(map[string]int64{"drained": 5})

		worst := map[string]logged{}
		total := map[string]int{}
		for _, l := range lines {
			v := l.verb()
			total[v]++
			if l.took > worst[v].took {
				worst[v] = l
			}
			// No delete works in batches on a key under its own name.
			if len(l.args) > 1 && strings.HasPrefix(l.args[1], "big:") {
				switch v {
				case "HDEL", "SREM", "LTRIM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZREM", "SPOP", "DEL", "UNLINK", "LPOP", "RPOP":
					t.Errorf("removes under the key's own name: %v", l)
				}
			}
		}
		for v, l := range worst {
			t.Logf("%6d × %-17s longest %v", total[v], v, l.took)
		}
		// The DEL of what is left: of at most 1000 elements, some 0.3 ms.
		if l := worst["DEL"]; l.took > 4*time.Millisecond && w.noise.around(l.at) < 2*time.Millisecond {
			t.Errorf("a DEL of more than a rest: %v", l)
		}
		if total["DEL"] > 12 {
			t.Errorf("%d DELs for five keys", total["DEL"])
		}
	})
}

// A rule that names small keys deletes them, too, whatever their type.
func TestCleanByPrefix(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, renamed := range []bool{false, true} {
			opts := []option{}
			outcome := "unlinked"
			if renamed {
				opts = append(opts, noUnlink)
			}
			if renamed || !b.hasUnlink() {
				outcome = "deleted"
			}
			if renamed && !b.hasUnlink() {
				continue
			}
			t.Run(outcome, func(t *testing.T) {
				d := standalone(t, b, opts...)
				bystand(t, d, 0, size.bystanders)
				var victims []keyID
				l := newLoader(t, d.masters[0].addr, 0)
				var elements int64
				for i := range 3000 {
					kind := kinds[i%len(kinds)]
					k := keyID{0, fmt.Sprintf("old[v1]:%s:%d", kind, i)}
					l.fill(kind, k.name, 1+i%50)
					victims = append(victims, k)
					if kind != "string" {
						elements += int64(1 + i%50)
					}
				}
				// Neighbours that a prefix read as a glob, or no prefix, would take.
				for _, n := range []string{"oldv:1", "old1:1", "old", "old[v1]", "OLD[v1]:x", "x:old[v1]:1"} {
					l.cmd("SET", n, "x")
				}
				l.close()
				before := digestOf(t, d)
				o := newOperator(t)
				base := args("clean", "--url", d.url(), "--prefix", "old[v1]:", "--format", "json")
				s := o.run(t, base...).exit(0).summary()
				s.outcomes(map[string]int64{"would_act": 3000})
				mustEqual(t, before, digestOf(t, d))
				w := observe(t, d)
				s = o.run(t, args(base, "--execute")...).exit(0).summary()
				w.nothingForbidden(t)
				s.outcomes(map[string]int64{outcome: 3000})
				if s.KeysMatched != 3000 || len(s.Findings) != 100 {
					s.from.error("keys_matched %d, %d findings; want 3000 and the first 100", s.KeysMatched, len(s.Findings))
				}
				if s.ElementsRemoved == nil || *s.ElementsRemoved < elements {
					s.from.error("elements_removed is under %d", elements)
				}
				mustEqual(t, before, digestOf(t, d), victims...)
			})
		}
	})
}

// --method unlink means UNLINK or nothing.
func TestCleanMethodUnlinkRefused(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		opts := []option{}
		if b.hasUnlink() {
			opts = append(opts, noUnlink)
		}
		d := standalone(t, b, opts...)
		load(t, d, 0, "hash", "big:hash", 20_000)
		load(t, d, 0, "hash", "big:small", 5)
		before := digestOf(t, d)
		o := newOperator(t)
		r := o.run(t, "clean", "--url", d.url(), "--prefix", "big:", "--method", "unlink", "--execute", "--format", "json").exit(1, 2, 3)
		mustEqual(t, before, digestOf(t, d))
		if r.code != 2 {
			r.summary().outcomes(map[string]int64{"failed": 2})
		}
		if !strings.Contains(strings.ToUpper(r.stderr+r.stdout), "UNLINK") {
			r.error("does not say that UNLINK is missing")
		}
	})
}

// Limits end the run where they say, and the status shows it.
func TestCleanLimits(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		fill := func() digest {
			d.flush(t)
			l := newLoader(t, d.masters[0].addr, 0)
			for i := range 200 {
				l.fill("set", fmt.Sprintf("old:%d", i), 30)
			}
			l.close()
			return digestOf(t, d)
		}
		o := newOperator(t)
		base := args("clean", "--url", d.url(), "--prefix", "old:", "--execute", "--format", "json")
		check := func(t *testing.T, want int64, flags ...string) {
			t.Helper()
			before := fill()
			r := o.run(t, args(base, flags)...).exit(4)
			after := digestOf(t, d)
			if gone := int64(len(before) - len(after)); gone != want {
				r.error("%d keys are gone, the limit is %d", gone, want)
			}
			s := r.summary()
			if s.StoppedBy == "" {
				r.error("stopped_by is empty")
			}
			if s.removed() != want {
				r.error("outcomes add up to %d removed, %d are gone", s.removed(), want)
			}
		}
		t.Run("max-keys", func(t *testing.T) { check(t, 7, "--max-keys", "7") })
		t.Run("max-keys 1", func(t *testing.T) { check(t, 1, "--max-keys", "1") })
		t.Run("max-percent", func(t *testing.T) { check(t, 10, "--max-percent", "5%") })
		t.Run("max-percent rounds up", func(t *testing.T) { check(t, 1, "--max-percent", "0.1%") })
		t.Run("not reached", func(t *testing.T) {
			fill()
			s := o.run(t, args(base, "--max-keys", "200", "--max-percent", "100%", "--time-limit", "1h")...).exit(0).summary()
			if s.removed() != 200 || s.StoppedBy != "" || d.size(t) != 0 {
				s.from.error("200 keys within a limit of 200")
			}
		})
		t.Run("max-bytes", func(t *testing.T) {
			if !b.hasMemoryUsage() {
				t.Skip("no MEMORY USAGE")
			}
			fill()
			each := d.masters[0].doInt(t, 0, "MEMORY", "USAGE", "old:1")
			s := o.run(t, args(base, "--max-bytes", "10KiB")...).exit(4).summary()
			if n := 200 - d.size(t); n < 1 || n > 10*1024/(each-32) || s.removed() != n {
				s.from.error("%d sets of %d bytes went under a limit of 10 KiB", n, each)
			}
		})
		t.Run("time-limit", func(t *testing.T) {
			d.flush(t)
			load(t, d, 0, "hash", "old:big", 60_000)
			r := o.run(t, args(base, "--method", "drain", "--elements-per-second", "5000", "--time-limit", "1s")...).exit(4)
			if r.took.Seconds() > 6 {
				r.error("took %v under a time limit of 1 s", r.took)
			}
			if r.summary().StoppedBy == "" {
				r.error("stopped_by is empty")
			}
		})
		t.Run("report", func(t *testing.T) {
			before := fill()
			s := o.run(t, args("clean", "--url", d.url(), "--prefix", "old:", "--max-keys", 7, "--format", "json")...).exit(4).summary()
			s.outcomes(map[string]int64{"would_act": 7})
			mustEqual(t, before, digestOf(t, d))
		})
	})
}

// The pace is kept: budgets are what an operator relies on most.
func TestCleanPace(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		for _, kind := range aggregates {
			t.Run(kind, func(t *testing.T) {
				load(t, d, 0, kind, "big", 20_000)
				o := newOperator(t)
				r := o.run(t, "clean", "--url", d.url(), "--match", "big", "--method", "drain", "--elements-per-second", "10000",
					"--execute", "--format", "json").exit(0)
				r.summary().outcomes(map[string]int64{"drained": 1})
				// A burst of up to one second's worth is within the budget.
				if r.took < 900*time.Millisecond || r.took > 8*time.Second {
					r.error("20,000 elements at 10,000 a second took %v", r.took)
				}
				if n := d.size(t); n != 0 {
					t.Errorf("%d keys are left", n)
				}
			})
		}
	})
}

// The rule is judged again at the moment of the act: what shrank, changed its
// type or was written anew while the run was busy elsewhere stays.
func TestCleanRechecks(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		opts := []option{}
		if b.hasUnlink() {
			opts = append(opts, noUnlink)
		}
		for _, kind := range aggregates {
			t.Run(kind, func(t *testing.T) {
				d := standalone(t, b, opts...)
				m := d.masters[0]
				const keys, members = 12, 12_000
				for i := range keys {
					load(t, d, 0, kind, fmt.Sprintf("big:%d", i), members)
				}
				bystand(t, d, 0, 50)
				o := newOperator(t)
				r := o.start(t, "clean", "--url", d.url(), "--all-keys", "--min-elements", "10000", "--elements-per-second", "12000",
					"--execute", "--format", "json")
				// As soon as the first is set aside, the others are changed;
				// each was matched by the scan or will be looked at later.
				count := func() (n int) {
					for i := range keys {
						n += int(m.doInt(t, 0, "EXISTS", fmt.Sprintf("big:%d", i)))
					}
					return n
				}
				eventually(t, 20*time.Second, "a key is set aside", func() bool { return count() < keys || r.ended() })
				changed := map[keyID]bool{}
				shrink := map[string]string{
					"hash": "redis.call('DEL',KEYS[1]) redis.call('HSET',KEYS[1],'kept','1')",
					"set":  "redis.call('DEL',KEYS[1]) redis.call('SADD',KEYS[1],'kept')",
					"list": "redis.call('LTRIM',KEYS[1],0,99)",
					"zset": "redis.call('ZREMRANGEBYRANK',KEYS[1],99,-1)",
				}[kind]
				for i := range keys {
					k := keyID{0, fmt.Sprintf("big:%d", i)}
					act := shrink
					if i%3 == 1 { // another type under the same name
						act = "redis.call('SET',KEYS[1],'a string now')"
					}
					if m.doInt(t, 0, "EVAL", "if redis.call('EXISTS',KEYS[1])==0 then return 0 end "+act+" return 1", 1, k.name) == 1 {
						changed[k] = true
					} else {
						// The application writes the name again.
						m.do(t, 0, "SET", k.name, "written anew")
						changed[k] = true
					}
				}
				want := digestOf(t, d)
				for k := range want {
					if !changed[k] && !strings.HasPrefix(k.name, "bystander:") {
						delete(want, k) // what was set aside is drained
					}
				}
				res := r.wait().exit(0)
				mustEqual(t, want, digestOf(t, d))
				s := res.summary()
				if s.removed()+s.Outcomes["changed"]+s.Outcomes["gone"] > keys {
					res.error("more outcomes than keys")
				}
				t.Logf("of %d keys: %d drained, %d changed", keys, s.Outcomes["drained"], s.Outcomes["changed"])
			})
		}
	})
}

// A set with many equal scores has no score at which to cut a batch.
func TestCleanTies(t *testing.T) {
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, slow20ms)
		load(t, d, 0, "ties", "ties:all", size.zset)
		load(t, d, 0, "zset", "ties:half", size.zset)
		m := d.masters[0]
		// Scores that only differ in digits which a rounded text loses.
		l := newLoader(t, m.addr, 0)
		for i := range 5000 {
			l.cmd("ZADD", "ties:close", fmt.Sprintf("1.70000000%07d", i), fmt.Sprint(i))
			l.cmd("ZADD", "ties:ids", fmt.Sprint(1<<60+int64(i)), fmt.Sprint(i))
			l.cmd("ZADD", "ties:inf", []string{"-inf", "+inf"}[i%2], fmt.Sprint(i))
			l.cmd("ZADD", "ties:negative", fmt.Sprint(-i/2), fmt.Sprint(i))
		}
		l.close()
		bystand(t, d, 0, 500)
		before := digestOf(t, d)
		o := newOperator(t)
		w := observe(t, d)
		p := startProbe(t, m)
		r := o.run(t, "clean", "--url", d.url(), "--prefix", "ties:", "--method", "drain", "--execute", "--format", "json")
		t.Log(p.end())
		r.exit(0)
		w.nothingSlow(t)
		mustEqual(t, before, digestOf(t, d), keyID{0, "ties:all"}, keyID{0, "ties:half"}, keyID{0, "ties:close"},
			keyID{0, "ties:ids"}, keyID{0, "ties:inf"}, keyID{0, "ties:negative"})
		s := r.summary()
		s.outcomes(map[string]int64{"drained": 6})
		if want := int64(2*size.zset + 20_000); s.ElementsRemoved == nil || *s.ElementsRemoved != want {
			r.error("elements_removed is not %d", want)
		}
	})
}
