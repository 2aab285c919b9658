package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/audit"
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
		}, outputFlags()),
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
	r.output()
	r.fail("ok-on", okOnProblem(c.String("ok-on")))
	if err := r.err(); err != nil {
		return err
	}
	out, err := p.output(c)
	if err != nil {
		return err
	}
	var errs []error
	summaries := []*jobs.Summary{}
	whole := false // a file of an earlier run is not replaced by one that says nothing
	for _, j := range chosen {
		if c.Context.Err() != nil {
			errs = append(errs, context.Cause(c.Context))
			break
		}
		if c.Bool("report") {
			j.Execute = false
		}
		q := requestOf(c, cfg, j, time.Duration(wait))
		q.Stream = out.finding()
		summary, err := p.runJob(c, cfg, q)
		if err != nil {
			err = fmt.Errorf("job %q: %w", j.Name, err)
		}
		errs = append(errs, p.forgive(err, c.String("ok-on")))
		if summary == nil { // it did not begin, and is told like the others
			summary = jobs.NotStarted(q, err)
		} else {
			whole = true
		}
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
	return p.decide(append(errs, out.close(whole))...)
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
	summary, err := runner.Run(c.Context, q)
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
		q.Mode = jobs.Execute
	}
	return q
}

func (p process) daemonCommand() *cli.Command {
	return &cli.Command{
		Name:  "daemon",
		Usage: "run the jobs of the configuration on their schedules; SIGHUP reads the file again",
		Description: example(
			"keyjanitor daemon --config config.yaml",
		),
		Flags:  []cli.Flag{configFlag(), lockWaitFlag(), stateDirFlag()},
		Action: p.daemon,
	}
}

// daemon runs schedules until it is told to stop. Each time the file is read
// again the waiting starts over with what it says by then; a job that is
// running goes on to its end.
func (p process) daemon(c *cli.Context) error {
	cfg, err := p.loadJobs(c)
	if err != nil {
		return err
	}
	r := &reader{c: c}
	wait := time.Duration(r.duration("lock-wait"))
	if err := r.err(); err != nil {
		return err
	}
	if slices.ContainsFunc(cfg.Jobs, func(j config.Job) bool { return j.Execute }) {
		// A directory that can't be written is better found now than at 03:00.
		file, err := audit.Open(cfg.StateDir)
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	log := p.logger()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var generations sync.WaitGroup
	defer generations.Wait()
	var running sync.Map // names of jobs: one generation may still run what the next fires
	for {
		d := &jobs.Daemon{Log: log, Jobs: cfg.Jobs, Fire: func(ctx context.Context, j config.Job) {
			if _, already := running.LoadOrStore(j.Name, true); already {
				log.Warn("job is still running; this time is skipped", "job", j.Name)
				return
			}
			defer running.Delete(j.Name)
			p.fire(ctx, cfg, requestOf(c, cfg, j, wait))
		}}
		if err := d.Check(); err != nil {
			return asUsage(err)
		}
		told(log, cfg)
		waiting, stop := context.WithCancel(c.Context)
		generations.Go(func() { d.Run(waiting, c.Context) })
		next := p.reload(c, hup)
		stop()
		if next == nil {
			generations.Wait()
			return context.Cause(c.Context)
		}
		cfg = next
	}
}

// reload waits for a SIGHUP with a valid file behind it; nil when it is time
// to stop.
func (p process) reload(c *cli.Context, hup <-chan os.Signal) *config.Config {
	for {
		select {
		case <-c.Context.Done():
			return nil
		case <-hup:
		}
		cfg, err := p.loadJobs(c)
		if err == nil {
			p.logger().Info("configuration read again")
			return cfg
		}
		p.logger().Error("configuration not taken; the one before goes on", "reason", err.Error())
	}
}

// fire carries out one scheduled run and tells of it in the log and the
// history.
func (p process) fire(ctx context.Context, cfg *config.Config, q jobs.Request) {
	log := p.logger().With("job", q.Job.Name)
	log.Info("run started")
	runner, done, err := p.runner(cfg, cfg.Pace, q.Mode == jobs.Execute)
	if err != nil {
		log.Error("run not started", "reason", err.Error())
		return
	}
	summary, err := runner.Run(ctx, q)
	err = errors.Join(err, done())
	if summary == nil {
		summary = jobs.NotStarted(q, err)
	}
	attrs := []any{"exit", codeOf(err), "keys_scanned", summary.KeysScanned, "keys_matched", summary.KeysMatched,
		"took", summary.Finished.Sub(summary.Started).Round(time.Millisecond).String()}
	if a := summary.ActSummary; a != nil {
		attrs = append(attrs, "elements_removed", a.ElementsRemoved, "outcomes", outcomes(a.Outcomes))
	}
	if err := remember(cfg.StateDir, summary); err != nil {
		log.Warn("history not written", "reason", err.Error())
	}
	if err != nil {
		attrs = append(attrs, "reason", err.Error())
	}
	log.Log(ctx, levelOf(codeOf(err)), "run ended", attrs...)
}

// levelOf is how a run's end is logged: what was wanted so, a limit, a signal
// or another run's lock, is no error.
func levelOf(code int) slog.Level {
	switch code {
	case exitDone:
		return slog.LevelInfo
	case exitFailed, exitUsage, exitPartial:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// outcomes is those that occurred, as words.
func outcomes(o jobs.Outcomes) string {
	raw, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	counts := map[string]int64{}
	if err := json.Unmarshal(raw, &counts); err != nil {
		return err.Error()
	}
	var words []string
	for name, n := range counts {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s %d", name, n))
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// remember appends a run to the history of the state directory.
func remember(dir string, s *jobs.Summary) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "runs.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	stream, err := report.NewStream(f, report.JSONL)
	if err == nil {
		err = stream.Close(s)
	}
	return errors.Join(err, f.Close())
}

// told logs when each job is due next.
func told(log *slog.Logger, cfg *config.Config) {
	for _, j := range cfg.Jobs {
		when, err := jobs.NewSchedule(j)
		if j.Schedule == "" || err != nil {
			log.Info("job has no schedule; it runs by hand only", "job", j.Name)
			continue
		}
		log.Info("job scheduled", "job", j.Name, "next", when.Next(time.Now()))
	}
}
