// Package audit keeps the record of a run: what is about to be done to which
// key and why, and what came of it, as JSON lines that only ever grow. It
// promises that an intent is on disk before Intents returns.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// FileName is the name of the audit in the state directory.
const FileName = "audit.jsonl"

// When the file is put aside, as audit-TIME.jsonl, and a new one begun; and
// how many of those stay.
const (
	maxBytes = 100 << 20
	maxAge   = 30 * 24 * time.Hour
	maxFiles = 20
)

// File is an audit in a file. It is safe for concurrent use, also by several
// processes: each page is one write to the end of the file, and one that
// another process put aside is written to until it is full here, too.
type File struct {
	dir  string
	most int64 // bytes
	kept int   // files

	mu    sync.Mutex
	f     *os.File
	size  int64
	begun time.Time // by its first line
	cut   bool      // the last line may have no end
}

// Open opens or creates the audit of a state directory. Its errors are
// jobs.ErrState.
func Open(stateDir string) (*File, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrState, err)
	}
	a := &File{dir: stateDir, most: maxBytes, kept: maxFiles}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrState, err)
	}
	return a, nil
}

// open opens the current file. That its name is on disk, too, is part of what
// an intent waits for.
func (a *File) open() error {
	f, err := os.OpenFile(filepath.Join(a.dir, FileName), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		err = syncDir(a.dir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.f, a.size, a.begun, a.cut = f, info.Size(), begun(f), cutOff(f)
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// begun is the time of the first line; now, where there is none to read.
func begun(f *os.File) time.Time {
	var first struct {
		Time time.Time `json:"time"`
	}
	line, err := bufio.NewReader(io.NewSectionReader(f, 0, 1<<20)).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &first) != nil || first.Time.IsZero() {
		return time.Now()
	}
	return first.Time
}

// rotate puts a file aside that is full or old. One that another process has
// put aside already only makes room for the current one.
func (a *File) rotate() error {
	if a.size < a.most && time.Since(a.begun) < maxAge || a.size == 0 {
		return nil
	}
	path := filepath.Join(a.dir, FileName)
	mine, err1 := a.f.Stat()
	current, err2 := os.Stat(path)
	if err1 == nil && err2 == nil && os.SameFile(mine, current) {
		aside := filepath.Join(a.dir, "audit-"+time.Now().UTC().Format("20060102T150405.000000000Z")+".jsonl")
		if err := os.Rename(path, aside); err != nil && !errors.Is(err, fs.ErrNotExist) { // another was faster
			return err
		}
	}
	if err := errors.Join(a.f.Sync(), a.f.Close()); err != nil {
		return err
	}
	if err := a.open(); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(a.dir, "audit-*Z.jsonl"))
	slices.Sort(old)
	for len(old) > a.kept {
		if gone := os.Remove(old[0]); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		old = old[1:]
	}
	return err
}

// cutOff reports whether a crash or a full disk ended the file within a line.
func cutOff(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Intents writes entries and syncs them to disk.
func (a *File) Intents(entries []jobs.Entry) error {
	return a.write(entries, true)
}

// Results writes entries; the next sync takes them along.
func (a *File) Results(entries []jobs.Entry) error {
	return a.write(entries, false)
}

// Close syncs and closes the file.
func (a *File) Close() error {
	if err := errors.Join(a.f.Sync(), a.f.Close()); err != nil {
		return fmt.Errorf("%w: %w", jobs.ErrState, err)
	}
	return nil
}

func (a *File) write(entries []jobs.Entry, sync bool) error {
	if len(entries) == 0 {
		return nil
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	for i := range entries {
		if err := out.Encode(&entries[i]); err != nil {
			return fmt.Errorf("%w: encode an audit entry: %w", jobs.ErrState, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.rotate(); err != nil {
		return fmt.Errorf("%w: begin a new audit file: %w", jobs.ErrState, err)
	}
	text := b.Bytes()
	if a.cut {
		text = append([]byte{'\n'}, text...)
	}
	if _, err := a.f.Write(text); err != nil {
		a.cut = true
		return fmt.Errorf("%w: %w", jobs.ErrState, err)
	}
	a.cut = false
	a.size += int64(len(text))
	if sync {
		if err := a.f.Sync(); err != nil {
			return fmt.Errorf("%w: %w", jobs.ErrState, err)
		}
	}
	return nil
}
