package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/web"
	"github.com/keyjanitor/keyjanitor/jobs"
)

func (p process) ctlCommand() *cli.Command {
	common := func(more ...cli.Flag) []cli.Flag {
		return flags([]cli.Flag{
			configFlag(), stateDirFlag(),
			&cli.IntFlag{Name: "pid", Category: connecting, Usage: "the process `N`, where several run"},
		}, more)
	}
	sub := func(name, usage string, form func(*cli.Context) (url.Values, error), more ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, Flags: common(more...), Action: withoutArguments(func(c *cli.Context) error {
			values, err := form(c)
			if err != nil {
				return err
			}
			return p.tell(c, name, values)
		})}
	}
	nothing := func(*cli.Context) (url.Values, error) { return url.Values{}, nil }
	var paceFlags []cli.Flag
	for _, field := range jobs.PaceFields {
		paceFlags = append(paceFlags, &cli.StringFlag{Name: dashes(field), Category: pacing, Usage: "`VALUE`, as in the configuration"})
	}
	jobFlag := func(usage string) cli.Flag { return &cli.StringFlag{Name: "job", Category: selecting, Usage: usage} }
	return &cli.Command{
		Name:  "ctl",
		Usage: "talk to a running daemon or run: status, pause, resume, pace, stop, run",
		Description: example(
			"keyjanitor ctl status",
			"keyjanitor ctl pause --reason 'deployment' --state-dir /var/lib/keyjanitor",
			"keyjanitor ctl pace --max-share 5%",
			"keyjanitor ctl run --job old-messages",
		),
		Subcommands: []*cli.Command{
			{Name: "status", Usage: "what runs, how far it is, and why it waits", Flags: common(
				&cli.StringFlag{Name: "format", Category: printing, Value: "table", Usage: "table or json"},
			), Action: withoutArguments(p.ctlStatus)},
			sub("pause", "hold all runs of the process", func(c *cli.Context) (url.Values, error) {
				return url.Values{"reason": {c.String("reason")}}, nil
			}, &cli.StringFlag{Name: "reason", Category: acting, Usage: "`WORDS` for the log and the report"}),
			sub("resume", "end a pause", nothing),
			sub("pace", "change what runs take from servers", func(c *cli.Context) (url.Values, error) {
				form := url.Values{}
				for _, field := range jobs.PaceFields {
					if flag := dashes(field); c.IsSet(flag) {
						if _, err := jobs.PaceChange(field, c.String(flag)); err != nil {
							return nil, usagef("--%s", strings.Replace(err.Error(), field, flag, 1))
						}
						form.Set(field, c.String(flag))
					}
				}
				if len(form) == 0 {
					return nil, usagef("which pace? write --max-share 5%%, or another flag of --help")
				}
				return form, nil
			}, paceFlags...),
			sub("stop", "end runs after the batch at hand", func(c *cli.Context) (url.Values, error) {
				return url.Values{"job": {c.String("job")}}, nil
			}, jobFlag("of the job `NAME` only")),
			sub("run", "run a job of a daemon now", func(c *cli.Context) (url.Values, error) {
				if c.String("job") == "" {
					return nil, usagef("which job? write --job NAME")
				}
				return url.Values{"job": {c.String("job")}}, nil
			}, jobFlag("the job `NAME`")),
		},
	}
}

func dashes(field string) string { return strings.ReplaceAll(field, "_", "-") }

// controlDir is the state directory whose processes are meant.
func (p process) controlDir(c *cli.Context) (string, error) {
	dir := config.DefaultStateDir
	if c.String("config") != "" {
		cfg, err := p.load(c)
		if err != nil {
			return "", err
		}
		dir = cfg.StateDir
	}
	if c.String("state-dir") != "" {
		dir = c.String("state-dir")
	}
	return dir, nil
}

// found is the processes that are meant, at least one.
func (p process) found(c *cli.Context) (all []web.Process, err error) {
	dir, err := p.controlDir(c)
	if err != nil {
		return nil, err
	}
	all, err = web.Processes(c.Context, dir)
	if err != nil {
		return nil, err
	}
	if pid := c.Int("pid"); c.IsSet("pid") {
		all = slices.DeleteFunc(all, func(p web.Process) bool { return p.Status.PID != pid })
		if len(all) == 0 {
			return nil, usagef("--pid: no process %d runs with the state directory %s; see ctl status", pid, dir)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing runs with the state directory %s", dir)
	}
	return all, nil
}

func (p process) ctlStatus(c *cli.Context) error {
	format := c.String("format")
	if format != "table" && format != "json" {
		return usagef("--format: ctl writes table or json, not %q", format)
	}
	found, err := p.found(c)
	if err != nil {
		return err
	}
	all := []web.Status{}
	for _, f := range found {
		all = append(all, f.Status)
	}
	if format == "json" {
		out := json.NewEncoder(p.stdout)
		out.SetIndent("", "  ")
		return out.Encode(map[string]any{"processes": all})
	}
	for _, s := range all {
		if err := writeStatus(p.stdout, s); err != nil {
			return err
		}
	}
	return nil
}

// tell sends what changes something to the one process that is meant.
func (p process) tell(c *cli.Context, what string, form url.Values) error {
	found, err := p.found(c)
	if err != nil {
		return err
	}
	if len(found) > 1 {
		return usagef("%d processes run with this state directory; write --pid N, and see ctl status", len(found))
	}
	s, err := web.Ask(c.Context, found[0].Socket, "/"+what, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("process %d: %w", found[0].Status.PID, err)
	}
	return writeStatus(p.stdout, s)
}

// writeStatus shows a process and its runs.
func writeStatus(w io.Writer, s web.Status) error {
	fmt.Fprintf(w, "process %d: %s, for %s\n", s.PID, s.Command, time.Since(s.Started).Round(time.Second))
	if s.Paused != "" {
		fmt.Fprintln(w, s.Paused)
	}
	if len(s.Runs) == 0 {
		_, err := fmt.Fprintln(w, "nothing is being run")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tTARGET\tMODE\tFOR\tKEYS\tSCANNED\tMATCHED\tDONE\tELEMENTS\tPACE\tHELD")
	for _, r := range s.Runs {
		total := "-" // where keys are named
		if r.KeysTotal > 0 {
			total = humanize.Comma(r.KeysTotal)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(r.Job), r.Target, r.Mode,
			time.Since(r.Started).Round(time.Second), total, humanize.Comma(r.KeysScanned),
			humanize.Comma(r.KeysMatched), humanize.Comma(r.KeysActed), humanize.Comma(r.Elements), paceInWords(r), heldInWords(r))
	}
	return t.Flush()
}

func paceInWords(r jobs.RunState) string {
	words := r.MaxShare
	for _, budget := range []struct {
		perSecond int64
		of        string
	}{{r.CommandsPerSecond, "commands"}, {r.ElementsPerSecond, "elements"}, {r.BytesPerSecond, "bytes"}} {
		if budget.perSecond > 0 {
			words += fmt.Sprintf(", %s %s/s", humanize.Comma(budget.perSecond), budget.of)
		}
	}
	return words
}

func heldInWords(r jobs.RunState) string {
	if len(r.Holds) == 0 {
		return "no"
	}
	first := slices.MinFunc(r.Holds, func(a, b jobs.Wait) int { return a.Since.Compare(b.Since) })
	return fmt.Sprintf("%s, %s", time.Since(first.Since).Round(time.Second), jobs.WaitsInWords(r.Holds, r.Shards))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// steer lets people steer the process until the function that it returns is
// called: over its socket in the state directory, where it has one, and by
// SIGUSR1, which prints the state.
func (p process) steer(c *cli.Context, stateDir string, s *web.Server) (end func()) {
	s.Command = c.Command.Name
	if stateDir != "" {
		if err := s.Listen(stateDir); err != nil {
			p.logger().Warn("the run can't be steered", "reason", err.Error())
		}
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-asked:
				_ = writeStatus(p.stderr, s.Status())
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(asked)
		close(done)
		_ = s.Close() // nothing that was said is lost
	}
}

// steered steers one run; one that reports only has no state directory.
func (p process) steered(c *cli.Context, r *jobs.Runner, executes bool) (end func()) {
	dir := ""
	if executes {
		dir = r.StateDir
	}
	return p.steer(c, dir, &web.Server{Control: r.Control})
}
