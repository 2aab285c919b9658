package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFormats(t *testing.T) {
	m := server(t, "a", "b")
	url := "redis://" + m.Addr()
	if s := keyjanitor(t, "scan", "--url", url, "--format", "json").exits(0).summary(); len(s.Findings) != 2 || !s.Complete {
		t.Errorf("json: %+v", s)
	}
	lines := strings.Split(strings.TrimSpace(keyjanitor(t, "scan", "--url", url, "--format", "jsonl", "--top", "0").exits(0).stdout), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[2], `{"summary":{`) {
		t.Errorf("jsonl: %q", lines)
	}
	if rows := keyjanitor(t, "scan", "--url", url, "--format", "csv").exits(0).stdout; strings.Count(rows, "\n") != 3 || !strings.HasPrefix(rows, "key,key_base64,") {
		t.Errorf("csv: %q", rows)
	}
	if s := keyjanitor(t, "scan", "--url", url, "--format", "json", "--top", "1").exits(0).summary(); len(s.Findings) != 1 || s.Matched != 2 {
		t.Errorf("top 1: %+v", s)
	}
	for _, format := range []string{"xml", "JSON", ""} {
		keyjanitor(t, "scan", "--url", url, "--format", format).exits(2, "--format: ")
		keyjanitor(t, "run", "--config", configFor(t, m.Addr(), ""), "--all", "--format", format).exits(2, "--format: ")
	}
	for _, a := range [][]string{{"scan", "--url", url}, {"clean", "--url", url, "--all-keys"}, {"delete", "--url", url, "--key", "a"},
		{"run", "--config", configFor(t, m.Addr(), ""), "--all"}} {
		page := keyjanitor(t, append(a, "--format", "html")...).exits(0).stdout
		if !strings.HasPrefix(page, "<!DOCTYPE html>") || !strings.HasSuffix(page, "</html>\n") {
			t.Errorf("%q: the page is %.200q", a, page)
		}
	}
	keyjanitor(t, "scan", "--url", url, "--top", "-1").exits(2, "--top: ")
}

// In the folder of an output file is nothing but what is whole.
func TestOutputIsWhole(t *testing.T) {
	m := server(t, "a", "b")
	url := "redis://" + m.Addr()
	for _, format := range []string{"table", "json", "jsonl", "csv", "html"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		r := keyjanitor(t, "scan", "--url", url, "--format", format, "--output", path).exits(0)
		if r.stdout != "" {
			t.Errorf("%s: results on stdout too: %s", format, r.stdout)
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 {
			t.Errorf("%s: %q, %v", format, text, err)
		}
		if len(files(t, dir)) != 1 {
			t.Errorf("%s leaves %q", format, files(t, dir))
		}
	}
	// A run that fails before it begins writes no file and spoils no old one.
	conf := configFor(t, "127.0.0.1:1", "")
	for _, a := range [][]string{
		{"scan", "--url", "redis://127.0.0.1:1"},
		{"clean", "--url", url, "--prefix", "a", "--execute", "--state-dir", file(t, "file", "")},
		{"delete", "--url", "redis://127.0.0.1:1", "--key", "a"},
		{"run", "--config", conf, "--all"},
	} {
		for _, format := range []string{"json", "csv", "html"} {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			if r := keyjanitor(t, append(a, "--format", format, "--output", path)...); r.code == 0 {
				t.Errorf("%q: exit 0", a)
			}
			if got := files(t, dir); len(got) != 0 {
				t.Errorf("%q leaves %q", a, got)
			}
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			keyjanitor(t, append(a, "--format", format, "--output", path)...)
			if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
				t.Errorf("%q: the old file is %q, %v", a, text, err)
			}
		}
	}
	// What was done before a limit or a failure is a whole report.
	path := filepath.Join(t.TempDir(), "out")
	keyjanitor(t, "clean", "--url", url, "--all-keys", "--max-keys", "1", "--format", "json", "--output", path).exits(4)
	if text, err := os.ReadFile(path); err != nil || !json.Valid(text) {
		t.Errorf("after a limit: %q, %v", text, err)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOutputElsewhere(t *testing.T) {
	m := server(t, "a")
	url := "redis://" + m.Addr()
	keyjanitor(t, "scan", "--url", url, "--output", filepath.Join(t.TempDir(), "no", "such", "dir")).exits(2, "--output: ")
	keyjanitor(t, "scan", "--url", url, "--output", t.TempDir()).exits(2, "--output: ")
	if n := m.TotalConnectionCount(); n != 0 {
		t.Errorf("%d connections before the output was open", n)
	}
	// A link stays a link.
	dir := t.TempDir()
	real, link, pipe := filepath.Join(dir, "real"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(real, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	keyjanitor(t, "scan", "--url", url, "--format", "json", "--output", link).exits(0)
	if got, err := os.Readlink(link); err != nil || got != real {
		t.Errorf("%s is no longer a link to %s: %q, %v", link, real, got, err)
	}
	if text, err := os.ReadFile(real); err != nil || !json.Valid(text) {
		t.Errorf("behind the link is %q, %v", text, err)
	}
	// A pipe, as any device, stays what it is and gets the text. (A device of
	// this machine is not for a test to risk.)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(pipe, os.O_RDWR, 0) // both ends: nobody waits to open
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	keyjanitor(t, "scan", "--url", url, "--format", "json", "--output", pipe).exits(0)
	if info, err := os.Stat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Fatalf("the pipe is now %v, %v", info.Mode(), err)
	}
	text := make([]byte, 1<<16)
	n, err := end.Read(text)
	if err != nil || !json.Valid(text[:n]) {
		t.Errorf("in the pipe is %q, %v", text[:n], err)
	}
}

// A result that can't be written is an error, also where a limit is forgiven.
func TestOutputThatFails(t *testing.T) {
	m := server(t, "a", "b")
	for _, format := range []string{"table", "json", "jsonl", "csv", "html"} {
		var told bytes.Buffer
		code := run(t.Context(), args("keyjanitor", "clean", "--url", "redis://"+m.Addr(), "--all-keys", "--ok-on", "limit", "--max-keys", "1", "--format", format),
			process{getenv: func(string) string { return "" }, stderr: &told, stdout: writerFunc(func([]byte) (int, error) { return 0, syscall.ENOSPC })})
		ran{t: t, code: code, stderr: told.String()}.exits(1, "no space left")
	}
}
