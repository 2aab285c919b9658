package main

import (
	"errors"
	"fmt"
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
	name   string         // what the file is called once it is whole; "" for a device or a pipe
}

// output checks the flags that say how results are written.
func (r *reader) output() {
	_, err := report.Streams(r.c.String("format"))
	r.fail("format", err)
	r.top()
}

func (r *reader) top() {
	if top := r.c.Int("top"); top < 0 {
		r.fail("top", fmt.Errorf("%d is negative; write 0 or more", top))
	}
}

func (p process) output(c *cli.Context) (*output, error) {
	o := &output{format: c.String("format"), w: p.stdout}
	streams, err := report.Streams(o.format)
	if err != nil {
		return nil, err
	}
	if name := c.String("output"); name != "" {
		if err := o.create(name); err != nil {
			return nil, usagef("--output: %s", err)
		}
		o.w = o.file
	}
	if streams {
		if o.stream, err = report.NewStream(o.w, o.format); err != nil {
			return nil, errors.Join(err, o.close(false))
		}
	}
	return o, nil
}

// create opens the file, which bears another name until it is whole. A device
// or a pipe is written to as it is, and a link stays one.
func (o *output) create(name string) (err error) {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		o.file, err = os.OpenFile(name, os.O_WRONLY, 0)
		return err
	}
	o.name = name
	o.file, err = os.CreateTemp(filepath.Dir(name), ".keyjanitor-*")
	return err
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
	switch {
	case o.file == nil:
		return nil
	case o.name == "":
		return o.file.Close()
	}
	err := errors.Join(o.file.Sync(), o.file.Close())
	if whole && err == nil {
		return os.Rename(o.file.Name(), o.name)
	}
	return errors.Join(err, os.Remove(o.file.Name()))
}

// both streams findings to two takers, of which the first may be nil.
func both(a, b func(jobs.Finding) error) func(jobs.Finding) error {
	if a == nil {
		return b
	}
	return func(f jobs.Finding) error { return errors.Join(a(f), b(f)) }
}
