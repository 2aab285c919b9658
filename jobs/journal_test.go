package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hostile are names that a line-based file could stumble over.
var hostile = []string{
	"", " ", "\n", "a\nb", "a b  c", "\x00", "a\x00b", "\xff\xfe", "+ 0 YQ==", "- 0 YQ==\n", "\r\n", "{tag}", "é世界",
	strings.Repeat("long", 50_000),
}

func open(t *testing.T, dir, target string) (*journal, []trashed) {
	t.Helper()
	j, left, err := openJournal(dir, target)
	if err != nil {
		t.Fatal(err)
	}
	return j, left
}

// shown is what a message shows of names.
func shown(names []trashed) (out []string) {
	for _, n := range names {
		out = append(out, fmt.Sprintf("%d %.40s", n.db, n.name))
	}
	return out
}

// die ends a journal as a killed process does: the kernel closes its files.
func (j *journal) die(t *testing.T) {
	t.Helper()
	if err := errors.Join(j.lock.Unlock(), j.file.Close()); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestJournalOfADeadRun(t *testing.T) {
	dir := t.TempDir()
	j, left := open(t, dir, "msg")
	if len(left) != 0 {
		t.Fatalf("a new directory has %q left", shown(left))
	}
	if err := (shardJournal{j, 3}).Begin(hostile); err != nil {
		t.Fatal(err)
	}
	if err := (shardJournal{j, 4}).Begin([]string{"a\nb", "done"}); err != nil {
		t.Fatal(err)
	}
	if err := (shardJournal{j, 4}).Done("done"); err != nil {
		t.Fatal(err)
	}
	j.die(t)

	want := []trashed{}
	for _, name := range hostile {
		want = append(want, trashed{3, name})
	}
	want = append(want, trashed{4, "a\nb"})

	// Twice: what a run takes over it keeps, should it die too.
	for range 2 {
		j, left = open(t, dir, "msg")
		if !slices.Equal(left, want) {
			t.Fatalf("left is %q, want %q", shown(left), shown(want))
		}
		if got := files(t, dir); len(got) != 1 {
			t.Errorf("files %q, want the one of the live run", got)
		}
		j.die(t)
	}
	j, _ = open(t, dir, "msg")
	for _, l := range want {
		if err := (shardJournal{j, l.db}).Done(l.name); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("nothing is in the trash and %q are left", got)
	}
	if err := errors.Join(j.lock.Unlock(), j.file.Close()); err == nil {
		t.Error("close left the file open")
	}
}

func TestJournalKeepsWhatIsOpen(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir, "msg")
	s := shardJournal{j, 0}
	if err := errors.Join(s.Begin([]string{"one", "two"}), s.Done("one"), j.close()); err != nil {
		t.Fatal(err)
	}
	j, left := open(t, dir, "msg")
	if !slices.Equal(left, []trashed{{0, "two"}}) {
		t.Errorf("left is %q, want two", shown(left))
	}
	_ = j.close()
}

// Names, target and database keep journals apart; a target's name may hold
// anything.
func TestJournalOfEachTarget(t *testing.T) {
	dir := t.TempDir()
	targets := []string{"a", "A", "../a", "127.0.0.1:6379", "/run/redis.sock", ""}
	for _, target := range targets {
		j, left := open(t, dir, target)
		if len(left) != 0 {
			t.Errorf("target %q finds %q of another", target, shown(left))
		}
		if err := (shardJournal{j, 0}).Begin([]string{"of " + target}); err != nil {
			t.Fatal(err)
		}
		j.die(t)
	}
	for _, target := range targets {
		j, left := open(t, dir, target)
		if !slices.Equal(left, []trashed{{0, "of " + target}}) {
			t.Errorf("target %q finds %q", target, shown(left))
		}
		j.die(t)
	}
	for _, path := range files(t, dir) {
		if !strings.HasPrefix(path, filepath.Join(dir, "trash")+"/") {
			t.Errorf("%s is outside of the trash folder", path)
		}
	}
}

// Two runs at once: neither takes the other's names, and both write on.
func TestJournalOfALiveRun(t *testing.T) {
	dir := t.TempDir()
	first, _ := open(t, dir, "msg")
	if err := (shardJournal{first, 0}).Begin([]string{"first's"}); err != nil {
		t.Fatal(err)
	}
	second, left := open(t, dir, "msg")
	if len(left) != 0 {
		t.Errorf("the second run takes %q of the first", shown(left))
	}
	if err := (shardJournal{first, 0}).Begin([]string{"more"}); err != nil {
		t.Error(err)
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
	first.die(t)
	third, left := open(t, dir, "msg")
	if len(left) != 2 {
		t.Errorf("of the first run is left %q", shown(left))
	}
	_ = third.close()
}

// However many runs begin at the same moment, exactly one takes over what a
// dead run left, and none fails because another was quicker.
func TestJournalTakenOverOnce(t *testing.T) {
	for range 30 {
		dir := t.TempDir()
		dead, _ := open(t, dir, "msg")
		if err := (shardJournal{dead, 0}).Begin([]string{"left"}); err != nil {
			t.Fatal(err)
		}
		dead.die(t)
		const runs = 16
		var wg sync.WaitGroup
		var mu sync.Mutex
		took := 0
		var all []*journal
		for range runs {
			wg.Go(func() {
				j, left, err := openJournal(dir, "msg")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				took += len(left)
				all = append(all, j)
			})
		}
		wg.Wait()
		if took != 1 {
			t.Fatalf("%d of %d runs took the name over", took, runs)
		}
		for _, j := range all {
			j.die(t)
		}
	}
}

func TestJournalCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []trashed
	}{
		"empty":                   {"", nil},
		"no end of the last line": {"+ 0 YQ==\n+ 0 Yg==", []trashed{{0, "a"}}},
		"cut in the number":       {"+ 0 YQ==\n+ 1", []trashed{{0, "a"}}},
		"an end that is no line":  {"+ 0 YQ==\n- 0 Y", []trashed{{0, "a"}}},
		"broken in the middle":    {"+ 0 YQ==\n+ 0 ***\n+ x YQ==\n+ 0\n\n+ 0 Yg==\n", []trashed{{0, "a"}, {0, "b"}}},
		"twice":                   {"+ 0 YQ==\n+ 0 YQ==\n", []trashed{{0, "a"}}},
		"again":                   {"+ 0 YQ==\n- 0 YQ==\n+ 0 YQ==\n", []trashed{{0, "a"}}},
		"of another database":     {"+ 0 YQ==\n- 1 YQ==\n", []trashed{{0, "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(journalDir(dir, "msg"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(journalDir(dir, "msg"), "1.journal"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			j, left := open(t, dir, "msg")
			defer j.close()
			seen := map[trashed]bool{}
			for _, l := range left {
				seen[l] = true
			}
			for _, w := range c.want {
				if !seen[w] {
					t.Errorf("%q is not found in %q", w.name, shown(left))
				}
			}
			if len(seen) != len(c.want) {
				t.Errorf("left is %q, want %q", shown(left), shown(c.want))
			}
		})
	}
}

func TestJournalUnwritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(file, "msg"); !errors.Is(err, ErrState) {
		t.Errorf("a state directory that is a file: %v, want ErrState", err)
	}
	if os.Getuid() != 0 { // root may write everywhere
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openJournal(dir, "msg"); !errors.Is(err, ErrState) {
			t.Errorf("a state directory without write permission: %v, want ErrState", err)
		}
	}
}

// A name that could not be written is an error of Begin, so the key keeps its
// place; and after a line that may be broken nothing is written any more.
func TestJournalThatFails(t *testing.T) {
	j, _ := open(t, t.TempDir(), "msg")
	working := j.file
	defer working.Close()
	readOnly, err := os.Open(j.path)
	if err != nil {
		t.Fatal(err)
	}
	j.file = readOnly
	s := shardJournal{j, 0}
	if err := s.Begin([]string{"a"}); !errors.Is(err, ErrState) {
		t.Errorf("Begin on a file that can't be written: %v, want ErrState", err)
	}
	if len(j.open) != 0 {
		t.Errorf("a name that is not on disk counts as written: %v", j.open)
	}
	j.file = working
	if err := s.Begin([]string{"b"}); !errors.Is(err, ErrState) {
		t.Errorf("after a line that may be broken: %v, want ErrState", err)
	}
}

func TestNoJournal(t *testing.T) {
	if err := errors.Join(noJournal{}.Begin([]string{"a"}), noJournal{}.Done("a")); err != nil {
		t.Error(err)
	}
}
