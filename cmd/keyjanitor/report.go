package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/report"
	"github.com/keyjanitor/keyjanitor/jobs"
)

func (p process) reportCommand() *cli.Command {
	show := example(
		"keyjanitor report show report.json",
		"keyjanitor report show --format html --output report.html report.json",
	)
	merge := example(
		"keyjanitor report merge --output whole.json part-0.json part-1.json part-2.json",
		"keyjanitor report merge --format html --output whole.html part-0.json part-1.json",
	)
	diff := example(
		"keyjanitor report diff monday.json tuesday.json",
		"keyjanitor report diff --format json --top 20 monday.json tuesday.json",
	)
	formatFlags := func(format, formats string) []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "format", Category: printing, Value: format, Usage: formats},
			&cli.StringFlag{Name: "output", Category: printing, Usage: "write the result to `FILE`, which appears when it is whole"},
		}
	}
	top := &cli.IntFlag{Name: "top", Category: printing, Value: 100, Usage: "keep the `N` largest of each list"}
	const formats = "table, json, jsonl, csv or html"
	command := func(name, arguments, usage, examples string, action cli.ActionFunc, flags []cli.Flag) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: arguments, Description: examples + "\n\nFlags stand before the files; - is standard input.",
			Flags: flags, Action: filesLast(action),
		}
	}
	return &cli.Command{
		Name:        "report",
		Usage:       "show, merge or compare reports that were written with --format json",
		Description: strings.Join([]string{show, strings.TrimPrefix(merge, "Examples:\n"), strings.TrimPrefix(diff, "Examples:\n")}, "\n"),
		Subcommands: []*cli.Command{
			command("show", "FILE", "show a report in any format", show, p.showReport, formatFlags("table", formats)),
			command("merge", "FILE...", "join the reports of several workers or targets into one", merge, p.mergeReports,
				append(formatFlags("json", formats), top)),
			command("diff", "OLD NEW", "tell what grew, shrank, came and went between two reports", diff, p.diffReports,
				append(formatFlags("table", "table or json"), top)),
		},
	}
}

// filesLast refuses flags behind the first file, where the library takes them
// for files.
func filesLast(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		for _, arg := range c.Args().Slice() {
			if strings.HasPrefix(arg, "-") && arg != "-" {
				return usagef("%s stands behind a file; flags come first, as in keyjanitor report %s [flags] %s (a file of such a name is written ./%s)",
					arg, c.Command.Name, c.Command.ArgsUsage, arg)
			}
		}
		return action(c)
	}
}

func (p process) showReport(c *cli.Context) error {
	r := &reader{c: c}
	r.output()
	if err := r.err(); err != nil {
		return err
	}
	if c.NArg() != 1 {
		return usagef("show takes one report, not %d; write keyjanitor report show FILE", c.NArg())
	}
	f, err := p.readReport(c.Args().First())
	if err != nil {
		return err
	}
	return p.writeReport(c, f)
}

func (p process) mergeReports(c *cli.Context) error {
	r := &reader{c: c}
	r.output()
	if err := r.err(); err != nil {
		return err
	}
	if c.NArg() == 0 {
		return usagef("which reports? write keyjanitor report merge FILE...")
	}
	merged := &report.File{}
	byJob := map[string]*jobs.Merger{}
	var order []string
	for _, name := range c.Args().Slice() {
		f, err := p.readReport(name)
		if err != nil {
			return err
		}
		merged.Several = merged.Several || f.Several
		for _, s := range f.Runs {
			m := byJob[s.Job]
			if m == nil {
				m = jobs.NewMerger(c.Int("top"))
				byJob[s.Job], order = m, append(order, s.Job)
			}
			if err := m.Add(filepath.Base(name), s); err != nil {
				return asUsage(err)
			}
		}
	}
	for _, job := range order {
		merged.Runs = append(merged.Runs, byJob[job].Summary())
	}
	merged.Several = merged.Several || len(order) > 1
	return p.writeReport(c, merged)
}

func (p process) diffReports(c *cli.Context) error {
	r := &reader{c: c}
	r.top()
	if format := c.String("format"); format != report.Table && format != report.JSON {
		r.fail("format", fmt.Errorf("%q can't show what changed; use table or json", format))
	}
	if err := r.err(); err != nil {
		return err
	}
	if c.NArg() != 2 {
		return usagef("diff takes two reports, not %d; write keyjanitor report diff OLD NEW", c.NArg())
	}
	var sides [2]*report.File
	for i := range sides {
		var err error
		if sides[i], err = p.readReport(c.Args().Get(i)); err != nil {
			return err
		}
	}
	out, err := p.output(c)
	if err != nil {
		return err
	}
	diffs := report.Compare(sides[0], sides[1], c.Int("top"))
	err = report.WriteDiffs(out.w, out.format, diffs, sides[0].Several || sides[1].Several)
	return errors.Join(err, out.close(err == nil))
}

// readReport reads a report; every error is one of the command line.
func (p process) readReport(name string) (*report.File, error) {
	in := p.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, usagef("%s", err)
		}
		defer file.Close()
		in = file
	}
	f, err := report.Read(in)
	if err != nil {
		return nil, usagef("%s: %s", name, err)
	}
	return f, nil
}

// writeReport writes a report in the format that the flags name.
func (p process) writeReport(c *cli.Context, f *report.File) error {
	out, err := p.output(c)
	if err != nil {
		return err
	}
	switch {
	case out.stream != nil:
		for _, s := range f.Runs {
			for _, found := range s.Findings {
				err = errors.Join(err, out.stream.Finding(found))
			}
			err = errors.Join(err, out.stream.Close(s))
		}
	case f.Several:
		err = report.WriteRuns(out.w, out.format, f.Runs)
	default:
		err = report.Write(out.w, out.format, f.Runs[0])
	}
	return errors.Join(err, out.close(err == nil))
}
