package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/report"
	"github.com/keyjanitor/keyjanitor/jobs"
)

func (p process) demoCommand() *cli.Command {
	return &cli.Command{
		Name:        "demo",
		Usage:       "the main job against an embedded server; no Redis needed",
		Description: "Starts an embedded imitation of Redis, fills it, scans it, deletes what is oversized and scans\nagain. The imitation is not faithful: the demo shows, it proves nothing.\n\n" + example("keyjanitor demo"),
		Action:      func(c *cli.Context) error { return p.demo(c.Context) },
	}
}

// The demo's keyspace: what an application might have, and four keys that
// have grown too large.
const (
	demoSmall     = 2000
	demoOversized = 20_000
	demoZset      = 2000 // the imitation sorts a sorted set anew for each command
	demoThreshold = 1000
)

func (p process) demo(ctx context.Context) error {
	server, err := miniredis.Run()
	if err != nil {
		return fmt.Errorf("start the embedded server: %w", err)
	}
	defer server.Close()
	if err := fillDemo(ctx, server.Addr()); err != nil {
		return fmt.Errorf("fill the embedded server: %w", err)
	}
	state, err := os.MkdirTemp("", "keyjanitor-demo-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)

	url := "redis://" + server.Addr()
	rule := fmt.Sprintf("--min-elements %d", demoThreshold)
	fmt.Fprintf(p.stdout, "An embedded server at %s holds %d keys; four of them have grown.\n", server.Addr(), demoSmall+4)
	cfg := &config.Config{StateDir: state, Pace: config.DefaultPace()}
	cfg.Pace.MaxShare = 100 // nobody else uses this server
	steps := []struct {
		command, says string
		mode          jobs.Mode
		allKeys       bool
	}{
		{"scan --url " + url + " " + rule, "Which keys are oversized?", jobs.Scan, false},
		{"clean --url " + url + " " + rule + " --all-keys", "What would a clean-up do? Without --execute nothing is changed.", jobs.Report, true},
		{"clean --url " + url + " " + rule + " --all-keys --execute", "Now for real.", jobs.Execute, true},
		{"scan --url " + url + " " + rule, "And after?", jobs.Scan, false},
	}
	for _, s := range steps {
		fmt.Fprintf(p.stdout, "\n%s\n$ keyjanitor %s\n\n", s.says, s.command)
		if err := p.demoStep(ctx, cfg, url, s.mode, s.allKeys); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stdout, "\nThe audit of the deletion was in %s/audit.jsonl; it is gone with the demo.\n", state)
	return nil
}

func (p process) demoStep(ctx context.Context, cfg *config.Config, url string, mode jobs.Mode, allKeys bool) error {
	target, err := config.ParseURL(url)
	if err != nil {
		return err
	}
	runner, done, err := p.runner(cfg, cfg.Pace, mode == jobs.Execute)
	if err != nil {
		return err
	}
	q := jobs.Request{Target: target, Mode: mode, Top: 10}
	q.Job.Select = config.Select{MinElements: demoThreshold, AllKeys: allKeys}
	q.Job.Action.Delete = &config.Delete{Method: config.MethodAuto}
	summary, err := runner.Run(ctx, q)
	if closed := done(); err == nil {
		err = closed
	}
	if summary != nil {
		if wrote := report.Write(p.stdout, report.Table, summary); err == nil {
			err = wrote
		}
	}
	return err
}

func fillDemo(ctx context.Context, addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	defer rdb.Close()
	pipe := rdb.Pipeline()
	for i := range demoSmall {
		pipe.Set(ctx, "session:"+strconv.Itoa(i), "some user's session", 0)
	}
	for i := range demoOversized {
		n := strconv.Itoa(i)
		pipe.HSet(ctx, "mi:0", "message:"+n, "text "+n)
		pipe.RPush(ctx, "queue:mail", "letter "+n)
		pipe.SAdd(ctx, "online:users", "user:"+n)
	}
	for i := range demoZset {
		pipe.ZAdd(ctx, "delay:0", redis.Z{Score: float64(i / 2), Member: "task:" + strconv.Itoa(i)})
	}
	_, err := pipe.Exec(ctx)
	return err
}
