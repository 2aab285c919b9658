package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// configFor writes a configuration with one target and, if jobs are given,
// these under jobs.
func configFor(t *testing.T, addr, jobs string) string {
	t.Helper()
	if jobs == "" {
		jobs = "  - {name: one, target: here, select: {prefix: [\"old:\"]}}\n"
	}
	return file(t, "keyjanitor.yaml", fmt.Sprintf("targets:\n  here: {addresses: [%q]}\nstate_dir: %q\njobs:\n%s", addr, t.TempDir(), jobs))
}

func TestCheckJSON(t *testing.T) {
	m := server(t, "a", "b")
	conf := configFor(t, m.Addr(), `
  - {name: nightly, target: here, schedule: "0 3 * * *", timezone: Asia/Shanghai, select: {prefix: ["mi:"]}, action: {delete: {}}, mode: execute}
  - {name: by-hand, target: here, select: {prefix: ["old:"]}}
`)
	r := keyjanitor(t, "check", "--config", conf, "--format", "json").exits(0)
	var out map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shards", "acl", "jobs", "problems"} {
		if out[name] == nil {
			t.Errorf("%s is missing or null", name)
		}
	}
	var c struct {
		Shards []struct {
			Target, ID, Addr, Server string
			DB                       *int
			Keys                     int64 `json:"keys_total"`
			Can                      map[string]bool
			Unknown                  []string
		}
		Jobs []struct {
			Name, Mode string
			Next       []time.Time
		}
		Problems []string
	}
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Shards) != 1 || len(c.Jobs) != 2 {
		t.Fatalf("%d shards and %d jobs: %s", len(c.Shards), len(c.Jobs), r.stdout)
	}
	s := c.Shards[0]
	if s.Target != "here" || s.Addr != m.Addr() || s.ID != m.Addr()+"/0" || s.DB == nil || s.Keys != 2 || s.Unknown == nil || !strings.Contains(s.Server, " ") {
		t.Errorf("shard %+v", s)
	}
	for _, name := range []string{"unlink", "memory_usage", "scan", "script", "rename", "no_touch"} {
		if _, ok := s.Can[name]; !ok {
			t.Errorf("can says nothing of %s: %v", name, s.Can)
		}
	}
	night := c.Jobs[0]
	if night.Name != "nightly" || night.Mode != "execute" || len(night.Next) != 3 {
		t.Errorf("job %+v", night)
	}
	for i, next := range night.Next {
		if u := next.UTC(); u.Hour() != 19 || u.Minute() != 0 || i > 0 && next.Sub(night.Next[i-1]) != 24*time.Hour || !next.After(time.Now()) {
			t.Errorf("run %d is at %v", i, next)
		}
	}
	if hand := c.Jobs[1]; hand.Mode != "report" || hand.Next == nil || len(hand.Next) != 0 {
		t.Errorf("job %+v", hand)
	}
}

func TestCheckTable(t *testing.T) {
	m := server(t, "a")
	r := keyjanitor(t, "check", "--url", "redis://"+m.Addr()).exits(0)
	for _, word := range []string{m.Addr() + "/0", "UNLINK", "miniredis"} {
		if !strings.Contains(r.stdout, word) {
			t.Errorf("does not show %q:\n%s", word, r.stdout)
		}
	}
}

// One target of two that can't be reached is a partial result, all are a failure.
func TestCheckUnreachable(t *testing.T) {
	m := server(t, "a")
	conf := file(t, "c.yaml", fmt.Sprintf("targets:\n  up: {addresses: [%q]}\n  down: {addresses: [\"127.0.0.1:1\"]}\n", m.Addr()))
	r := keyjanitor(t, "check", "--config", conf, "--format", "json").exits(3)
	var c checked
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Shards) != 1 || !slices.ContainsFunc(c.Problems, func(p string) bool { return strings.Contains(p, "127.0.0.1:1") }) {
		t.Errorf("%d shards, problems %q", len(c.Shards), c.Problems)
	}
	keyjanitor(t, "check", "--url", "redis://127.0.0.1:1").exits(1)
}

func TestCheckRefuses(t *testing.T) {
	m := server(t)
	keyjanitor(t, "check").exits(2, "--url", "--config")
	keyjanitor(t, "check", "--url", "redis://"+m.Addr(), "--format", "csv").exits(2, "--format", "csv")
	keyjanitor(t, "check", "--config", file(t, "empty.yaml", "")).exits(2, "no target")
	keyjanitor(t, "check", "--config", "absent.yaml").exits(2, "absent.yaml")
	if n := m.TotalConnectionCount(); n != 0 {
		t.Errorf("%d connections", n)
	}
}
