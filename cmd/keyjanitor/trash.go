package main

import (
	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/jobs"
)

func (p process) trashCommand() *cli.Command {
	which := []cli.Flag{
		texts("key", selecting, "keys whose original name is `NAME`; repeatable"),
		&cli.StringFlag{Name: "job", Category: selecting, Usage: "keys that the job `NAME` set aside; - for those of clean and delete"},
		&cli.StringFlag{Name: "nonce", Category: selecting, Usage: "of several keys of one name the one with the nonce `TEXT`, as trash list shows it"},
		&cli.BoolFlag{Name: "due", Category: selecting, Usage: "keys whose time to be kept is over"},
		&cli.BoolFlag{Name: "all", Category: selecting, Usage: "every key of the trash"},
	}
	act := []cli.Flag{
		&cli.BoolFlag{Name: "execute", Category: acting, Usage: "act; without it the run only reports"},
		stateDirFlag(), okOnFlag(),
	}
	command := func(verb jobs.TrashVerb, usage, examples string, more ...[]cli.Flag) *cli.Command {
		return &cli.Command{
			Name: string(verb), Usage: usage, Description: examples,
			Flags:  flags(append([][]cli.Flag{connectionFlags(), which, outputFlags()}, more...)...),
			Action: withoutArguments(func(c *cli.Context) error { return p.trash(c, verb) }),
		}
	}
	return &cli.Command{
		Name:  "trash",
		Usage: "list, restore or purge keys that were set aside",
		Description: example(
			"keyjanitor trash list --url redis://10.0.0.5:6379 --all",
			"keyjanitor trash restore --url redis://10.0.0.5:6379 --key mi:0 --execute",
		),
		Subcommands: []*cli.Command{
			command(jobs.List, "list keys of the trash; never writes", example(
				"keyjanitor trash list --url redis://10.0.0.5:6379 --all",
				"keyjanitor trash list --url redis://10.0.0.5:6379 --job old-messages --format json",
			), paceFlags(false)),
			command(jobs.Restore, "give keys back: value, name and the TTL that remained; reports unless --execute", example(
				"keyjanitor trash restore --url redis://10.0.0.5:6379 --key mi:0 --execute",
				"keyjanitor trash restore --url redis://10.0.0.5:6379 --key mi:0 --as mi:0:yesterday --execute",
			), act, []cli.Flag{
				&cli.StringFlag{Name: "as", Category: acting, Usage: "restore one key under another `NAME`"},
				&cli.BoolFlag{Name: "swap", Category: acting, Usage: "where the name is taken, set what has it aside"},
			}, paceFlags(true)),
			command(jobs.Purge, "remove keys of the trash for good; reports unless --execute", example(
				"keyjanitor trash purge --url redis://10.0.0.5:6379 --due --execute",
				"keyjanitor trash purge --url redis://10.0.0.5:6379 --all --execute",
			), act, paceFlags(true)),
		},
	}
}

func (p process) trash(c *cli.Context, verb jobs.TrashVerb) error {
	t := &jobs.Trash{
		Verb: verb, Keys: c.StringSlice("key"), Job: c.String("job"), Nonce: c.String("nonce"), Due: c.Bool("due"), Swap: c.Bool("swap"),
	}
	chosen := len(t.Keys) > 0 || t.Job != "" || t.Nonce != "" || t.Due
	switch {
	case c.Bool("all") && chosen:
		return usagef("--all is every key; leave it, or --key, --job, --nonce and --due, out")
	case !c.Bool("all") && !chosen:
		return usagef("which keys of the trash? write --key NAME, --job NAME, --nonce TEXT, --due or --all")
	}
	if c.IsSet("as") {
		as := c.String("as")
		t.As = &as
		if len(t.Keys) != 1 {
			return usagef("--as names one key; write one --key with it")
		}
	}
	mode := jobs.Scan
	switch {
	case verb == jobs.List:
	case c.Bool("execute"):
		mode = jobs.Execute
	default:
		mode = jobs.Report
	}
	s, err := p.connection(c)
	if err != nil {
		return err
	}
	r := &reader{c: c}
	pace := r.pace(s.config.Pace)
	r.output()
	r.fail("ok-on", okOnProblem(c.String("ok-on")))
	if err := r.err(); err != nil {
		return err
	}
	q := jobs.Request{Mode: mode, Target: s.target, Top: c.Int("top"), Trash: t}
	// Nothing else is measured, and what a rule selects is left alone.
	q.Job.Select.Prefix = []string{"keyjanitor:trash:{"}
	return p.oneRun(c, s, pace, q)
}
