package audit

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyjanitor/keyjanitor/jobs"
)

func openFile(t *testing.T, dir string) *File {
	t.Helper()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// lines parses what is in the audit of a directory.
func lines(t *testing.T, dir string) []map[string]any {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []map[string]any
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		if in.Text() == "" {
			continue
		}
		m := map[string]any{}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			t.Fatalf("line %d, %.200q: %v", len(all)+1, in.Text(), err)
		}
		all = append(all, m)
	}
	return all
}

func intent(key string) jobs.Entry {
	n := int64(3)
	e := jobs.Entry{
		Time: time.Now(), Run: "r", Job: "j", Target: "t", Shard: "s/0", Kind: "intent", Key: &key, Type: "hash", Elements: &n,
		Evidence: &jobs.Evidence{MinElements: 2},
	}
	if strings.ToValidUTF8(key, "") != key {
		e.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(key))
	}
	return e
}

func result(key string) jobs.Entry {
	e := intent(key)
	e.Kind, e.Evidence, e.Fate = "result", nil, &jobs.Fate{Outcome: "drained", Method: "drain", ElementsRemoved: 3, Batches: 1}
	return e
}

func TestLinesParseBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet", "there")
	names := []string{"", "a", "a\nb", "\r\n", "\x00", `"{}`, "<&>", "\u2028", "\xff\xfe", "half \xc3", "é世界", strings.Repeat("x", 1<<20)}
	f := openFile(t, dir)
	for _, name := range names {
		if err := errors.Join(f.Intents([]jobs.Entry{intent(name)}), f.Results([]jobs.Entry{result(name)})); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, dir)
	if len(got) != 2*len(names) {
		t.Fatalf("%d lines for %d entries", len(got), 2*len(names))
	}
	for i, m := range got {
		name, _ := m["key"].(string)
		if raw, ok := m["key_base64"].(string); ok {
			b, err := base64.StdEncoding.DecodeString(raw)
			if err != nil {
				t.Fatal(err)
			}
			name = string(b)
		}
		if name != names[i/2] {
			t.Errorf("line %d is of %.40q, want %.40q", i, name, names[i/2])
		}
		kind, outcome, rule := m["kind"], m["outcome"], m["rule"]
		if i%2 == 0 && (kind != "intent" || outcome != nil || rule == nil) || i%2 == 1 && (kind != "result" || outcome != "drained" || rule != nil) {
			t.Errorf("line %d: kind %v, outcome %v, rule %v", i, kind, outcome, rule)
		}
		if _, unknown := m["bytes"]; unknown {
			t.Errorf("line %d tells bytes that are not known", i)
		}
	}
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want only its owner to read it", info.Mode())
	}
}

// An intent is readable by others when Intents returns: nothing waits in the
// process. That it is synced can't be seen without pulling the plug.
func TestIntentsAreOnDisk(t *testing.T) {
	dir := t.TempDir()
	f := openFile(t, dir)
	defer f.Close()
	if err := f.Intents([]jobs.Entry{intent("a"), intent("b")}); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, dir); len(got) != 2 {
		t.Errorf("%d lines, want 2", len(got))
	}
	if err := errors.Join(f.Intents(nil), f.Results(nil)); err != nil {
		t.Error(err)
	}
}

func TestAppends(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		f := openFile(t, dir)
		if err := errors.Join(f.Intents([]jobs.Entry{intent("a")}), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if got := lines(t, dir); len(got) != 3 {
		t.Errorf("%d lines after three runs", len(got))
	}
}

// What can't be written or synced is an error, so that nothing is acted on.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	closed := openFile(t, dir)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	r, w, err := os.Pipe() // takes writes, and can't be synced
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, f := range map[string]*File{"closed": closed, "not writable": {f: readOnly}, "full": {f: full(t)}, "can't be synced": {f: w}} {
		if err := f.Intents([]jobs.Entry{intent("a")}); !errors.Is(err, jobs.ErrState) {
			t.Errorf("intents on a file that is %s: %v, want ErrState", name, err)
		}
		if err := f.Results([]jobs.Entry{result("a")}); name != "can't be synced" && !errors.Is(err, jobs.ErrState) {
			t.Errorf("results on a file that is %s: %v, want ErrState", name, err)
		}
		if err := f.Close(); name == "closed" && !errors.Is(err, jobs.ErrState) {
			t.Errorf("close of a file that is %s: %v, want ErrState", name, err)
		}
	}
}

// full is a file on a disk without room.
func full(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		f, err = os.Open(os.DevNull) // elsewhere than on Linux: not writable either
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); !errors.Is(err, jobs.ErrState) {
		t.Errorf("a state directory that is a file: %v, want ErrState", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, FileName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, jobs.ErrState) {
		t.Errorf("an audit that is a directory: %v, want ErrState", err)
	}
}

// A line that a crash cut off spoils no other.
func TestAfterACutOffLine(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("{}\n{\"kind\":\"int"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, dir)
	if err := errors.Join(f.Intents([]jobs.Entry{intent("a")}), f.Intents([]jobs.Entry{intent("b")}), f.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(string(text), "\n")
	if len(got) != 5 || got[1] != `{"kind":"int` || !json.Valid([]byte(got[2])) || !json.Valid([]byte(got[3])) {
		t.Errorf("lines %q", got)
	}
}

// Shards, and processes, write at the same time; each page stays whole.
func TestAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 2 { // as two processes: each its own file
		f := openFile(t, dir)
		defer f.Close()
		for range 4 {
			wg.Go(func() {
				for range 20 {
					page := []jobs.Entry{result("a"), result("b"), result("c")}
					if err := f.Results(page); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	got := lines(t, dir)
	if len(got) != 2*4*20*3 {
		t.Fatalf("%d lines, want %d", len(got), 2*4*20*3)
	}
	for i, m := range got {
		if want := string(rune('a' + i%3)); m["key"] != want {
			t.Fatalf("line %d is of %v, want %s: the pages are mixed", i, m["key"], want)
		}
	}
}

// A full file is put aside, whoever writes; no line is lost, and the oldest
// files go.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	files := []*File{openFile(t, dir), openFile(t, dir)}
	for _, f := range files {
		f.most, f.kept = 2000, 1000
	}
	const each = 200
	var wg sync.WaitGroup
	for _, f := range files {
		wg.Go(func() {
			for range each {
				if err := f.Intents([]jobs.Entry{intent("k")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	paths, _ := filepath.Glob(filepath.Join(dir, "audit*.jsonl"))
	total := 0
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		total += strings.Count(string(data), "\n")
		if len(data) > 3*2000 {
			t.Errorf("%s has %d bytes", path, len(data))
		}
	}
	if total != 2*each || len(paths) < 10 {
		t.Errorf("%d lines in %d files, want %d", total, len(paths), 2*each)
	}

	files[0].kept = 3
	for range 50 {
		if err := files[0].Intents([]jobs.Entry{intent("k")}); err != nil {
			t.Fatal(err)
		}
	}
	if paths, _ := filepath.Glob(filepath.Join(dir, "audit-*.jsonl")); len(paths) != 3 {
		t.Errorf("%d files were kept, want 3", len(paths))
	}
}

func TestRotationByAge(t *testing.T) {
	dir := t.TempDir()
	old := intent("old")
	old.Time = time.Now().Add(-maxAge - time.Hour)
	f := openFile(t, dir)
	if err := errors.Join(f.Intents([]jobs.Entry{old}), f.Close()); err != nil {
		t.Fatal(err)
	}
	f = openFile(t, dir)
	if err := errors.Join(f.Intents([]jobs.Entry{intent("new")}), f.Close()); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, dir); len(got) != 1 || got[0]["key"] != "new" {
		t.Errorf("%v", got)
	}
	if paths, _ := filepath.Glob(filepath.Join(dir, "audit-*.jsonl")); len(paths) != 1 {
		t.Errorf("put aside: %v", paths)
	}
}
