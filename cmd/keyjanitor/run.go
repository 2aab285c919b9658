package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/report"
	"github.com/keyjanitor/keyjanitor/jobs"
)

func (p process) runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "run jobs of the configuration once, one after another",
		Description: example(
			"keyjanitor run --config config.yaml --all",
			"keyjanitor run --config config.yaml --job old-messages --report",
		),
		Flags: flags([]cli.Flag{
			configFlag(),
			texts("job", selecting, "the job `NAME`; repeatable"),
			&cli.BoolFlag{Name: "all", Category: selecting, Usage: "every job of the file"},
			&cli.BoolFlag{Name: "report", Category: acting, Usage: "report only, whatever the jobs' mode is"},
			lockWaitFlag(), stateDirFlag(), okOnFlag(),
		}, partFlags(), outputFlags(), []cli.Flag{metricsFlag()}),
		Action: p.runJobs,
	}
}

func lockWaitFlag() cli.Flag {
	return &cli.StringFlag{Name: "lock-wait", Category: acting, Value: config.Duration(lockWait).String(), Usage: "wait up to `DURATION` for another run of the same job"}
}

// load reads the configuration that --config names. What flags and
// environment say of user, password and state directory wins over it.
func (p process) load(c *cli.Context) (*config.Config, error) {
	cfg, err := config.Load(c.String("config"))
	if err != nil {
		return nil, asUsage(err)
	}
	for name, t := range cfg.Targets {
		if err := p.login(c, &t); err != nil {
			return nil, err
		}
		cfg.Targets[name] = t
	}
	if dir := c.String("state-dir"); dir != "" {
		cfg.StateDir = dir
	}
	return cfg, nil
}

// loadJobs reads the configuration of commands that run its jobs.
func (p process) loadJobs(c *cli.Context) (*config.Config, error) {
	if c.String("config") == "" {
		return nil, usagef("which jobs? write --config FILE")
	}
	cfg, err := p.load(c)
	if err == nil && len(cfg.Jobs) == 0 {
		err = usagef("%s has no jobs", c.String("config"))
	}
	return cfg, err
}

func (p process) runJobs(c *cli.Context) error {
	cfg, err := p.loadJobs(c)
	if err != nil {
		return err
	}
	chosen, err := choose(cfg, c.StringSlice("job"), c.Bool("all"))
	if err != nil {
		return err
	}
	r := &reader{c: c}
	wait := r.duration("lock-wait")
	part, fromReplica := r.part(p.getenv), r.readReplica()
	r.output()
	r.fail("ok-on", okOnProblem(c.String("ok-on")))
	if err := r.err(); err != nil {
		return err
	}
	m, err := p.metrics(c)
	if err != nil {
		return err
	}
	out, err := p.output(c)
	if err != nil {
		return errors.Join(err, m.close())
	}
	var errs []error
	summaries := []*jobs.Summary{}
	whole := false // a file of an earlier run is not replaced by one that says nothing
	for i, j := range chosen {
		if c.Context.Err() != nil {
			err := context.Cause(c.Context)
			for _, j := range chosen[i:] {
				m.add(report.Measured{Summary: jobs.NotStarted(requestOf(c, cfg, j, 0), err), Job: j.Name, Exit: codeOf(err)})
			}
			errs = append(errs, err)
			break
		}
		if c.Bool("report") {
			j.Execute = false
		}
		q := requestOf(c, cfg, j, time.Duration(wait))
		q.Stream, q.Part, q.ReadReplica = out.finding(), part, fromReplica
		summary, err := p.runJob(c, cfg, q)
		if err != nil {
			err = fmt.Errorf("job %q: %w", j.Name, err)
		}
		forgiven := p.forgive(err, c.String("ok-on"))
		errs = append(errs, forgiven)
		if summary == nil { // it did not begin, and is told like the others
			summary = jobs.NotStarted(q, err)
		} else {
			whole = true
		}
		m.add(report.Measured{Summary: summary, Job: j.Name, Exit: codeOf(forgiven)})
		if out.stream != nil {
			errs = append(errs, out.stream.Close(summary))
		}
		summaries = append(summaries, summary)
	}
	if out.stream == nil {
		if err := report.WriteRuns(out.w, out.format, summaries); err != nil {
			errs, whole = append(errs, err), false
		}
	}
	return p.decide(append(errs, out.close(whole), m.close())...)
}

// decide prints the errors that do not decide the exit code and returns the
// one that does.
func (p process) decide(errs ...error) error {
	last := worst(errs)
	for _, err := range errs {
		if err != nil && err != last {
			fmt.Fprintf(p.stderr, "keyjanitor: %s\n", err)
		}
	}
	return last
}

// choose is the jobs that the flags name, in the order of the file.
func choose(cfg *config.Config, names []string, all bool) ([]config.Job, error) {
	if all == (len(names) > 0) {
		return nil, usagef("which jobs? write --job NAME, as often as needed, or --all")
	}
	var chosen []config.Job
	var known []string
	for _, j := range cfg.Jobs {
		known = append(known, j.Name)
		if all || slices.Contains(names, j.Name) {
			chosen = append(chosen, j)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usagef("--job: no job is named %q; the file has %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// runJob carries out one job.
func (p process) runJob(c *cli.Context, cfg *config.Config, q jobs.Request) (*jobs.Summary, error) {
	runner, done, err := p.runner(cfg, cfg.Pace, q.Mode == jobs.Execute)
	if err != nil {
		return nil, err
	}
	end := p.show(c, runner.Progress)
	steered := p.steered(c, runner, q.Mode == jobs.Execute)
	summary, err := runner.Run(c.Context, q)
	steered()
	end()
	if closed := done(); err == nil {
		err = closed
	}
	return summary, err
}

func requestOf(c *cli.Context, cfg *config.Config, j config.Job, wait time.Duration) jobs.Request {
	q := jobs.Request{
		Job: j, Target: cfg.Targets[j.Target], Mode: jobs.Report, Top: c.Int("top"),
		Lock: true, LockWait: wait,
	}
	if j.Execute {
		q.Mode, q.Checkpoints, q.Resume = jobs.Execute, true, true
	}
	return q
}
