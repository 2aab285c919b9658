package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"
)

// process is the world that a command runs in.
type process struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
}

func (p process) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(p.stderr, nil))
}

// run carries out one command line and returns its exit code.
func run(ctx context.Context, args []string, p process) int {
	app := newApp(p)
	err := app.RunContext(ctx, args)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(p.stderr, "keyjanitor: %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	return codeOf(err)
}

func newApp(p process) *cli.App {
	app := &cli.App{
		Name:                      "keyjanitor",
		Usage:                     "find oversized keys in Redis and Valkey and remove them in steps that no other client notices",
		Version:                   version,
		DisableSliceFlagSeparator: true,
		Reader:                    p.stdin,
		Writer:                    p.stdout,
		ErrWriter:                 p.stderr,
		ExitErrHandler:            func(*cli.Context, error) {}, // run maps errors to codes
		Commands: []*cli.Command{
			p.scanCommand(), p.cleanCommand(), p.deleteCommand(), p.trashCommand(), p.reportCommand(), p.runCommand(),
			p.daemonCommand(), p.ctlCommand(), p.checkCommand(), p.demoCommand(), p.versionCommand(),
		},
		Description: "Nothing is changed without --execute, or mode: execute in a job.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 partial, 4 stopped by a safety\n" +
			"limit, 5 another run holds the lock, 130 interrupted, 143 terminated.",
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("no command is named %q; keyjanitor --help lists them", name)
			}
			return cli.ShowAppHelp(c)
		},
	}
	app.OnUsageError = usageOf
	for _, cmd := range app.Commands {
		cmd.OnUsageError = usageOf
		cmd.HideHelpCommand = true
		if len(cmd.Subcommands) == 0 {
			cmd.Action = withoutArguments(cmd.Action)
			continue
		}
		cmd.Action = whichSubcommand(cmd)
		for _, sub := range cmd.Subcommands {
			sub.OnUsageError = usageOf
			sub.HideHelpCommand = true
		}
	}
	return app
}

func usageOf(c *cli.Context, err error, _ bool) error {
	// What the library says of a flag that is to be a number.
	text := strings.ReplaceAll(err.Error(), ": parse error", ": write a whole number")
	return usagef("%s; %s --help lists the flags", text, c.Command.HelpName)
}

// whichSubcommand is what a command does that has subcommands, without one.
func whichSubcommand(cmd *cli.Command) cli.ActionFunc {
	var names []string
	for _, sub := range cmd.Subcommands {
		names = append(names, sub.Name)
	}
	write := fmt.Sprintf("write one of %s, and see keyjanitor %s --help", strings.Join(names, ", "), cmd.Name)
	return func(c *cli.Context) error {
		if c.Args().Present() {
			return usagef("%s has no subcommand %q; %s", cmd.Name, c.Args().First(), write)
		}
		return usagef("%s needs a subcommand; %s", cmd.Name, write)
	}
}

// withoutArguments refuses what stands outside of flags: the library stops
// reading flags at the first of them, so that a --execute or a --match after
// it would be lost.
func withoutArguments(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Args().Present() {
			return usagef("unexpected argument %q; everything is given by flags, see %s --help", c.Args().First(), c.Command.HelpName)
		}
		return action(c)
	}
}

func (p process) versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: example("keyjanitor version"),
		Action: func(*cli.Context) error {
			_, err := fmt.Fprintf(p.stdout, "keyjanitor %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// joined is several problems as one usage error; nil if there are none.
func joined[T fmt.Stringer](problems []T) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return usageError{strings.Join(lines, "\n")}
}

// asUsage makes a usage error of any error that says what is wrong with a flag.
func asUsage(err error) error {
	var usage usageError
	if err == nil || errors.As(err, &usage) {
		return err
	}
	return usageError{err.Error()}
}
