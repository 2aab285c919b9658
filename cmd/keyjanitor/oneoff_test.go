package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/audit"
	"github.com/keyjanitor/keyjanitor/jobs"
)

// summary is what a report says, as a script of others reads it.
type summary struct {
	Target, Mode string
	Complete     bool
	Scanned      int64 `json:"keys_scanned"`
	Matched      int64 `json:"keys_matched"`
	Findings     []struct {
		Key, Outcome string
		DB           int
	}
	Outcomes  map[string]int64
	StoppedBy string `json:"stopped_by"`
	Shards    []struct{ ID, Error string }
}

func (r ran) summary() (s summary) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		r.t.Fatalf("no summary: %v\nstdout: %s\nstderr: %s", err, r.stdout, r.stderr)
	}
	return s
}

// in database db are the keys.
func left(t *testing.T, m *miniredis.Miniredis, db int, want ...string) {
	t.Helper()
	got := m.DB(db).Keys()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("database %d has the keys %q, want %q", db, got, want)
	}
}

func TestReportChangesNothing(t *testing.T) {
	m := server(t, "old:1", "old:2", "new:1")
	dir := filepath.Join(t.TempDir(), "state")
	base := args("--url", "redis://"+m.Addr(), "--state-dir", dir, "--format", "json")
	for _, a := range [][]string{args("clean", "--prefix", "old:"), args("delete", "--key", "old:1", "--key", "old:2")} {
		s := keyjanitor(t, append(a, base...)...).exits(0).summary()
		if s.Mode != "report" || s.Outcomes["would_act"] != 2 || s.Outcomes["unlinked"] != 0 {
			t.Errorf("%s: mode %s, outcomes %v", a[0], s.Mode, s.Outcomes)
		}
		left(t, m, 0, "old:1", "old:2", "new:1")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a report made the state directory (%v)", err)
	}
	s := keyjanitor(t, append(args("clean", "--prefix", "old:", "--execute"), base...)...).exits(0).summary()
	if s.Mode != "execute" || s.Outcomes["unlinked"] != 2 {
		t.Errorf("mode %s, outcomes %v", s.Mode, s.Outcomes)
	}
	left(t, m, 0, "new:1")
	text, err := os.ReadFile(filepath.Join(dir, audit.FileName))
	if err != nil || !strings.Contains(string(text), `"keys":["old:1","old:2"]`) || !strings.Contains(string(text), `"count":2,"outcome":"unlinked"`) {
		t.Errorf("the audit is %s (%v)", text, err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "trash", "*", "*")); len(files) != 0 {
		t.Errorf("nothing is in the trash and %q are left", files)
	}
}

// A list that is wrong anywhere is refused before its first key is touched.
func TestKeysFileIsReadFirst(t *testing.T) {
	m := server(t, "a", "b")
	url := "redis://" + m.Addr()
	for name, c := range map[string]struct{ text, null, says string }{
		"cut off":     {"{\"key\":\"a\"}\n{\"key\":", "", "line 2"},
		"plain names": {"a\nb\n", "", "--null"},
		"no key":      {"{\"key\":\"a\"}\n{}\n", "", "line 2"},
		"no NUL":      {"a\x00b", "--null", `"b"`},
	} {
		a := args("delete", "--url", url, "--execute", "--state-dir", t.TempDir())
		if c.null != "" {
			a = append(a, c.null)
		}
		keyjanitor(t, append(a, "--keys-file", file(t, "keys", c.text))...).exits(2, "--keys-file: ", c.says)
		// What comes through a pipe is known to be wrong only when it is there.
		r := world{stdin: c.text}.run(t, append(a, "--keys-file", "-")...)
		if r.code != 2 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%s through a pipe: exit %d, %s", name, r.code, r.stderr)
		}
	}
	keyjanitor(t, "delete", "--url", url, "--execute", "--keys-file", "absent").exits(2, "absent")
	keyjanitor(t, "delete", "--url", url, "--execute", "--keys-file", t.TempDir(), "--state-dir", t.TempDir()).exits(2)
	keyjanitor(t, "delete", "--url", url, "--execute").exits(2, "--key")
	keyjanitor(t, "delete", "--url", url, "--execute", "--key", "a", "--keys-file", "x").exits(2, "--key")
	keyjanitor(t, "delete", "--url", url, "--execute", "--key", "a", "--null").exits(2, "--null")
	left(t, m, 0, "a", "b")
}

// The pages of a pipe before the bad one are acted on, and told.
func TestPipeThatBreaksLate(t *testing.T) {
	m := server(t, "kept")
	var in strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&in, "{\"key\":\"k:%d\"}\n", i)
		_ = m.Set(fmt.Sprintf("k:%d", i), "x")
	}
	in.WriteString("{\"key\":\"kept\"}\n{\"key\":")
	r := world{stdin: in.String()}.run(t, "delete", "--url", "redis://"+m.Addr(), "--execute", "--state-dir", t.TempDir(), "--keys-file", "-", "--format", "json")
	if r.code != 2 || !strings.Contains(r.stderr, "line 1002") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	if s := r.summary(); s.Outcomes["unlinked"] != 1000 || s.Complete {
		t.Errorf("outcomes %v, complete %t", s.Outcomes, s.Complete)
	}
	left(t, m, 0, "kept")
}

func TestDeleteFromAScan(t *testing.T) {
	m := server(t)
	for _, name := range []string{"plain", "", "a b", "a\nb", "\xff", "é", "{x}", `"`} {
		_ = m.DB(0).Set(name, "x")
		_ = m.DB(3).Set(name, "x")
	}
	_ = m.DB(5).Set("plain", "x")
	url := "redis://" + m.Addr()
	scan := keyjanitor(t, "scan", "--url", url, "--db", "0", "--db", "3", "--format", "jsonl").exits(0)
	r := world{stdin: scan.stdout}.run(t, "delete", "--url", url, "--keys-file", "-", "--execute", "--state-dir", t.TempDir(), "--format", "json")
	if s := r.exits(0).summary(); s.Outcomes["unlinked"] != 16 {
		t.Errorf("outcomes %v", s.Outcomes)
	}
	left(t, m, 0)
	left(t, m, 3)
	left(t, m, 5, "plain")
}

// Names without a database are in that of the URL.
func TestDeleteInADatabase(t *testing.T) {
	m := server(t, "a")
	_ = m.DB(2).Set("a", "x")
	dir := t.TempDir()
	base := args("delete", "--execute", "--state-dir", dir, "--format", "json", "--url")
	s := keyjanitor(t, append(base, "redis://"+m.Addr()+"/2", "--key", "a", "--key", "b")...).exits(0).summary()
	if s.Outcomes["unlinked"] != 1 || s.Outcomes["gone"] != 1 {
		t.Errorf("outcomes %v", s.Outcomes)
	}
	left(t, m, 0, "a")
	left(t, m, 2)
	keyjanitor(t, append(base, "redis://"+m.Addr(), "--key", "a", "--db", "0", "--db", "2")...).exits(2, "--db")
	r := world{stdin: "a\x00"}.run(t, append(base, "redis://"+m.Addr(), "--keys-file", "-", "--null")...)
	if s := r.exits(0).summary(); s.Outcomes["unlinked"] != 1 {
		t.Errorf("outcomes %v", s.Outcomes)
	}
}

func TestLimitIsExit4(t *testing.T) {
	m := server(t, "k:1", "k:2", "k:3", "k:4")
	base := args("clean", "--url", "redis://"+m.Addr(), "--prefix", "k:", "--state-dir", t.TempDir(), "--format", "json")
	s := keyjanitor(t, append(base, "--max-keys", "3")...).exits(4, "max_keys").summary()
	if s.Outcomes["would_act"] != 3 || s.StoppedBy == "" || s.Complete {
		t.Errorf("outcomes %v, stopped by %q, complete %t", s.Outcomes, s.StoppedBy, s.Complete)
	}
	keyjanitor(t, append(base, "--max-keys", "3", "--ok-on", "limit")...).exits(0, "--ok-on")
	keyjanitor(t, append(base, "--max-keys", "3", "--ok-on", "busy")...).exits(4)
	keyjanitor(t, append(base, "--max-keys", "4")...).exits(0)
	keyjanitor(t, append(base, "--max-percent", "50%", "--execute")...).exits(4, "max_percent")
	if n := len(m.Keys()); n != 2 {
		t.Errorf("%d keys are left under a limit of half of four", n)
	}
}

// A state directory that can't be used is found before anything is done.
func TestUnusableStateDir(t *testing.T) {
	m := server(t, "k:1")
	notADir := file(t, "file", "")
	for _, a := range [][]string{{"clean", "--prefix", "k:"}, {"delete", "--key", "k:1"}} {
		a = append(a, "--url", "redis://"+m.Addr(), "--execute", "--state-dir", notADir)
		keyjanitor(t, a...).exits(2, "state directory")
	}
	left(t, m, 0, "k:1")
}

func TestStoppedBySignal(t *testing.T) {
	m := server(t, "k:1")
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stopped{signal})
		for _, a := range [][]string{{"scan"}, {"clean", "--prefix", "k:", "--execute", "--state-dir", t.TempDir()}, {"delete", "--key", "k:1", "--execute", "--state-dir", t.TempDir()}} {
			world{}.runUnder(ctx, t, append(a, "--url", "redis://"+m.Addr())...).exits(code)
		}
	}
	left(t, m, 0, "k:1")
}

// What an action needs, and what belongs to another one, is said by the names
// of the flags.
func TestActionFlags(t *testing.T) {
	base := args("clean", "--url", "redis://127.0.0.1:1", "--prefix", "x:", "--action")
	for _, test := range []struct {
		flags []string
		says  string
	}{
		{args("erase"), "erase"},
		{args("trim"), "--action: nothing says what to keep"},
		{args("trim", "--keep", "5"), "--keep-end"},
		{args("trim", "--keep", "5", "--keep-end", "tail", "--type", "hash"), "also selects hash"},
		{args("trim", "--older-than", "5"), "--older-than"},
		{args("trim", "--keep", "5", "--keep-end", "tail", "--ttl", "1h"), "--ttl: belongs to --action expire"},
		{args("delete", "--keep", "5"), "--keep: belongs to --action trim"},
		{args("expire"), "--ttl"},
		{args("expire", "--ttl", "1h", "--jitter", "120%"), "--jitter"},
		{args("defuse"), "--ttl-under"},
		{args("prune-index", "--older-than", "1d"), "--value"},
		{args("prune-index", "--older-than", "1d", "--value", "unix_seconds", "--also", "%entry%"), "--also"},
	} {
		keyjanitor(t, append(base, test.flags...)...).exits(2, test.says)
	}
}

// A pipe that nobody writes to does not keep a run from ending.
func TestStoppedAtAnIdlePipe(t *testing.T) {
	m := server(t, "a")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(stopped{syscall.SIGTERM}) })
	done := make(chan int)
	go func() {
		done <- run(ctx, args("keyjanitor", "delete", "--url", "redis://"+m.Addr(), "--keys-file", "-"),
			process{getenv: func(string) string { return "" }, stdin: r, stdout: io.Discard, stderr: io.Discard})
	}()
	select {
	case code := <-done:
		if code != 143 {
			t.Errorf("exit %d, want 143", code)
		}
	case <-time.After(20 * time.Second):
		t.Error("still waiting for the pipe")
	}
}

// Whether they count from 0 or from 1, workers that share out the shards miss
// none and meet at none.
func TestParts(t *testing.T) {
	for _, first := range []int{0, 1} {
		seen := map[jobs.Part]bool{}
		for i := range 3 {
			seen[partOf(t, fmt.Sprintf("--shard=%d/3", first+i))] = true
		}
		if len(seen) != 3 || seen[jobs.Part{}] {
			t.Errorf("from %d: %v", first, seen)
		}
	}
	if p := partOf(t, "--shards=5"); p != (jobs.Part{Index: 4, Of: 5}) {
		t.Errorf("%v", p)
	}
	for _, wrong := range []string{"--shard=4/3", "--shard=1", "--shard=a/b", "--shard=1/0", "--shards=4", "--shards=0"} {
		if p := partOf(t, wrong); p != (jobs.Part{}) {
			t.Errorf("%s: %v", wrong, p)
		}
	}
}

// partOf reads one flag, as worker 4 of an indexed job; the zero Part where
// it is refused.
func partOf(t *testing.T, flag string) (part jobs.Part) {
	t.Helper()
	app := &cli.App{Writer: io.Discard, Flags: partFlags(), Action: func(c *cli.Context) error {
		r := &reader{c: c}
		if p := r.part(func(string) string { return "4" }); r.err() == nil {
			part = p
		}
		return nil
	}}
	if err := app.Run([]string{"x", flag}); err != nil {
		t.Fatal(err)
	}
	return part
}

// A plan says it all: what it would be read beside is refused, not ignored.
func TestApplyRefusesWhatItWouldIgnore(t *testing.T) {
	for _, flags := range [][]string{
		{"--keep-for", "1h"}, {"--method", "drain"}, {"--db", "3"}, {"--prefix", "x"}, {"--all-keys"}, {"--resume"}, {"--shard", "1/2"},
	} {
		keyjanitor(t, append(args("clean", "--url", "redis://127.0.0.1:1", "--apply", "none.plan", "--execute"), flags...)...).exits(2, flags[0]+": the plan says")
	}
}
