package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/jobs"
)

// checked is what check tells.
type checked struct {
	Shards   []checkedShard    `json:"shards"`
	ACL      map[string]string `json:"acl"`
	Jobs     []checkedJob      `json:"jobs"`
	Problems []string          `json:"problems"`
}

type checkedShard struct {
	Target    string            `json:"target"`
	ID        string            `json:"id"`
	Addr      string            `json:"addr"`
	DB        int               `json:"db"`
	Role      string            `json:"role,omitempty"`
	Server    string            `json:"server,omitempty"`
	Allocator string            `json:"allocator,omitempty"`
	Keys      int64             `json:"keys_total"`
	Can       topology.Can      `json:"can"`
	Why       map[string]string `json:"why"`
	Unknown   []string          `json:"unknown"`
	Error     string            `json:"error,omitempty"`
}

type checkedJob struct {
	Name string      `json:"name"`
	Mode string      `json:"mode"`
	Next []time.Time `json:"next"`
}

func (p process) checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "validate the configuration, connect, and show what each server can do and what the user needs",
		Description: example(
			"keyjanitor check --config config.yaml",
			"keyjanitor check --url redis://10.0.0.5:6379 --format json",
		),
		Flags: flags(connectionFlags(), []cli.Flag{
			&cli.StringFlag{Name: "format", Category: printing, Value: "table", Usage: "table or json"},
		}),
		Action: p.check,
	}
}

func (p process) check(c *cli.Context) error {
	format := c.String("format")
	if format != "table" && format != "json" {
		return usagef("--format: check writes table or json, not %q", format)
	}
	targets, cfg, err := p.checkTargets(c)
	if err != nil {
		return err
	}
	out := checked{Shards: []checkedShard{}, ACL: map[string]string{}, Jobs: []checkedJob{}, Problems: []string{}}
	reached, failed := 0, 0
	for _, t := range targets {
		top, err := topology.Open(c.Context, t, topology.Options{Writes: true, Logger: p.logger()})
		if err != nil {
			out.Problems = append(out.Problems, err.Error())
			failed++
			continue
		}
		out.Problems = append(out.Problems, top.Notes...)
		for _, s := range top.Shards() {
			out.add(t.Name, s)
			if s.Err == nil {
				reached++
			} else {
				failed++
			}
		}
		_ = top.Close() // nothing was written that could be lost
	}
	for _, j := range cfg.Jobs {
		out.Jobs = append(out.Jobs, scheduleOf(j))
	}
	if err := out.write(p.stdout, format); err != nil {
		return err
	}
	switch {
	case reached == 0 && len(targets) > 0:
		return jobs.ErrFailed
	case failed > 0:
		return jobs.ErrPartial
	}
	return nil
}

// checkTargets is what there is to check: the one that the flags name, or
// all of the file.
func (p process) checkTargets(c *cli.Context) ([]config.Target, *config.Config, error) {
	if c.String("config") == "" || c.String("url") != "" || c.String("target") != "" {
		s, err := p.connection(c)
		return []config.Target{s.target}, s.config, err
	}
	cfg, err := p.load(c)
	if err != nil {
		return nil, nil, err
	}
	if len(cfg.Targets) == 0 {
		return nil, nil, usagef("%s names no target; there is nothing to check", c.String("config"))
	}
	targets := slices.Collect(maps.Values(cfg.Targets))
	slices.SortFunc(targets, func(a, b config.Target) int { return strings.Compare(a.Name, b.Name) })
	return targets, cfg, nil
}

func (out *checked) add(target string, s *topology.Shard) {
	shard := checkedShard{
		Target: target, ID: s.ID, Addr: s.Addr, DB: s.DB, Role: s.Server.Role, Allocator: s.Server.Allocator, Keys: s.Keys,
		Can: s.Can, Why: s.Why, Unknown: s.Unknown,
	}
	if shard.Unknown == nil {
		shard.Unknown = []string{}
	}
	if shard.Why == nil {
		shard.Why = map[string]string{}
	}
	if s.Err != nil {
		shard.Error = s.Err.Error()
		out.Problems = append(out.Problems, fmt.Sprintf("shard %s: %s", s.ID, s.Err))
		out.Shards = append(out.Shards, shard)
		return
	}
	shard.Server = s.Server.String()
	for _, purpose := range topology.Purposes {
		if rule := s.ACLRule(purpose); rule != "" && out.ACL[purpose] == "" {
			out.ACL[purpose] = rule
		}
	}
	for _, name := range needed(s) {
		problem := fmt.Sprintf("shard %s: cannot %s", s.ID, name)
		if why := s.Why[name]; why != "" {
			problem += ": " + why
		}
		out.Problems = append(out.Problems, problem)
	}
	out.Shards = append(out.Shards, shard)
}

// needed is what is missing and nothing makes up for.
func needed(s *topology.Shard) []string {
	var missing []string
	if !s.Can.Scan {
		missing = append(missing, "scan")
	}
	if !s.Can.Script && !s.Can.Watch {
		missing = append(missing, "watch")
	}
	if !s.Can.Rename {
		missing = append(missing, "rename")
	}
	return missing
}

func scheduleOf(j config.Job) checkedJob {
	out := checkedJob{Name: j.Name, Mode: string(jobs.Report), Next: []time.Time{}}
	if j.Execute {
		out.Mode = string(jobs.Execute)
	}
	when, err := jobs.NewSchedule(j)
	if j.Schedule == "" || err != nil {
		return out
	}
	for next := when.Next(time.Now()); len(out.Next) < 3 && !next.IsZero(); next = when.Next(next) {
		out.Next = append(out.Next, next)
	}
	return out
}

func (out *checked) write(w io.Writer, format string) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(out)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SHARD\tSERVER\tROLE\tKEYS\tUNLINK\tMEMORY USAGE\tSCRIPT\tNO-TOUCH\tALLOCATOR")
	for _, s := range out.Shards {
		if s.Error != "" {
			fmt.Fprintf(t, "%s\tnot reached\n", s.ID)
			continue
		}
		ability := func(has bool, name string) string {
			switch {
			case has:
				return "yes"
			case slices.Contains(s.Unknown, name):
				return "unknown"
			}
			return "no"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", s.ID, s.Server, s.Role, s.Keys,
			ability(s.Can.Unlink, "unlink"), ability(s.Can.MemoryUsage, "memory_usage"),
			ability(s.Can.Script, "script"), ability(s.Can.NoTouch, "no_touch"), s.Allocator)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, purpose := range topology.Purposes {
		if rule := out.ACL[purpose]; rule != "" {
			fmt.Fprintf(w, "\nACL rule to %s:\n  %s\n", strings.ReplaceAll(purpose, "_", " "), rule)
		}
	}
	for _, j := range out.Jobs {
		next := make([]string, len(j.Next))
		for i, at := range j.Next {
			next[i] = at.Format("Mon 2006-01-02 15:04:05 MST")
		}
		if len(next) == 0 {
			next = []string{"by hand only"}
		}
		fmt.Fprintf(w, "\njob %s (%s): %s\n", j.Name, j.Mode, strings.Join(next, ", "))
	}
	for _, problem := range out.Problems {
		fmt.Fprintf(w, "\nproblem: %s\n", problem)
	}
	return nil
}
