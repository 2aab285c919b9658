package main

import (
	"errors"
	"io"
	"iter"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/audit"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/report"
	"github.com/keyjanitor/keyjanitor/jobs"
)

func (p process) scanCommand() *cli.Command {
	return &cli.Command{
		Name:  "scan",
		Usage: "find keys and report them; never writes",
		Description: example(
			"keyjanitor scan --url redis://10.0.0.5:6379 --min-elements 100000",
			"keyjanitor scan --url redis+cluster://10.0.0.5:7000 --min-bytes 10MiB --format json",
			"keyjanitor scan --url redis://10.0.0.5:6379 --prefix 'session:' --no-ttl --format jsonl --output found.jsonl",
		),
		Flags: flags(connectionFlags(), partFlags(), []cli.Flag{resumeFlag(), stateDirFlag(), scriptFlag()}, selectionFlags(), paceFlags(false), outputFlags(), []cli.Flag{metricsFlag()}),
		Action: func(c *cli.Context) error {
			return p.oneOff(c, jobs.Scan, nil)
		},
	}
}

func (p process) cleanCommand() *cli.Command {
	return &cli.Command{
		Name:  "clean",
		Usage: "scan and act on what matches; reports unless --execute",
		Description: example(
			"keyjanitor clean --url redis://10.0.0.5:6379 --prefix 'mi:' --type hash --min-elements 10000",
			"keyjanitor clean --url redis://10.0.0.5:6379 --prefix 'mi:' --type hash --min-elements 10000 --execute",
			"keyjanitor clean --url redis+cluster://10.0.0.5:7000 --match 'old:*' --max-share 10% --max-keys 100000 --execute",
			"keyjanitor clean --url redis://10.0.0.5:6379 --prefix 'queue:' --action trim --keep 10000 --keep-end tail --execute",
			"keyjanitor clean --url redis://10.0.0.5:6379 --prefix 'cache:' --action expire --ttl 30d --jitter 20% --execute",
		),
		Flags: flags(connectionFlags(), partFlags(), []cli.Flag{resumeFlag(), scriptFlag()}, selectionFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "all-keys", Category: selecting, Usage: "consent to act on keys of any name"},
		}, cleanFlags(), planFlags(), actionFlags(), paceFlags(true), outputFlags(), []cli.Flag{metricsFlag()}),
		Action: func(c *cli.Context) error {
			return p.oneOff(c, jobs.Report, nil)
		},
	}
}

func (p process) deleteCommand() *cli.Command {
	return &cli.Command{
		Name:  "delete",
		Usage: "act on named keys; reports unless --execute",
		Description: example(
			"keyjanitor delete --url redis://10.0.0.5:6379 --key mii:0 --execute",
			"keyjanitor delete --url redis://10.0.0.5:6379 --keys-file found.jsonl --execute",
			"some-command | keyjanitor delete --url redis://10.0.0.5:6379/2 --keys-file - --null --execute",
		),
		Flags: flags(connectionFlags(), []cli.Flag{
			texts("key", selecting, "the key `NAME`; repeatable"),
			&cli.StringFlag{Name: "keys-file", Category: selecting, Usage: "`FILE` of JSON lines as scan writes them; - for standard input"},
			&cli.BoolFlag{Name: "null", Category: selecting, Usage: "the file holds plain names, each ended by a NUL byte"},
		}, selectionFlags(), actionFlags(), paceFlags(true), outputFlags(), []cli.Flag{metricsFlag()}),
		Action: func(c *cli.Context) error {
			if c.IsSet("key") && c.IsSet("keys-file") {
				return usagef("--key and --keys-file both say which keys; write one of them")
			}
			if !c.IsSet("key") && !c.IsSet("keys-file") {
				return usagef("which keys? write --key NAME, as often as needed, or --keys-file FILE")
			}
			if c.Bool("null") && !c.IsSet("keys-file") {
				return usagef("--null says how a --keys-file is written; add one")
			}
			return p.oneOff(c, jobs.Report, p.keys)
		},
	}
}

// flags joins groups of flags.
func flags(groups ...[]cli.Flag) []cli.Flag {
	var all []cli.Flag
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// keysOf gives the keys to act on instead of a scan.
type keysOf func(c *cli.Context, db int) (iter.Seq2[jobs.Named, error], io.Closer, error)

// oneOff carries out scan, clean and delete.
func (p process) oneOff(c *cli.Context, mode jobs.Mode, keys keysOf) error {
	s, err := p.connection(c)
	if err != nil {
		return err
	}
	if mode == jobs.Report && c.Bool("execute") {
		mode = jobs.Execute
	}
	r := &reader{c: c}
	q := jobs.Request{Mode: mode, Target: s.target, Top: c.Int("top")}
	q.Job.Select = r.selection()
	applies := c.String("apply") != ""
	r.check(q.Job.Select.Problems(mode != jobs.Scan && keys == nil && !applies), selectionNames)
	if mode != jobs.Scan {
		q.Job.Limits = r.limits()
		q.Job.Action = r.action(q.Job.Select)
	}
	q.Resume, q.Script = c.Bool("resume"), c.Bool("script")
	if q.Script && q.Job.Select.MinBytes == 0 {
		r.fail("script", errors.New("is for rules on bytes; add --min-bytes SIZE"))
	}
	q.Checkpoints = q.Resume || mode == jobs.Execute || mode == jobs.Scan && c.IsSet("state-dir")
	q.Part, q.ReadReplica = r.part(p.getenv), r.readReplica()
	pace := r.pace(s.config.Pace)
	r.output()
	r.fail("ok-on", okOnProblem(c.String("ok-on")))
	if err := r.err(); err != nil {
		return err
	}
	switch {
	case applies && c.String("plan") != "":
		return usagef("--plan writes a plan and --apply carries one out; write one of them")
	case applies:
		plan, err := p.apply(c, &q)
		if err != nil {
			return err
		}
		defer plan.Close()
	case c.String("plan") != "" && mode == jobs.Execute:
		return usagef("--plan writes what would be done; delete --execute, and write --apply %s --execute afterwards", c.String("plan"))
	}
	if keys != nil {
		db := 0
		if len(s.target.DBs) > 1 {
			return usagef("--db: keys that are named are in one database; give one")
		}
		if len(s.target.DBs) == 1 {
			db = s.target.DBs[0]
		}
		q.Target.DBs = nil // lines of the file may name any database
		names, file, err := keys(c, db)
		if err != nil {
			return err
		}
		defer file.Close()
		q.Keys = names
	}
	return p.oneRun(c, s, pace, q)
}

// oneRun carries out one request and writes its report.
func (p process) oneRun(c *cli.Context, s setup, pace config.Pace, q jobs.Request) error {
	m, err := p.metrics(c)
	if err != nil {
		return err
	}
	summary, err := p.reported(c, s, pace, q)
	var usage usageError
	switch {
	case summary != nil:
	case errors.As(err, &usage): // that was no run
		return p.decide(err, m.close())
	default:
		summary = jobs.NotStarted(q, err)
	}
	m.add(report.Measured{Summary: summary, Job: c.Command.Name, Exit: codeOf(err)})
	return p.decide(err, m.close())
}

// reported carries out one request and writes its report, if it began.
func (p process) reported(c *cli.Context, s setup, pace config.Pace, q jobs.Request) (*jobs.Summary, error) {
	out, err := p.output(c)
	if err != nil {
		return nil, err
	}
	q.Stream = out.finding()
	var plan *planWriter
	if name := c.String("plan"); name != "" {
		if plan, err = newPlan(name, &q); err != nil {
			return nil, errors.Join(err, out.close(false))
		}
		q.Stream = both(q.Stream, plan.finding)
	}
	runner, done, err := p.runner(s.config, pace, q.Mode == jobs.Execute)
	if err != nil {
		return nil, errors.Join(err, out.close(false))
	}
	end := p.show(c, runner.Progress)
	steered := p.steered(c, runner, q.Mode == jobs.Execute)
	summary, err := runner.Run(c.Context, q)
	steered()
	end()
	if plan != nil {
		err = errors.Join(err, plan.close(err == nil || errors.Is(err, jobs.ErrLimit)))
	}
	return summary, p.decide(p.forgive(err, c.String("ok-on")), out.one(summary), done())
}

// runner makes a runner, with an audit if it is to execute; done closes it.
func (p process) runner(cfg *config.Config, pace config.Pace, execute bool) (_ *jobs.Runner, done func() error, err error) {
	r := &jobs.Runner{
		Log: p.logger(), StateDir: cfg.StateDir, Protect: cfg.Protect, Pace: pace,
		HoldWhen: cfg.HoldWhen, StopWhen: cfg.StopWhen, Control: &jobs.Control{Pace: pace}, Progress: &jobs.Progress{},
	}
	if !execute {
		return r, func() error { return nil }, nil
	}
	file, err := audit.Open(cfg.StateDir)
	if err != nil {
		return nil, nil, err
	}
	r.Audit = file
	return r, file.Close, nil
}
