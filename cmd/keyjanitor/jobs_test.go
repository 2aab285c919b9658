package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/jobs"
)

const threeJobs = `
  - {name: first, target: here, select: {prefix: ["a:"]}, action: {delete: {}}, mode: execute}
  - {name: second, target: here, select: {prefix: ["b:"]}, action: {delete: {}}, mode: execute}
  - {name: looking, target: here, select: {prefix: ["c:"]}, action: {delete: {}}}
`

func (r ran) runs() []summary {
	r.t.Helper()
	var out struct{ Runs []summary }
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		r.t.Fatalf("%v: %s", err, r.stdout)
	}
	return out.Runs
}

func TestRun(t *testing.T) {
	m := server(t, "a:1", "a:2", "b:1", "c:1", "d:1")
	conf := configFor(t, m.Addr(), threeJobs)
	keyjanitor(t, "run", "--config", conf).exits(2, "--job", "--all")
	keyjanitor(t, "run", "--config", conf, "--all", "--job", "first").exits(2, "--job")
	keyjanitor(t, "run", "--config", conf, "--job", "frist").exits(2, "frist", "first, second, looking")
	keyjanitor(t, "run", "--all").exits(2, "--config")
	if n := m.TotalConnectionCount(); n != 0 {
		t.Errorf("%d connections for command lines that were refused", n)
	}
	runs := keyjanitor(t, "run", "--config", conf, "--all", "--report", "--format", "json").exits(0).runs()
	if len(runs) != 3 || runs[0].Outcomes["would_act"] != 2 || runs[0].Mode != "report" {
		t.Errorf("reports %+v", runs)
	}
	left(t, m, 0, "a:1", "a:2", "b:1", "c:1", "d:1")
	runs = keyjanitor(t, "run", "--config", conf, "--job", "second", "--format", "json").exits(0).runs()
	if len(runs) != 1 || runs[0].Outcomes["unlinked"] != 1 {
		t.Errorf("runs %+v", runs)
	}
	m.FastForward(time.Second) // a lock is given back by letting it expire, which the embedded server has to be told
	runs = keyjanitor(t, "run", "--config", conf, "--all", "--format", "json").exits(0).runs()
	if len(runs) != 3 || runs[0].Outcomes["unlinked"] != 2 || runs[2].Outcomes["would_act"] != 1 {
		t.Errorf("runs %+v", runs)
	}
	m.FastForward(time.Second)
	left(t, m, 0, "c:1", "d:1")
}

// A job whose lock another holds is skipped, the others run.
func TestRunBusy(t *testing.T) {
	m := server(t, "a:1", "b:1", "keyjanitor:lock:first")
	conf := configFor(t, m.Addr(), threeJobs)
	r := keyjanitor(t, "run", "--config", conf, "--all", "--lock-wait", "0s", "--format", "json").exits(5, `"first"`, "lock")
	if runs := r.runs(); len(runs) != 3 || runs[0].Complete || runs[1].Outcomes["unlinked"] != 1 {
		t.Errorf("runs %+v", runs)
	}
	keyjanitor(t, "run", "--config", conf, "--all", "--lock-wait", "0s", "--ok-on", "busy").exits(0, `"first"`, "--ok-on")
	if r := keyjanitor(t, "run", "--config", conf, "--job", "first", "--report", "--lock-wait", "0s"); r.code != 0 {
		t.Errorf("a report waits for the lock: exit %d", r.code)
	}
	m.FastForward(time.Second)
	left(t, m, 0, "a:1", "keyjanitor:lock:first")
}

// The gravest outcome of several jobs decides, and each is told.
func TestRunOfSeveral(t *testing.T) {
	m := server(t, "a:1", "a:2")
	conf := file(t, "c.yaml", fmt.Sprintf(`
targets:
  here: {addresses: [%q]}
  down: {addresses: ["127.0.0.1:1"]}
jobs:
  - {name: fine, target: here, select: {prefix: ["x:"]}}
  - {name: limited, target: here, select: {prefix: ["a:"]}, action: {delete: {}}, limits: {max_keys: 1}}
  - {name: down, target: down, select: {prefix: ["a:"]}}
`, m.Addr()))
	r := keyjanitor(t, "run", "--config", conf, "--all", "--format", "json").exits(4, `"limited"`, `"down"`, "127.0.0.1:1")
	if runs := r.runs(); len(runs) != 3 || runs[2].Complete {
		t.Errorf("%d reports, want one of each, and the last not complete", len(runs))
	}
	keyjanitor(t, "run", "--config", conf, "--all", "--ok-on", "limit").exits(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped{syscall.SIGTERM})
	world{}.runUnder(ctx, t, "run", "--config", conf, "--all").exits(143)
}

func TestConfigErrorsTellWhere(t *testing.T) {
	conf := file(t, "bad.yaml", "targets:\n  here: {addresses: [\"127.0.0.1:1\"]}\njobs:\n  - name: one\n    target: here\n    schedule: \"0 3 * *\"\n"+
		"    select: {prefx: [\"a:\"]}\n    limits: {time: 10}\n")
	for _, a := range [][]string{{"check"}, {"run", "--all"}, {"daemon"}, {"scan", "--target", "here"}} {
		keyjanitor(t, append(a, "--config", conf)...).exits(2, conf+":6:15: ", conf+":7:14: ", "prefix", conf+":8:20: ")
	}
	for _, a := range [][]string{{"check"}, {"run", "--all"}, {"daemon"}, {"scan"}} {
		keyjanitor(t, append(a, "--config", "absent.yaml")...).exits(2, "absent.yaml")
	}
	for _, a := range [][]string{{"run", "--all"}, {"daemon"}} {
		keyjanitor(t, append(a, "--config", file(t, "empty.yaml", ""))...).exits(2, "no jobs")
	}
}

// The daemon ends when it is told to, with the code of the signal.
func TestDaemonEnds(t *testing.T) {
	conf := configFor(t, "127.0.0.1:1", `
  - {name: nightly, target: here, schedule: "0 3 29 2 *", select: {prefix: ["a:"]}}
  - {name: by-hand, target: here, select: {prefix: ["a:"]}}
`)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(stopped{syscall.SIGTERM}) })
	world{}.runUnder(ctx, t, "daemon", "--config", conf).exits(143, "nightly", "-02-29T03:00:00", "by-hand")
	keyjanitor(t, "daemon").exits(2, "--config")
	unusable := configFor(t, "127.0.0.1:1", threeJobs)
	keyjanitor(t, "daemon", "--config", unusable, "--state-dir", file(t, "file", "")).exits(2, "state directory")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func contextOf(t *testing.T, config string) *cli.Context {
	t.Helper()
	set := flag.NewFlagSet("daemon", flag.ContinueOnError)
	set.String("config", config, "")
	return cli.NewContext(newApp(process{}), set, &cli.Context{Context: t.Context()})
}

// A file that is wrong changes nothing and is told; the next that is right is taken.
func TestReload(t *testing.T) {
	conf := configFor(t, "127.0.0.1:1", threeJobs)
	good, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	// Each time a file was not taken the next is written.
	texts := []string{"jobs: [", "", strings.Replace(string(good), "first", "renamed", 1)}
	hup := make(chan os.Signal, 1)
	next := func() {
		if err := os.WriteFile(conf, []byte(texts[0]), 0o600); err != nil {
			t.Error(err)
		}
		texts = texts[1:]
		hup <- syscall.SIGHUP
	}
	next()
	var log bytes.Buffer
	p := process{getenv: func(string) string { return "" }, stderr: writerFunc(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte("not taken")) {
			next()
		}
		return log.Write(line)
	})}
	cfg := p.reload(contextOf(t, conf), hup)
	if cfg == nil || len(cfg.Jobs) != 3 || cfg.Jobs[0].Name != "renamed" {
		t.Errorf("taken is %+v", cfg)
	}
	if n := strings.Count(log.String(), "configuration not taken"); n != 2 || !strings.Contains(log.String(), conf+":") {
		t.Errorf("two bad files are told %d times:\n%s", n, log.String())
	}
}

// What a scheduled run did is in the history and in the log.
func TestFire(t *testing.T) {
	m := server(t, "a:1", "a:2")
	conf := configFor(t, m.Addr(), threeJobs)
	var log bytes.Buffer
	p := process{getenv: func(string) string { return "" }, stderr: &log}
	c := contextOf(t, conf)
	cfg, err := p.loadJobs(c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.fire(t.Context(), cfg, &jobs.Control{}, requestOf(c, cfg, cfg.Jobs[0], 0))
		m.FastForward(time.Second)
	}
	left(t, m, 0)
	for _, words := range []string{"job=first", "exit=0", `outcomes="unlinked 2"`, "keys_matched=2"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("the log lacks %s:\n%s", words, log.String())
		}
	}
	text, err := os.ReadFile(filepath.Join(cfg.StateDir, "runs.jsonl"))
	if err != nil || strings.Count(string(text), "\n") != 2 || !strings.Contains(string(text), `"job":"first"`) {
		t.Errorf("the history is %s (%v)", text, err)
	}
}

func TestChoose(t *testing.T) {
	cfg := configFor(t, "127.0.0.1:1", threeJobs)
	loaded, err := process{getenv: func(string) string { return "" }}.load(contextOf(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := choose(loaded, []string{"looking", "first", "first"}, false)
	var names []string
	for _, j := range chosen {
		names = append(names, j.Name)
	}
	if err != nil || !slices.Equal(names, []string{"first", "looking"}) {
		t.Errorf("chosen are %q (%v), want each once in the order of the file", names, err)
	}
}

// Away from a terminal there is a line every ten seconds, and none with --quiet.
func TestProgress(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var told bytes.Buffer
			set := flag.NewFlagSet("scan", flag.ContinueOnError)
			set.Bool("quiet", quiet, "")
			g := &jobs.Progress{}
			add := func(n *atomic.Int64, by int64) { n.Add(by) }
			add(&g.KeysTotal, 5000)
			add(&g.KeysScanned, 1200)
			end := process{stderr: &told}.show(cli.NewContext(nil, set, nil), g)
			time.Sleep(105 * time.Second)
			end()
			want := 10
			if quiet {
				want = 0
			}
			if n := strings.Count(told.String(), "1,200 of about 5,000 keys scanned, 0 matched\n"); n != want {
				t.Errorf("quiet %t: %d lines in 105 s, want %d:\n%s", quiet, n, want, told.String())
			}
		})
	}
}
