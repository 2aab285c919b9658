package jobs

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gofrs/flock"
)

// ErrState: the state directory cannot be used. Nothing was acted on for lack
// of a record of it.
var ErrState = errors.New("state directory")

// journal keeps, outside the server, the names of keys that one run has in
// the trash, so that a later run finds them without scanning. Each run writes
// a file of its own, which it holds locked; a file that nobody holds is what
// a dead run left.
//
// A line is "+" or "-", the database, and the name in base64.
type journal struct {
	dir  string
	mu   sync.Mutex
	path string
	file *os.File
	lock *flock.Flock
	open map[string]bool // names that are, or may be, in the trash
	err  error           // of a write: what follows a broken line can't be read
}

type oldJournal struct {
	path string
	lock *flock.Flock
}

// journalDir has one directory of journals for each target.
func journalDir(stateDir, target string) string {
	return filepath.Join(stateDir, "trash", base64.RawURLEncoding.EncodeToString([]byte(target)))
}

// openJournal makes a run's journal and returns what earlier runs left.
func openJournal(stateDir, target string) (*journal, []trashed, error) {
	j := &journal{dir: journalDir(stateDir, target), open: map[string]bool{}}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	left, old, err := deadJournals(j.dir)
	defer func() {
		for _, o := range old {
			_ = o.lock.Unlock()
		}
	}()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if err := j.create(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	// What earlier runs left is this run's to remember from here on.
	if err := j.write("+", left...); err != nil {
		return nil, nil, errors.Join(err, os.Remove(j.path), j.lock.Unlock(), j.file.Close())
	}
	for _, o := range old {
		_ = os.Remove(o.path)
	}
	return j, left, nil
}

// deadJournals locks the journals that no live run holds and reads them. The
// locks are held, and for the caller to give back, also where it fails.
func deadJournals(dir string) (left []trashed, old []oldJournal, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, nil, err
	}
	for _, path := range paths {
		// Without O_CREATE: another run may just have taken the file over.
		lock := flock.New(path, flock.SetFlag(os.O_RDONLY))
		if held, err := lock.TryLock(); err != nil || !held {
			continue
		}
		old = append(old, oldJournal{path, lock})
		names, err := readJournal(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // taken over between our opening and our locking it
		}
		if err != nil {
			return nil, old, err
		}
		left = append(left, names...)
	}
	return left, old, nil
}

// create makes the file and locks it before it bears a name that another run
// would take for a dead run's.
func (j *journal) create() (err error) {
	if j.file, err = os.CreateTemp(j.dir, "*.new"); err != nil {
		return err
	}
	j.lock = flock.New(j.file.Name())
	j.path = strings.TrimSuffix(j.file.Name(), ".new") + ".journal"
	if _, err = j.lock.TryLock(); err == nil {
		err = os.Rename(j.file.Name(), j.path)
	}
	if err == nil {
		err = syncDir(j.dir)
	}
	if err != nil {
		_, _ = os.Remove(j.file.Name()), os.Remove(j.path)
		_, _ = j.lock.Unlock(), j.file.Close()
	}
	return err
}

// syncDir makes the names of new files survive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// trashed is a name in the trash of one database.
type trashed struct {
	db   int
	name string
}

func (t trashed) line() string {
	return strconv.Itoa(t.db) + " " + base64.StdEncoding.EncodeToString([]byte(t.name))
}

func readJournal(path string) ([]trashed, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	open := map[trashed]bool{}
	var order []trashed
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // a line without an end was never synced: nothing followed from it
		}
		if err != nil {
			return nil, err
		}
		var t trashed
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(fields) != 3 {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(fields[2])
		if err != nil {
			continue
		}
		t.name = string(raw)
		if t.db, err = strconv.Atoi(fields[1]); err != nil {
			continue
		}
		if fields[0] == "+" && !open[t] {
			order = append(order, t)
		}
		open[t] = fields[0] == "+"
	}
	return slices.DeleteFunc(order, func(t trashed) bool { return !open[t] }), nil
}

func (j *journal) write(sign string, names ...trashed) error {
	if len(names) == 0 {
		return nil
	}
	var b strings.Builder
	for _, t := range names {
		b.WriteString(sign + " " + t.line() + "\n")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if _, err := j.file.WriteString(b.String()); err != nil {
		j.err = fmt.Errorf("%w: %w", ErrState, err)
		return j.err
	}
	for _, t := range names {
		if sign == "+" {
			j.open[t.line()] = true
		} else {
			delete(j.open, t.line())
		}
	}
	if sign == "-" {
		return nil // lost, it costs the next run one look
	}
	if err := j.file.Sync(); err != nil {
		j.err = fmt.Errorf("%w: %w", ErrState, err)
	}
	return j.err
}

// close ends the journal; where nothing is left in the trash its file goes.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if len(j.open) == 0 {
		err = os.Remove(j.path)
	}
	return errors.Join(err, j.lock.Unlock(), j.file.Close())
}

// shardJournal is the journal as one shard's deleter sees it.
type shardJournal struct {
	j  *journal
	db int
}

// Begin records names, synced to disk, before they come to be.
func (s shardJournal) Begin(names []string) error {
	all := make([]trashed, len(names))
	for i, name := range names {
		all[i] = trashed{s.db, name}
	}
	return s.j.write("+", all...)
}

// Done records that a name is no more.
func (s shardJournal) Done(name string) error {
	return s.j.write("-", trashed{s.db, name})
}

// noJournal is the journal of a run that changes nothing.
type noJournal struct{}

// Begin does nothing.
func (noJournal) Begin([]string) error { return nil }

// Done does nothing.
func (noJournal) Done(string) error { return nil }
