package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Setenv("TMPDIR", t.TempDir())
	r := keyjanitor(t, "demo").exits(0)
	for _, word := range []string{"mi:0", "queue:mail", "online:users", "delay:0", "4 would be acted on", "4 drained", "--execute"} {
		if !strings.Contains(r.stdout, word) {
			t.Errorf("the demo does not show %q", word)
		}
	}
	_, after, _ := strings.Cut(r.stdout, "And after?")
	if after == "" || strings.Contains(after, "mi:0") {
		t.Errorf("after the deletion the demo shows %s", after)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) != 0 {
		t.Errorf("the demo leaves %q (%v)", left, err)
	}
}
