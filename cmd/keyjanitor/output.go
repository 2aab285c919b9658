package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/report"
	"github.com/keyjanitor/keyjanitor/jobs"
)

// output is where the results of a command go.
type output struct {
	format string
	w      io.Writer
	stream *report.Stream // nil in the formats that need the whole
	file   *os.File       // nil: w is standard output
	name   string
}

func (p process) output(c *cli.Context) (*output, error) {
	o := &output{format: c.String("format"), w: p.stdout, name: c.String("output")}
	streams, err := report.Streams(o.format)
	if err != nil {
		return nil, usagef("--format: %s", err)
	}
	if c.Int("top") < 0 {
		return nil, usagef("--top: %d is negative; write 0 or more", c.Int("top"))
	}
	if o.name != "" {
		// The file bears another name until it is whole.
		o.file, err = os.CreateTemp(filepath.Dir(o.name), ".keyjanitor-*")
		if err != nil {
			return nil, usagef("--output: %s", err)
		}
		o.w = o.file
	}
	if streams {
		o.stream, err = report.NewStream(o.w, o.format)
	}
	return o, err
}

// finding is where findings go one by one; nil in the other formats.
func (o *output) finding() func(jobs.Finding) error {
	if o.stream == nil {
		return nil
	}
	return o.stream.Finding
}

// one writes a run's summary, of which there may be none, and closes.
func (o *output) one(s *jobs.Summary) error {
	if s == nil {
		return o.close(false)
	}
	var err error
	if o.stream != nil {
		err = o.stream.Close(s)
	} else {
		err = report.Write(o.w, o.format, s)
	}
	return errors.Join(err, o.close(err == nil))
}

// close gives the file its name if it is whole.
func (o *output) close(whole bool) error {
	if o.file == nil {
		return nil
	}
	err := errors.Join(o.file.Sync(), o.file.Close())
	if whole && err == nil {
		return os.Rename(o.file.Name(), o.name)
	}
	return errors.Join(err, os.Remove(o.file.Name()))
}
