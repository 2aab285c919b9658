// Package audit keeps the record of a run: what is about to be done to which
// key and why, and what came of it, as JSON lines that only ever grow. It
// promises that an intent is on disk before Intents returns.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// FileName is the name of the audit in the state directory.
const FileName = "audit.jsonl"

// File is an audit in a file. It is safe for concurrent use, also by several
// processes: each page is one write to the end of the file.
type File struct {
	mu  sync.Mutex
	f   *os.File
	cut bool // the last line may have no end
}

// Open opens or creates the audit of a state directory. Its errors are
// jobs.ErrState.
func Open(stateDir string) (*File, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrState, err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, FileName), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrState, err)
	}
	return &File{f: f, cut: cutOff(f)}, nil
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
	text := b.Bytes()
	if a.cut {
		text = append([]byte{'\n'}, text...)
	}
	if _, err := a.f.Write(text); err != nil {
		a.cut = true
		return fmt.Errorf("%w: %w", jobs.ErrState, err)
	}
	a.cut = false
	if sync {
		if err := a.f.Sync(); err != nil {
			return fmt.Errorf("%w: %w", jobs.ErrState, err)
		}
	}
	return nil
}
