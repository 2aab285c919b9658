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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/audit"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/report"
	"github.com/keyjanitor/keyjanitor/internal/web"
	"github.com/keyjanitor/keyjanitor/jobs"
)

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
	control := &jobs.Control{Pace: cfg.Pace}
	fire := func(ctx context.Context, cfg *config.Config, j config.Job) {
		if _, already := running.LoadOrStore(j.Name, true); already {
			log.Warn("job is still running; this time is skipped", "job", j.Name)
			return
		}
		defer running.Delete(j.Name)
		p.fire(ctx, cfg, control, requestOf(c, cfg, j, wait))
	}
	var current atomic.Pointer[config.Config]
	defer p.steer(c, cfg.StateDir, &web.Server{Control: control, Run: func(name string) error {
		cfg := current.Load()
		i := slices.IndexFunc(cfg.Jobs, func(j config.Job) bool { return j.Name == name })
		if i < 0 {
			return fmt.Errorf("no job is named %q", name)
		}
		if _, already := running.Load(name); already {
			return fmt.Errorf("job %q is running", name)
		}
		generations.Go(func() { fire(c.Context, cfg, cfg.Jobs[i]) })
		return nil
	}})()
	for {
		current.Store(cfg)
		here := cfg // what this generation goes by, whatever is read later
		d := &jobs.Daemon{Log: log, Jobs: here.Jobs, Fire: func(ctx context.Context, j config.Job) { fire(ctx, here, j) }}
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
func (p process) fire(ctx context.Context, cfg *config.Config, control *jobs.Control, q jobs.Request) {
	log := p.logger().With("job", q.Job.Name)
	log.Info("run started")
	runner, done, err := p.runner(cfg, cfg.Pace, q.Mode == jobs.Execute)
	if err != nil {
		log.Error("run not started", "reason", err.Error())
		return
	}
	runner.Control = control
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
