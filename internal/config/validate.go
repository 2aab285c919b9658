package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The range of Pace.TargetLatency: below 100µs a batch is one command and the
// round trip all there is to measure; above 100ms others would notice.
const (
	minTargetLatency = Duration(100 * time.Microsecond)
	maxTargetLatency = Duration(100 * time.Millisecond)
)

// maxParallel is more primaries than the largest clusters have.
const maxParallel = 1024

// Problems checks everything, and that jobs and targets fit together.
func (c *Config) Problems() []Problem {
	var ps []Problem
	for name, t := range c.Targets {
		path := joinPath("targets", name)
		ps = append(ps, under(path, nameProblems(name))...)
		ps = append(ps, under(path, t.Problems())...)
	}
	ps = append(ps, emptyEntries("protect", c.Protect)...)
	ps = append(ps, under("pace", c.Pace.Problems())...)
	ps = append(ps, under("hold_when", c.HoldWhen.Problems())...)
	ps = append(ps, under("stop_when", c.StopWhen.Problems())...)
	if c.StateDir == "" {
		ps = append(ps, Problem{Path: "state_dir", Message: "no directory; write one such as " + DefaultStateDir})
	}
	if len(c.Jobs) > 0 && len(c.Targets) == 0 {
		ps = append(ps, Problem{Path: "targets", Message: `missing, and jobs need one; write targets: {NAME: {addresses: ["HOST:PORT"]}}`})
	}
	first := map[string]int{}
	for i, j := range c.Jobs {
		path := index("jobs", i)
		ps = append(ps, under(path, j.Problems())...)
		if at, ok := first[j.Name]; ok && j.Name != "" {
			ps = append(ps, Problem{Path: path + ".name", Message: fmt.Sprintf("jobs[%d] is also named %s; write another name", at, shown(j.Name))})
		} else {
			first[j.Name] = i
		}
		if _, ok := c.Targets[j.Target]; !ok && j.Target != "" && len(c.Targets) > 0 {
			ps = append(ps, Problem{Path: path + ".target", Message: c.unknownTarget(j.Target)})
		}
	}
	return ps
}

func (c *Config) unknownTarget(name string) string {
	var names []string
	for n := range c.Targets {
		names = append(names, n)
	}
	slices.Sort(names)
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("no target is named %s; did you mean %q?", shown(name), near)
	}
	return fmt.Sprintf("no target is named %s; write one of %s", shown(name), strings.Join(names, ", "))
}

// Problems checks one target. Messages never hold a password.
func (t Target) Problems() []Problem {
	var ps []Problem
	add := func(path, format string, args ...any) {
		ps = append(ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if len(t.Addresses) == 0 {
		add("addresses", `missing; write addresses: ["HOST:PORT"]`)
	}
	for i, a := range t.Addresses {
		if message := addressProblem(a); message != "" {
			add(index("addresses", i), "%s", message)
		}
	}
	if t.Mode == ModeStandalone && len(t.Addresses) > 1 {
		add("addresses", "%d addresses of one standalone server; write one, or mode: cluster", len(t.Addresses))
	}
	if !slices.Contains([]Mode{ModeAuto, ModeStandalone, ModeCluster}, t.Mode) {
		add("mode", "unknown mode %s; write auto, standalone or cluster", shown(string(t.Mode)))
	}
	for i, db := range t.DBs {
		path := "db"
		if len(t.DBs) > 1 {
			path = index("db", i)
		}
		switch {
		case db < 0:
			add(path, "%d is negative; write the number of a database, 0 or above", db)
		case db > 0 && t.Mode == ModeCluster:
			add(path, "a cluster has no database %d; write 0 or delete it", db)
		case slices.Contains(t.DBs[:i], db):
			add(path, "database %d is named twice; delete one", db)
		}
	}
	if t.TLS != nil && (t.TLS.CertFile == "") != (t.TLS.KeyFile == "") {
		add("tls", "a client certificate and its key go together; write both cert_file and key_file, or neither")
	}
	for from, to := range t.AddressMap {
		path := joinPath("address_map", from)
		if message := addressProblem(from); message != "" {
			add(path, "announced address: %s", message)
		}
		if message := addressProblem(to); message != "" {
			add(path, "%s", message)
		}
	}
	return ps
}

// Problems checks one job on its own; whether its target exists is for
// Config.Problems.
func (j Job) Problems() []Problem {
	var ps []Problem
	add := func(path, message string) { ps = append(ps, Problem{Path: path, Message: message}) }
	if j.Name == "" {
		add("name", "missing; write a name of its own for each job")
	} else {
		ps = append(ps, under("name", nameProblems(j.Name))...)
	}
	if j.Target == "" {
		add("target", "missing; write the name of one of targets")
	}
	if j.Schedule != "" {
		if _, err := ParseSchedule(j.Schedule); err != nil {
			add("schedule", err.Error())
		}
	}
	if _, err := j.Location(); err != nil {
		add("timezone", err.Error())
	}
	if j.Select.Unconditional() {
		add("select", "no condition, which selects every key; write one such as min_bytes: 1MiB, or all_keys: true")
	} else {
		ps = append(ps, under("select", j.Select.Problems(j.Execute))...)
	}
	if j.Execute && j.Action.Kind() == "" {
		add("action", "missing, and mode is execute; write action: {delete: {method: auto}}")
	}
	ps = append(ps, under("action", j.Action.Problems(j.Select))...)
	return append(ps, under("limits", j.Limits.Problems())...)
}

// Problems checks the limits of a run.
func (l Limits) Problems() []Problem {
	ps := negative("max_keys", l.MaxKeys, l.MaxKeys < 0)
	ps = append(ps, negative("max_bytes", l.MaxBytes, l.MaxBytes < 0)...)
	ps = append(ps, negative("time", l.Time, l.Time < 0)...)
	if !(l.MaxPercent >= 0 && l.MaxPercent <= 100) { // not a number fails both
		ps = append(ps, Problem{Path: "max_percent", Message: fmt.Sprintf("%v%% is out of range; write 0 to 100%%", l.MaxPercent)})
	}
	return ps
}

// Problems checks what a run may take from a server.
func (p Pace) Problems() []Problem {
	var ps []Problem
	if p.TargetLatency < minTargetLatency || p.TargetLatency > maxTargetLatency {
		ps = append(ps, Problem{Path: "target_latency", Message: fmt.Sprintf(
			"%s is out of range; write %s to %s", p.TargetLatency, minTargetLatency, maxTargetLatency)})
	}
	for _, f := range []struct {
		name  string
		value Percent
	}{{"max_share", p.MaxShare}, {"scan_share", p.ScanShare}} {
		if !(f.value > 0 && f.value <= 100) {
			ps = append(ps, Problem{Path: f.name, Message: f.value.String() + " is out of range; write more than 0% and at most 100%"})
		}
	}
	ps = append(ps, p.Budget.problems("")...)
	ps = append(ps, p.PerShard.problems("per_shard.")...)
	if p.Parallel < 1 || p.Parallel > maxParallel {
		ps = append(ps, Problem{Path: "parallel", Message: fmt.Sprintf("%d is out of range; write 1 to %d", p.Parallel, maxParallel)})
	}
	return ps
}

func (b Budget) problems(path string) []Problem {
	ps := negative(path+"commands_per_second", b.CommandsPerSecond, b.CommandsPerSecond < 0)
	ps = append(ps, negative(path+"elements_per_second", b.ElementsPerSecond, b.ElementsPerSecond < 0)...)
	return append(ps, negative(path+"bytes_per_second", b.BytesPerSecond, b.BytesPerSecond < 0)...)
}

func negative(path string, value any, is bool) []Problem {
	if !is {
		return nil
	}
	return []Problem{{Path: path, Message: fmt.Sprintf("%v is negative; write 0 for no limit", value)}}
}

// nameProblems keeps names fit for file names, metric labels and lock keys.
func nameProblems(name string) []Problem {
	ok := len(name) <= 64 && strings.Trim(name, ".") != ""
	for _, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		ok = ok && (letter || strings.ContainsRune("._-", r))
	}
	if ok {
		return nil
	}
	return []Problem{{Message: fmt.Sprintf("the name %s is not allowed; write 1 to 64 of the characters A-Z a-z 0-9 . _ -, and not dots alone", shown(name))}}
}
