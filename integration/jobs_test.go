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

// job is one entry of a configuration file.
type job struct {
	name, schedule, prefix string
	also                   string   // further conditions: ", types: [list]"
	more                   []string // further lines, indented by four
}

// config writes a configuration file with one target.
func (o *operator) config(t *testing.T, d *deployment, top string, jobs ...job) string {
	t.Helper()
	var y strings.Builder
	fmt.Fprintf(&y, "targets:\n  here: {addresses: [%q], mode: auto}\n", d.masters[0].addr)
	fmt.Fprintf(&y, "state_dir: %q\n%s", filepath.Join(o.dir, "keyjanitor-state"), top)
	y.WriteString("jobs:\n")
	for _, j := range jobs {
		fmt.Fprintf(&y, "  - name: %s\n    target: here\n", j.name)
		if j.schedule != "" {
			fmt.Fprintf(&y, "    schedule: %q\n", j.schedule)
		}
		fmt.Fprintf(&y, "    select: {prefix: [%q]%s}\n", j.prefix, j.also)
		for _, line := range j.more {
			fmt.Fprintf(&y, "    %s\n", line)
		}
	}
	return o.file(t, "keyjanitor.yaml", y.String())
}

var (
	executes = []string{"action: {delete: {method: auto}}", "mode: execute"}
	drains   = []string{"action: {delete: {method: drain}}", "mode: execute"}
)

func TestRunJobs(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		l := newLoader(t, d.masters[0].addr, 0)
		for i := range 30 {
			l.fill("set", fmt.Sprintf("a:%d", i), 9)
			l.fill("hash", fmt.Sprintf("b:%d", i), 9)
			l.fill("list", fmt.Sprintf("c:%d", i), 9)
		}
		l.close()
		bystand(t, d, 0, 50)
		before := digestOf(t, d)
		o := newOperator(t)
		conf := o.config(t, d, "protect: [\"a:1*\", \"session:*\"]\n",
			job{name: "first", prefix: "a:", more: executes},
			job{name: "second", prefix: "b:", more: executes},
			job{name: "looking", prefix: "c:", more: []string{"action: {delete: {method: auto}}"}})

		// Which jobs to run has to be said.
		o.run(t, "run", "--config", conf).exit(2)
		o.run(t, "run", "--config", conf, "--job", "frist").exit(2).says("first")
		mustEqual(t, before, digestOf(t, d))

		runs := o.run(t, "run", "--config", conf, "--all", "--report", "--format", "json").exit(0).runs()
		mustEqual(t, before, digestOf(t, d))
		if len(runs) != 3 {
			t.Fatalf("%d runs, want 3", len(runs))
		}
		runs["first"].outcomes(map[string]int64{"would_act": 19, "protected": 11})

		runs = o.run(t, "run", "--config", conf, "--job", "first", "--format", "json").exit(0).runs()
		outcome := "deleted"
		if b.hasUnlink() {
			outcome = "unlinked"
		}
		runs["first"].outcomes(map[string]int64{outcome: 19, "protected": 11})
		var gone []keyID
		for i := range 30 {
			if i != 1 && i/10 != 1 {
				gone = append(gone, keyID{0, fmt.Sprintf("a:%d", i)})
			}
		}
		mustEqual(t, before, digestOf(t, d), gone...)

		runs = o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(0).runs()
		runs["first"].outcomes(map[string]int64{"protected": 11})
		runs["second"].outcomes(map[string]int64{outcome: 30})
		runs["looking"].outcomes(map[string]int64{"would_act": 30})
		for i := range 30 {
			gone = append(gone, keyID{0, fmt.Sprintf("b:%d", i)})
		}
		// Neither a lock nor trash is left.
		mustEqual(t, before, digestOf(t, d), gone...)
		for name, s := range runs {
			if s.Job != name || s.Target == nil || *s.Target != "here" {
				t.Errorf("run %q says job %q, target %v", name, s.Job, s.Target)
			}
		}

		// Protection holds for selections from the command line, and for names.
		s := o.run(t, "clean", "--config", conf, "--target", "here", "--prefix", "a:", "--execute", "--format", "json").exit(0).summary()
		s.outcomes(map[string]int64{"protected": 11})
		s = o.run(t, "delete", "--config", conf, "--target", "here", "--key", "a:11", "--execute", "--format", "json").exit(0).summary()
		s.outcomes(map[string]int64{"protected": 1})
		mustEqual(t, before, digestOf(t, d), gone...)
	})
}

// A limit in the file ends the job with status 4, and --ok-on accepts it.
func TestRunLimit(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		l := newLoader(t, d.masters[0].addr, 0)
		for i := range 30 {
			l.fill("set", fmt.Sprintf("a:%d", i), 9)
		}
		l.close()
		o := newOperator(t)
		conf := o.config(t, d, "", job{name: "first", prefix: "a:", more: append([]string{"limits: {max_keys: 10}"}, executes...)})
		runs := o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(4).runs()
		// A lock that was given back is a key that has expired: DBSIZE may
		// still count it, SCAN does not.
		left := func() int { return len(d.masters[0].names(t, 0)) }
		if runs["first"].StoppedBy == "" || left() != 20 {
			runs["first"].from.error("stopped_by %q, %d left of 30 under a limit of 10", runs["first"].StoppedBy, left())
		}
		o.run(t, "run", "--config", conf, "--all", "--ok-on", "limit").exit(0)
		if left() != 10 {
			t.Errorf("%d keys left, want 10", left())
		}
	})
}

// One job is run by one process at a time, also when they know nothing of
// each other's files.
func TestRunLock(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		load(t, d, 0, "hash", "a:big", 40_000)
		load(t, d, 0, "hash", "b:big", 3_000)
		before := digestOf(t, d)
		o, other := newOperator(t), newOperator(t)
		slow := "pace: {elements_per_second: 10000}\n"
		list := []job{{name: "first", prefix: "a:", more: drains}, {name: "second", prefix: "b:", more: drains}}
		conf, conf2 := o.config(t, d, slow, list...), other.config(t, d, slow, list...)
		r := o.start(t, "run", "--config", conf, "--job", "first", "--format", "json")
		eventually(t, 20*time.Second, "the key is set aside", func() bool {
			return d.masters[0].doInt(t, 0, "EXISTS", "a:big") == 0 || r.ended()
		})
		busy := other.run(t, "run", "--config", conf2, "--job", "first", "--lock-wait", "0s", "--format", "json").exit(5)
		if busy.took > 5*time.Second {
			busy.error("waited %v with --lock-wait 0s", busy.took)
		}
		other.run(t, "run", "--config", conf2, "--job", "first", "--lock-wait", "0s", "--ok-on", "busy").exit(0)
		if r.ended() {
			t.Error("the first run was over too soon for this test")
		}
		// Another job is not in the way. It may help to finish what it meets
		// in the trash; what each says it removed adds up all the same.
		two := other.run(t, "run", "--config", conf2, "--job", "second", "--lock-wait", "0s", "--format", "json").exit(0).runs()["second"]
		one := r.wait().exit(0).runs()["first"]
		mustEqual(t, before, digestOf(t, d), keyID{0, "a:big"}, keyID{0, "b:big"})
		if one.Outcomes["drained"] != 1 || two.Outcomes["drained"] != 1 {
			t.Errorf("outcomes of first %v, of second %v", one.Outcomes, two.Outcomes)
		}
		if sum := *one.ElementsRemoved + *two.ElementsRemoved; sum != 43_000 {
			t.Errorf("of 43,000 elements first says it removed %d and second %d", *one.ElementsRemoved, *two.ElementsRemoved)
		}
		// Waiting gets the lock.
		load(t, d, 0, "hash", "a:big", 20_000)
		r = o.start(t, "run", "--config", conf, "--job", "first")
		eventually(t, 20*time.Second, "the key is set aside", func() bool {
			return d.masters[0].doInt(t, 0, "EXISTS", "a:big") == 0 || r.ended()
		})
		other.run(t, "run", "--config", conf2, "--job", "first", "--lock-wait", "20s").exit(0)
		if !r.ended() {
			t.Error("two runs of one job at a time")
		}
		r.wait().exit(0)
	})
}

// listen keeps a daemon's pages off the default port, where the build under
// test has pages.
func (o *operator) listen(t *testing.T) []string {
	t.Helper()
	if strings.Contains(o.run(t, "daemon", "--help").stdout, "--listen") {
		return []string{"--listen", "127.0.0.1:0"}
	}
	return nil
}

func TestDaemon(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		bystand(t, d, 0, 50)
		before := digestOf(t, d)
		o := newOperator(t)
		conf := o.config(t, d, "",
			job{name: "first", schedule: "@every 1s", prefix: "a:", more: executes},
			job{name: "second", schedule: "@every 1s", prefix: "b:", more: executes})
		r := o.start(t, args("daemon", "--config", conf, o.listen(t))...)
		for round := range 3 {
			for i := range 20 {
				m.do(t, 0, "SADD", fmt.Sprintf("a:%d", i), "x")
				m.do(t, 0, "SADD", fmt.Sprintf("b:%d", i), "x")
			}
			eventually(t, 15*time.Second, fmt.Sprintf("round %d: both jobs have run", round), func() bool {
				if r.ended() {
					r.wait().fatal("the daemon ended by itself")
				}
				for _, n := range m.names(t, 0) {
					if strings.HasPrefix(n, "a:") || strings.HasPrefix(n, "b:") {
						return false
					}
				}
				return true
			})
		}
		sent := time.Now()
		r.signal(syscall.SIGTERM)
		res := r.wait().exit(143, 0)
		if took := time.Since(sent); took > 2*time.Second {
			res.error("ended %v after SIGTERM", took)
		}
		mustEqual(t, before, digestOf(t, d))
	})
}

// A job that takes longer than its schedule allows is not started a second
// time. Two runs at once would drain at twice the pace.
func TestDaemonDoesNotOverlap(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		const members, pace = 50_000, 10_000
		load(t, d, 0, "hash", "a:big", members)
		bystand(t, d, 0, 50)
		before := digestOf(t, d)
		o := newOperator(t)
		conf := o.config(t, d, fmt.Sprintf("pace: {elements_per_second: %d}\n", pace),
			job{name: "first", schedule: "@every 1s", prefix: "a:", more: drains})
		r := o.start(t, args("daemon", "--config", conf, o.listen(t))...)
		eventually(t, 20*time.Second, "the key is set aside", func() bool {
			return m.doInt(t, 0, "EXISTS", "a:big") == 0 || r.ended()
		})
		begun := time.Now()
		length := func() (n int64) {
			for k, im := range digestOf(t, d) {
				if _, there := before[k]; !there && im.kind == "hash" {
					n += im.elements
				}
			}
			return n
		}
		eventually(t, 40*time.Second, "the hash is drained", func() bool { return length() == 0 || r.ended() })
		took := time.Since(begun)
		// A burst of one second's worth is allowed at the start.
		if least := time.Duration(members-pace) * time.Second / pace * 8 / 10; took < least {
			t.Errorf("drained in %v; one run alone needs %v", took, least)
		}
		if r.ended() {
			r.wait().fatal("the daemon ended by itself")
		}
		r.signal(syscall.SIGTERM)
		r.wait().exit(143, 0)
	})
}

// SIGTERM in mid-drain ends the daemon within two seconds; the next start
// finishes the rest, though it no longer meets min_elements.
func TestDaemonTerminated(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		load(t, d, 0, "hash", "a:big", 30_000)
		bystand(t, d, 0, 50)
		before := digestOf(t, d)
		o := newOperator(t)
		one := job{name: "first", schedule: "@every 1s", prefix: "a:", more: drains}
		write := func(pace int) string {
			conf := o.config(t, d, fmt.Sprintf("pace: {elements_per_second: %d}\n", pace), one)
			text, err := os.ReadFile(conf)
			if err != nil {
				t.Fatal(err)
			}
			return o.file(t, "keyjanitor.yaml", strings.Replace(string(text), `select: {`, `select: {min_elements: 20000, `, 1))
		}
		r := o.start(t, args("daemon", "--config", write(10_000), o.listen(t))...)
		left := func() (n int64) {
			for k, im := range digestOf(t, d) {
				if _, there := before[k]; !there && im.kind == "hash" {
					n += im.elements
				}
			}
			return n
		}
		eventually(t, 20*time.Second, "the drain is past its half", func() bool {
			n := left()
			return n > 0 && n < 15_000 || r.ended()
		})
		sent := time.Now()
		r.signal(syscall.SIGTERM)
		res := r.wait().exit(143, 0)
		if took := time.Since(sent); took > 2*time.Second {
			res.error("ended %v after SIGTERM", took)
		}
		if left() == 0 {
			res.fatal("the drain was over too soon for this test")
		}
		r = o.start(t, args("daemon", "--config", write(100_000), o.listen(t))...)
		// The lock of the first daemon was given back, or runs out in 15 s.
		eventually(t, 30*time.Second, "the rest is drained", func() bool { return left() == 0 || r.ended() })
		r.signal(syscall.SIGTERM)
		r.wait().exit(143, 0)
		mustEqual(t, before, digestOf(t, d), keyID{0, "a:big"})
	})
}

// state is the text of all files of the state directory.
func (o *operator) state(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(filepath.Join(o.dir, "keyjanitor-state"), func(p string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var one []byte
			if one, err = os.ReadFile(p); err == nil {
				text.Write(one)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// Intents are on disk before acts: the audit file names what was removed.
func TestAudit(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		for _, kind := range kinds {
			load(t, d, 0, kind, "old:"+kind, 3000)
		}
		o := newOperator(t)
		o.run(t, "clean", "--url", d.url(), "--prefix", "old:", "--execute").exit(0)
		text := o.state(t)
		for _, kind := range kinds {
			if !strings.Contains(text, "old:"+kind) {
				t.Errorf("the state directory has no word of old:%s", kind)
			}
		}
		// Where nothing can be written down, nothing is destroyed.
		load(t, d, 0, "set", "old:again", 10)
		o.file(t, "in-the-way", "a file")
		o.run(t, "clean", "--url", d.url(), "--prefix", "old:", "--state-dir", "in-the-way", "--execute").exit(2)
		if d.size(t) != 1 {
			t.Error("acted without a state directory")
		}
	})
}
