package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written is the file of a report on a new server with some keys.
func written(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	keyjanitor(t, append(args, "--format", "json", "--output", path)...).exits(0)
	return path
}

func scanned(t *testing.T, keys ...string) string {
	t.Helper()
	return written(t, "scan", "--url", "redis://"+server(t, keys...).Addr())
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReportShow(t *testing.T) {
	url := "redis://" + server(t, "a:1", "b", "\xff<script>").Addr()
	conf := configFor(t, strings.TrimPrefix(url, "redis://"), "")
	for _, path := range []string{
		written(t, "scan", "--url", url),
		written(t, "clean", "--url", url, "--prefix", "a:"),
		written(t, "delete", "--url", url, "--key", "b", "--key", "no"),
		written(t, "run", "--config", conf, "--all"),
		written(t, "trash", "list", "--url", url, "--all"),
	} {
		if got := keyjanitor(t, "report", "show", "--format", "json", path).exits(0).stdout; got != content(t, path) {
			t.Errorf("shown is\n%s\nof\n%s", got, content(t, path))
		}
		for format, begins := range map[string]string{"table": "", "jsonl": "{", "csv": "key,", "html": "<!DOCTYPE html>"} {
			if got := keyjanitor(t, "report", "show", "--format", format, path).exits(0).stdout; !strings.HasPrefix(got, begins) || len(got) < 100 {
				t.Errorf("%s: %.300s", format, got)
			}
		}
	}
	path := scanned(t, "a:1", "\xff")
	if got := namesIn(t, keyjanitor(t, "report", "show", "--format", "jsonl", path).exits(0).stdout); !slices.Equal(got, []string{"a:1", "\xff"}) {
		t.Errorf("names %q", got)
	}
	if got := (world{stdin: content(t, path)}).run(t, "report", "show", "-").exits(0).stdout; !strings.Contains(got, "2 matched") {
		t.Errorf("of standard input: %s", got)
	}
	out := filepath.Join(t.TempDir(), "page.html")
	keyjanitor(t, "report", "show", "--format", "html", "--output", out, path).exits(0)
	if !strings.HasSuffix(content(t, out), "</html>\n") {
		t.Error("no page in the file")
	}
}

func TestReportMerge(t *testing.T) {
	a, b := scanned(t, "a:1", "a:2", "b"), scanned(t, "c")
	var all struct {
		Shards   []struct{ ID string }
		Findings []struct{ Key string }
		Matched  int64 `json:"keys_matched"`
		Complete bool
	}
	text := keyjanitor(t, "report", "merge", "--top", "2", a, b).exits(0).stdout
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Shards) != 2 || len(all.Findings) != 2 || all.Matched != 4 || !all.Complete {
		t.Errorf("merged: %s, %v", text, err)
	}
	whole := file(t, "whole.json", text)
	keyjanitor(t, "report", "show", whole).exits(0)
	keyjanitor(t, "report", "merge", "--format", "html", a, b).exits(0)
	keyjanitor(t, "report", "merge", a, whole).exits(2, "shard ", " is in report.json and in whole.json", "count twice")

	// What run wrote is merged job by job, and stays what run writes.
	one, two := server(t, "old:1"), server(t, "old:2")
	text = keyjanitor(t, "report", "merge",
		written(t, "run", "--config", configFor(t, one.Addr(), ""), "--all"),
		written(t, "run", "--config", configFor(t, two.Addr(), ""), "--all")).exits(0).stdout
	var runs struct {
		Runs []struct {
			Job    string
			Shards []struct{ ID string }
		}
	}
	if err := json.Unmarshal([]byte(text), &runs); err != nil || len(runs.Runs) != 1 || len(runs.Runs[0].Shards) != 2 {
		t.Errorf("merged: %s, %v", text, err)
	}
}

func TestReportDiff(t *testing.T) {
	m := server(t, "a:1", "b:1")
	url := "redis://" + m.Addr()
	before := written(t, "scan", "--url", url)
	m.Del("b:1")
	if err := m.Set("c:1", "text"); err != nil {
		t.Fatal(err)
	}
	after := written(t, "scan", "--url", url)
	got := keyjanitor(t, "report", "diff", before, after).exits(0).stdout
	for _, want := range []string{"keys matched", "c:1", "b:1", "gone"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	var d struct {
		Findings struct{ New, Gone []struct{ Key string } }
	}
	text := keyjanitor(t, "report", "diff", "--format", "json", before, after).exits(0).stdout
	if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Findings.New) != 1 || d.Findings.New[0].Key != "c:1" || d.Findings.Gone[0].Key != "b:1" {
		t.Errorf("diff: %s, %v", text, err)
	}
}

func TestReportRefuses(t *testing.T) {
	good, bad := scanned(t, "a"), file(t, "bad.json", "{\n  \"target\": 5\n}")
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{args("report"), []string{"write one of show, merge, diff"}},
		{args("report", "shwo", good), []string{"shwo"}},
		{args("report", "show"), []string{"one report, not 0"}},
		{args("report", "show", good, good), []string{"one report, not 2"}},
		{args("report", "show", good, "--format", "html"), []string{"--format stands behind a file", "flags come first"}},
		{args("report", "show", "--", "-x"), []string{"./-x"}},
		{args("report", "show", "--format", "pdf", good), []string{"--format: "}},
		{args("report", "show", "--top", "5", good), []string{"-top"}},
		{args("report", "show", bad), []string{bad + ": line 2: target: a JSON number where a text should be"}},
		{args("report", "show", bad+".not"), []string{"no such file"}},
		{args("report", "show", t.TempDir()), []string{"is a directory"}},
		{args("report", "merge"), []string{"report merge FILE..."}},
		{args("report", "merge", good, bad), []string{"bad.json: line 2"}},
		{args("report", "merge", good, "--top", "5"), []string{"--top stands behind a file"}},
		{args("report", "merge", "--top", "-5", good), []string{"--top: -5"}},
		{args("report", "diff", good), []string{"two reports, not 1"}},
		{args("report", "diff", good, bad), []string{"bad.json: line 2"}},
		{args("report", "diff", "--format", "html", good, good), []string{"--format: ", "table or json"}},
	} {
		keyjanitor(t, c.args...).exits(2, c.words...)
	}
}
