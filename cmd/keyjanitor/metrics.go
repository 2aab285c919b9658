package main

import (
	"errors"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/report"
)

func metricsFlag() cli.Flag {
	return &cli.StringFlag{Name: "metrics-file", Category: printing, Usage: "write the run's figures to `FILE` for Prometheus, by node_exporter's textfile collector"}
}

// metrics is the file that --metrics-file names; nil without one.
type metrics struct {
	out    output
	before io.Reader // what the file holds until it is replaced; nil: nothing
	runs   []report.Measured
}

// metrics begins the file, before anything is run for it.
func (p process) metrics(c *cli.Context) (*metrics, error) {
	name := c.String("metrics-file")
	if name == "" {
		return nil, nil
	}
	m := &metrics{}
	if err := m.out.create(name); err != nil {
		return nil, usagef("--metrics-file: %s", err)
	}
	if m.out.name == "" {
		return m, nil
	}
	// The collector reads it as another user.
	if err := m.out.file.Chmod(0o644); err != nil {
		return nil, errors.Join(usagef("--metrics-file: %s", err), m.out.close(false))
	}
	if f, err := os.Open(m.out.name); err == nil {
		m.before = f
	}
	return m, nil
}

// add takes in one run.
func (m *metrics) add(r report.Measured) {
	if m != nil {
		m.runs = append(m.runs, r)
	}
}

// close writes the file. Without any run there is nothing to tell.
func (m *metrics) close() error {
	if m == nil {
		return nil
	}
	if f, ok := m.before.(io.Closer); ok {
		defer f.Close()
	}
	if len(m.runs) == 0 {
		return m.out.close(false)
	}
	err := report.WriteMetrics(m.out.file, m.runs, m.before)
	return errors.Join(err, m.out.close(err == nil))
}
