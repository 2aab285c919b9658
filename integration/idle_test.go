package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// idles is what OBJECT IDLETIME says, in seconds; it leaves it as it is.
func (s *server) idles(t *testing.T, key string) int64 {
	t.Helper()
	return s.doInt(t, 0, "OBJECT", "IDLETIME", key)
}

// The threshold of these tests, and what idle keys are made to wait for.
const (
	idleOver  = "2s"
	idleLong  = 3 // seconds
	idleLimit = 30 * time.Second
)

// idle loads keys of every type: idle:… that nobody touches from then on, and
// used:… that somebody reads all the time, or will. It returns what there is:
// to take a digest is to touch.
func idle(t *testing.T, d *deployment) digest {
	t.Helper()
	bystand(t, d, 0, 20)
	for _, kind := range kinds {
		for _, n := range []int{1, 30, 3000} {
			for _, who := range []string{"idle", "used"} {
				load(t, d, 0, kind, fmt.Sprintf("%s:%s:%d", who, kind, n), n)
			}
		}
	}
	d.masters[0].do(t, 0, "EXPIRE", "idle:hash:30", 1000)
	d.masters[0].do(t, 0, "EXPIRE", "used:hash:30", 1000)
	return digestOf(t, d)
}

// rest waits until all keys are idle.
func rest(t *testing.T, servers ...*server) {
	t.Helper()
	for _, s := range servers {
		names := s.names(t, 0)
		eventually(t, idleLimit, "keys are idle", func() bool {
			return !slices.ContainsFunc(names, func(n string) bool { return s.idles(t, n) < idleLong })
		})
	}
}

// keepReading reads keys on a server until it is told to stop.
func keepReading(t *testing.T, s *server, keys []string) (stop func()) {
	t.Helper()
	w := newWire(t, s.addr)
	end, done := make(chan struct{}), make(chan struct{})
	once := func() {
		for _, k := range keys {
			for _, cmd := range [][]string{{"GET", k}, {"LRANGE", k, "0", "0"}, {"HGET", k, "x"}, {"SISMEMBER", k, "x"}, {"ZSCORE", k, "x"}} {
				_, _ = w.send(cmd) // one of them is of its type
			}
		}
	}
	once()
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
				once()
			}
		}
	}()
	return func() { close(end); <-done }
}

// withPrefix are the keys of a digest whose names begin so.
func (d digest) withPrefix(prefix string) (out []keyID, names []string) {
	for k := range d {
		if strings.HasPrefix(k.name, prefix) {
			out = append(out, k)
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	return out, names
}

// startReplica starts a replica and waits until it is in step.
func startReplica(t *testing.T, b serverBinary, d *deployment) *server {
	t.Helper()
	host, port, _ := strings.Cut(d.masters[0].addr, ":")
	r := startServer(t, b, option("slaveof "+host+" "+port))
	eventually(t, time.Minute, "the replica is in step", func() bool { return r.info(t, "replication")["master_link_status"] == "up" })
	d.replicas = append(d.replicas, r)
	return r
}

// Keys that nobody touches go, those in use stay. The scenes rest side by
// side.
func TestIdle(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		looked := standalone(t, b)
		with := standalone(t, b)
		replica := startReplica(t, b, with)
		var ways []*deployment
		for _, w := range judgesOf(b) {
			ways = append(ways, standalone(t, b, w.opts...))
		}
		before := map[*deployment]digest{}
		for _, d := range append([]*deployment{looked, with}, ways...) {
			before[d] = idle(t, d)
		}
		eventually(t, time.Minute, "the replica has all keys", func() bool {
			return replica.doInt(t, 0, "DBSIZE") == with.masters[0].doInt(t, 0, "DBSIZE")
		})
		rest(t, with.masters[0], replica, looked.masters[0])
		t.Run("looking", func(t *testing.T) { idleLooking(t, looked) })
		t.Run("replica", func(t *testing.T) { idleReplica(t, with, replica, before[with]) })
		for i, w := range judgesOf(b) {
			t.Run(w.name+", read at the last moment", func(t *testing.T) { idleRead(t, ways[i], w, before[ways[i]]) })
		}
		for i, w := range judgesOf(b) {
			rest(t, ways[i].masters[0])
			t.Run(w.name, func(t *testing.T) { idleGo(t, ways[i], w, before[ways[i]]) })
		}
	})
}

// idleLooking: to look does not touch.
func idleLooking(t *testing.T, d *deployment) {
	m := d.masters[0]
	before := map[string]int64{}
	for _, n := range m.names(t, 0) {
		before[n] = m.idles(t, n)
	}
	o := newOperator(t)
	check := func(what string) {
		t.Helper()
		for n, was := range before {
			if is := m.idles(t, n); is < was {
				t.Errorf("%s: %s was idle for %d s and is for %d", what, n, was, is)
			}
		}
	}
	s := o.run(t, "scan", "--url", d.url(), "--idle-over", idleOver, "--format", "json").exit(0).summary()
	if s.KeysMatched != int64(len(before)) {
		s.from.error("%d keys matched, %d are idle", s.KeysMatched, len(before))
	}
	check("scan")
	base := args("clean", "--url", d.url(), "--prefix", "idle:", "--idle-over", idleOver, "--format", "json")
	for _, flags := range [][]string{nil, {"--type", "hash"}, {"--no-ttl"}, {"--min-elements", "20"}, {"--method", "drain"},
		{"--action", "expire", "--ttl", "1h"}, {"--action", "trim", "--keep", "10", "--keep-end", "tail"}} {
		s = o.run(t, args(base, flags)...).exit(0, 3).summary()
		if s.Outcomes["would_act"]+s.Outcomes["failed"] == 0 {
			s.from.error("nothing is idle")
		}
		check("clean " + strings.Join(flags, " "))
	}
	for _, f := range []string{"keys.jsonl"} {
		o.file(t, f, `{"key":"idle:hash:30","db":0}`+"\n")
		s = o.run(t, "delete", "--url", d.url(), "--keys-file", f, "--idle-over", idleOver, "--format", "json").exit(0).summary()
		s.outcomes(map[string]int64{"would_act": 1})
		check("delete")
	}
}

// idleReplica: a key that a replica serves reads of is in use.
func idleReplica(t *testing.T, d *deployment, replica *server, before digest) {
	m := d.masters[0]
	gone, _ := before.withPrefix("idle:")
	used, names := before.withPrefix("used:")
	stop := keepReading(t, replica, names)
	defer stop()
	o := newOperator(t)
	base := []string{"clean", "--url", d.url(), "--prefix", "idle:", "--prefix", "used:", "--idle-over", idleOver, "--format", "json"}

	// A replica that does not answer is not one that nobody reads from.
	conf := o.file(t, "away.yaml", fmt.Sprintf("targets:\n  here: {addresses: [%q], address_map: {%q: \"127.0.0.1:1\"}}\n", m.addr, replica.addr))
	away := args("clean", "--config", conf, "--target", "here", base[3:], "--execute")
	r := o.run(t, away...).exit(1)
	if !strings.Contains(r.stdout, replica.addr) || !strings.Contains(r.stdout, "idle-primary-only") {
		r.error("does not say which replica, and what to do")
	}
	if d.size(t) != int64(len(before)) {
		r.error("acted all the same")
	}

	s := o.run(t, base...).exit(0).summary()
	s.outcomes(map[string]int64{"would_act": int64(len(gone))})
	s = o.run(t, args(base, "--execute")...).exit(0).summary()
	if s.removed() != int64(len(gone)) || d.size(t) != int64(len(before)-len(gone)) {
		s.from.error("%d removed, want %d", s.removed(), len(gone))
	}
	s = o.run(t, args(base, "--idle-primary-only", "--execute")...).exit(0).summary()
	if s.removed() != int64(len(used)) {
		s.from.error("%d removed, want %d", s.removed(), len(used))
	}
	mustEqual(t, before, digestOf(t, d), append(gone, used...)...)
}

// idleRead: what is read when the command that removes it is on its way stays.
// By WATCH a key is set aside to be judged, and given back.
func idleRead(t *testing.T, d *deployment, w way, before digest) {
	m := d.masters[0]
	gone, idleNames := before.withPrefix("idle:")
	o := newOperator(t)
	flags := args("--idle-over", idleOver, "--execute", "--format", "json")

	var mu sync.Mutex
	other := newWire(t, m.addr)
	touched := map[string]bool{}
	p := startProxy(t, m, func(c *passing) {
		mu.Lock()
		defer mu.Unlock()
		if at := map[bool]string{true: "EVALSHA", false: "EXEC"}[w.scripts]; c.verb() != at {
			return
		}
		for _, k := range idleNames {
			if slices.Contains(c.near, k) || slices.Contains(c.args, k) {
				touched[k] = true
				_, _ = other.send([]string{"GET", k}, []string{"LLEN", k}, []string{"HLEN", k}, []string{"SCARD", k}, []string{"ZCARD", k})
			}
		}
	}, nil)
	obs := observe(t, d)
	s := o.run(t, args("clean", through(t, o, d, []*proxy{p}), "--prefix", "idle:", flags)...).exit(0).summary()
	if s.Outcomes["changed"] != int64(len(gone)) || len(touched) != len(gone) {
		s.from.error("%d were read at the last moment, %d changed", len(touched), s.Outcomes["changed"])
	}
	// Two a key that is set aside and given back; others are seen to be in use
	// before. What is in a MULTI is counted as EXEC before 5.0.
	if n := obs.calls(t, "renamenx") + obs.calls(t, "exec"); !w.scripts && n < 8 {
		t.Errorf("RENAMENX and EXEC were called %d times: nothing was set aside and given back", n)
	}
	mustEqual(t, before, digestOf(t, d))
}

// idleGo: what is idle goes; what is used all the time stays.
func idleGo(t *testing.T, d *deployment, w way, before digest) {
	m := d.masters[0]
	gone, _ := before.withPrefix("idle:")
	_, names := before.withPrefix("used:")
	o := newOperator(t)
	flags := args("--idle-over", idleOver, "--execute", "--format", "json")
	if !w.scripts {
		// What can't be given back can't be judged so.
		for _, action := range [][]string{{"expire", "--ttl", "1h"}, {"trim", "--keep", "1", "--keep-end", "tail"}} {
			o.run(t, args("clean", "--url", d.url(), "--prefix", "idle:", "--action", action, flags)...).exit(3)
		}
	}
	stop := keepReading(t, m, names)
	defer stop()
	s := o.run(t, args("clean", "--url", d.url(), "--prefix", "idle:", "--prefix", "used:", flags)...).exit(0).summary()
	if s.removed() != int64(len(gone)) {
		s.from.error("%d removed, want %d", s.removed(), len(gone))
	}
	conf := o.config(t, d, "", job{name: "unused", prefix: "bystander:", also: ", idle_over: " + idleOver, more: executes})
	job := o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(0).runs()["unused"]
	if job.removed() != 20 {
		job.from.error("%d removed, want 20", job.removed())
	}
	all, _ := before.withPrefix("bystander:")
	mustEqual(t, before, digestOf(t, d), append(all, gone...)...)
}

// Idle times that nobody keeps, or that began with the server, are no reason
// to act.
func TestIdleUnknown(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		o := newOperator(t)
		refused := func(d *deployment, over, says string) {
			t.Helper()
			load(t, d, 0, "hash", "idle:1", 30)
			before := digestOf(t, d)
			for _, verb := range [][]string{{"scan"}, {"clean", "--execute"}} {
				r := o.run(t, args(verb, "--url", d.url(), "--prefix", "idle:", "--idle-over", over, "--format", "json")...).exit(1)
				if !strings.Contains(r.stdout, says) {
					r.error("does not say %q", says)
				}
			}
			mustEqual(t, before, digestOf(t, d))
		}
		refused(standalone(t, b), "30d", "is up for")
		if b.since(4, 0) {
			refused(standalone(t, b, "maxmemory-policy allkeys-lfu", "maxmemory 100mb"), "1ms", "allkeys-lfu")
		}
		if !b.since(7, 2) {
			d := standalone(t, b)
			load(t, d, 0, "hash", "idle:1", 30)
			eventually(t, idleLimit, "the server is up for a second", func() bool { return d.masters[0].info(t, "server")["uptime_in_seconds"] != "0" })
			r := o.run(t, "scan", "--url", d.url(), "--min-elements", "10", "--idle-over", "1s", "--format", "json").exit(1)
			if !strings.Contains(r.stdout, "NO-TOUCH") {
				r.error("does not say what would be reset")
			}
		}
	})
}
