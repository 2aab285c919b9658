package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMetricsFile(t *testing.T) {
	m := server(t, "old:1", "b")
	url, gone := "redis://"+m.Addr(), "redis://127.0.0.1:1"
	conf := configFor(t, m.Addr(), "")
	dir := t.TempDir()
	path := filepath.Join(dir, "keyjanitor.prom")
	has := func(words ...string) {
		t.Helper()
		text := content(t, path)
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("the file is %v, %v", info.Mode(), err)
		}
		if got := files(t, dir); len(got) != 1 {
			t.Errorf("left are %q", got)
		}
	}
	keyjanitor(t, "scan", "--url", url, "--metrics-file", path).exits(0)
	has(`keyjanitor_keys_scanned{job="scan",target="`+m.Addr()+`"} 2`, "keyjanitor_run_complete", "keyjanitor_last_success_timestamp_seconds", "keyjanitor_shard_keys")
	keyjanitor(t, "clean", "--url", url, "--all-keys", "--metrics-file", path, "--max-keys", "1").exits(4)
	has(`keyjanitor_run_exit_code{job="clean",target="`+m.Addr()+`"} 4`, `outcome="would_act"`)
	keyjanitor(t, "delete", "--url", url, "--key", "b", "--metrics-file", path).exits(0)
	has(`keyjanitor_run_exit_code{job="delete"`)
	keyjanitor(t, "run", "--config", conf, "--all", "--metrics-file", path).exits(0)
	has(`keyjanitor_run_exit_code{job="one",target="here"} 0`)

	// What did not begin is told too, and keeps the last success.
	keyjanitor(t, "scan", "--url", url, "--metrics-file", path).exits(0)
	before := content(t, path)
	keyjanitor(t, "scan", "--url", gone, "--metrics-file", path).exits(1)
	has(`keyjanitor_run_exit_code{job="scan",target="127.0.0.1:1"} 1`, `keyjanitor_run_complete{job="scan",target="127.0.0.1:1"} 0`)
	if strings.Contains(content(t, path), "last_success") || !strings.Contains(before, "last_success") {
		t.Error("the success of another target is kept, or none is told")
	}
	bad := configFor(t, "127.0.0.1:1", "")
	keyjanitor(t, "run", "--config", conf, "--all", "--metrics-file", path).exits(0)
	keyjanitor(t, "run", "--config", bad, "--all", "--metrics-file", path).exits(1)
	has(`keyjanitor_run_exit_code{job="one",target="here"} 1`, `keyjanitor_last_success_timestamp_seconds{job="one",target="here"}`)

	// A command line that is refused is no run, and neither is one whose
	// metrics could not be written.
	before = content(t, path)
	connections := m.TotalConnectionCount()
	keyjanitor(t, "scan", "--url", url, "--metrics-file", path, "--output", t.TempDir()).exits(2, "--output")
	keyjanitor(t, "scan", "--url", url, "--metrics-file", filepath.Join(dir, "no", "file")).exits(2, "--metrics-file: ")
	keyjanitor(t, "run", "--config", conf, "--all", "--metrics-file", dir).exits(2, "--metrics-file: ")
	if n := m.TotalConnectionCount(); content(t, path) != before || n != connections {
		t.Errorf("after refusals: %d connections more, the file is\n%s", n-connections, content(t, path))
	}
	has()
}
