package integration

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// expiring loads large keys that expire in so many seconds.
func expiring(t *testing.T, d *deployment, seconds, n int, names ...string) {
	t.Helper()
	for i, name := range names {
		load(t, d, 0, aggregates[i%len(aggregates)], name, n)
	}
	for _, name := range names {
		d.masters[0].do(t, 0, "EXPIRE", name, seconds)
	}
}

// inTime says that no key expired before its time to be set aside. A machine
// that stood still for the lead proves nothing.
func inTime(t *testing.T, s *server, n *noise, looked time.Duration) {
	t.Helper()
	if s.expired(t) == "0" {
		return
	}
	if held := n.most(); held > 500*time.Millisecond || looked > 2*time.Second {
		t.Skipf("too slow: the test's own clock stood still for %v, and the run took %v to look", held, looked)
	}
	t.Errorf("%s keys expired before they were set aside", s.expired(t))
}

// looked waits until a run has asked for the TTL of keys, and says how long
// that took.
func looked(t *testing.T, w *witness, r *running) time.Duration {
	t.Helper()
	eventually(t, 20*time.Second, "the keys are looked at", func() bool { return w.calls(t, "pttl") > 0 || r.ended() })
	return time.Since(r.started)
}

// expired is how many keys the server has freed because their time was up.
func (s *server) expired(t *testing.T) string {
	t.Helper()
	return s.info(t, "stats")["expired_keys"]
}

func defuses(d *deployment, more ...string) []string {
	return args("clean", "--url", d.url(), "--prefix", "report:", "--min-elements", 10_000, "--ttl-under", "1m",
		"--action", "defuse", more, "--format", "json")
}

// What is about to expire is drained before it does. The scenes wait side by
// side.
func TestDefuse(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		var ends []func()
		for _, w := range judgesOf(b) {
			ends = append(ends, defuseOne(t, standalone(t, b, w.opts...)))
		}
		ends = append(ends, defuseSeveral(t, standalone(t, b)))
		for _, end := range ends {
			end()
		}
	})
}

// defuseOne: what is given more time meanwhile, is small or far from its end
// is left alone.
func defuseOne(t *testing.T, d *deployment) (end func()) {
	m := d.masters[0]
	names := []string{"report:hash", "report:set", "report:list", "report:zset"}
	names = append(names, "report:extended", "report:persisted")
	expiring(t, d, 50, 20_000, names...)
	expiring(t, d, 600, 20_000, "report:later")
	expiring(t, d, 600, 500, "report:small")
	load(t, d, 0, "hash", "report:forever", 20_000)
	bystand(t, d, 0, 100)
	before := digestOf(t, d)
	o := newOperator(t)
	// Reporting waits for nothing and changes nothing.
	s := o.run(t, defuses(d)...).exit(0).summary()
	s.outcomes(map[string]int64{"would_act": 6})
	mustEqual(t, before, digestOf(t, d))

	w := observe(t, d)
	for _, n := range names {
		m.do(t, 0, "EXPIRE", n, 5)
	}
	r := o.start(t, defuses(d, "--execute")...)
	late := looked(t, w, r)
	m.do(t, 0, "EXPIRE", "report:extended", 1000)
	m.do(t, 0, "PERSIST", "report:persisted")
	before = digestOf(t, d)
	return func() {
		s = r.wait().exit(0).summary()
		inTime(t, m, w.noise, late)
		var gone []keyID
		for _, n := range names[:4] {
			gone = append(gone, keyID{0, n})
		}
		mustEqual(t, before, digestOf(t, d), gone...)
		if s.Outcomes["drained"] != 4 || s.Outcomes["failed"] != 0 || *s.ElementsRemoved != 80_000 {
			s.from.error("4 keys of 20,000 were to be drained")
		}
		if text := o.state(t); !strings.Contains(text, "report:hash") || !strings.Contains(text, "defuse") {
			t.Error("the audit does not say what was done")
		}
	}
}

// defuseSeveral: several are due while one is drained slowly. Each is moved in
// time, for the moves wait for no drain.
func defuseSeveral(t *testing.T, d *deployment) (end func()) {
	m := d.masters[0]
	names := []string{"report:0", "report:1", "report:2", "report:3"}
	expiring(t, d, 50, 12_000, names...)
	expiring(t, d, 50, 110_000, "report:slow")
	bystand(t, d, 0, 500)
	o := newOperator(t)
	w := observe(t, d)
	m.do(t, 0, "EXPIRE", "report:slow", 4)
	for _, n := range names {
		m.do(t, 0, "EXPIRE", n, 5)
	}
	// The slow one takes four seconds from the second on; then the others
	// would be gone.
	running := o.start(t, defuses(d, "--elements-per-second", "30000", "--execute")...)
	late := looked(t, w, running)
	return func() {
		r := running.wait().exit(0)
		inTime(t, m, w.noise, late)
		r.summary().outcomes(map[string]int64{"drained": 5})
		if n := d.size(t); n != 500 {
			t.Errorf("%d keys are left, want 500", n)
		}
	}
}

// A run that waits ends at once, and leaves alone what is not due.
func TestDefuseTerminated(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		expiring(t, d, 30, 20_000, "report:hash", "report:set")
		before := digestOf(t, d)
		o := newOperator(t)
		w := observe(t, d)
		r := o.start(t, defuses(d, "--execute")...)
		looked(t, w, r)
		time.Sleep(100 * time.Millisecond) // for it to wait
		sent := time.Now()
		r.signal(syscall.SIGTERM)
		res := r.wait().exit(143)
		if took := time.Since(sent); took > 2*time.Second {
			res.error("ended %v after the signal", took)
		}
		res.summary().complete(false)
		mustEqual(t, before, digestOf(t, d))
	})
}

// A run that is killed after it has set keys aside leaves them to the next.
func TestDefuseKilled(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		bystand(t, d, 0, 100)
		before := digestOf(t, d)
		expiring(t, d, 50, 20_000, "report:hash", "report:set")
		m.do(t, 0, "EXPIRE", "report:hash", 4)
		m.do(t, 0, "EXPIRE", "report:set", 4)
		o, w := newOperator(t), observe(t, d)
		conf := o.config(t, d, "", job{name: "before-they-expire", prefix: "report:", also: ", min_elements: 10000, ttl_under: 1m",
			more: []string{"action: {defuse: {lead: 2s}}", "mode: execute"}})
		r := o.start(t, defuses(d, "--elements-per-second", "2000", "--execute")...)
		late := looked(t, w, r)
		eventually(t, 20*time.Second, "both are set aside", func() bool {
			return r.ended() || m.doInt(t, 0, "EXISTS", "report:hash")+m.doInt(t, 0, "EXISTS", "report:set") == 0
		})
		r.signal(syscall.SIGKILL)
		<-r.done
		left := int64(len(strangers(before, digestOf(t, d))))
		inTime(t, m, w.noise, late)
		if left != 2 {
			t.Fatalf("%d keys are in the trash, want 2", left)
		}
		expiring(t, d, 4, 20_000, "report:list")
		s := o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(0).runs()["before-they-expire"]
		s.outcomes(map[string]int64{"finished": 2, "drained": 1})
		mustEqual(t, before, digestOf(t, d))
	})
}
