package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// keys is the sequence of keys that delete's flags name, in database db where
// they do not say.
func (p process) keys(c *cli.Context, db int) (iter.Seq2[jobs.Named, error], io.Closer, error) {
	if c.IsSet("key") {
		names := c.StringSlice("key")
		return func(yield func(jobs.Named, error) bool) {
			for _, name := range names {
				if !yield(jobs.Named{Name: name, DB: db}, nil) {
					return
				}
			}
		}, io.NopCloser(nil), nil
	}
	in, closer := p.stdin, io.NopCloser(nil)
	if name := c.String("keys-file"); name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, usagef("--keys-file: %s", err)
		}
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return nil, nil, errors.Join(usagef("--keys-file: %s is a directory", name), f.Close())
		}
		in, closer = f, f
	}
	read := jobs.NamesFromJSON
	if c.Bool("null") {
		read = jobs.NamesFromNull
	}
	if !regular(in) {
		in = interruptible(c.Context, in)
	}
	if err := readable(in, func(r io.Reader) iter.Seq2[jobs.Named, error] { return read(r, db) }); err != nil {
		return nil, nil, errors.Join(usagef("--keys-file: %s", err), closer.Close())
	}
	return read(in, db), closer, nil
}

// readable reads a whole file before anything is done about the first key in
// it. What can be read only once, a pipe, is taken as it comes.
func readable(in io.Reader, read func(io.Reader) iter.Seq2[jobs.Named, error]) error {
	f, ok := in.(*os.File)
	if !ok {
		return nil
	}
	start, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	for _, err := range read(f) {
		if err != nil {
			return err
		}
	}
	_, err = f.Seek(start, io.SeekStart)
	return err
}

// regular reports whether a file can be read twice.
func regular(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// interruptible reads a pipe until ctx is done: a pipe that nobody writes to
// must not keep us from ending. What then still waits for it ends with the
// process.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err) // never fails, says its documentation
	}()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	return out
}
