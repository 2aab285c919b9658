package web

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyjanitor/keyjanitor/jobs"
)

func serve(t *testing.T, dir string) *Server {
	t.Helper()
	s := &Server{Command: "delete", Control: &jobs.Control{}}
	if err := s.Listen(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func found(t *testing.T, dir string, want int) []Process {
	t.Helper()
	all, err := Processes(t.Context(), dir)
	if err != nil || len(all) != want {
		t.Fatalf("%d processes, %v, want %d", len(all), err, want)
	}
	return all
}

// Processes of one number, as in containers, are in nobody's way, and what one
// that died left is removed.
func TestSockets(t *testing.T) {
	for name, dir := range map[string]string{
		"short": t.TempDir(), "long": filepath.Join(t.TempDir(), strings.Repeat("a long name/", 12)),
	} {
		t.Run(name, func(t *testing.T) {
			found(t, dir, 0)
			first, second := serve(t, dir), serve(t, dir)
			found(t, dir, 2)
			first.Control.Pause("one")
			for _, p := range found(t, dir, 2) {
				if p.Status.PID != os.Getpid() || p.Status.Command != "delete" {
					t.Errorf("%+v", p.Status)
				}
			}
			if err := first.Close(); err != nil {
				t.Error(err)
			}
			if left := found(t, dir, 1); left[0].Status.Paused != "" {
				t.Errorf("the second was paused with the first: %+v", left[0].Status)
			}
			info, err := os.Stat(second.path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			dead := second.path + "0"
			short, done, err := reachable(dead)
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", short)
			done()
			if err != nil {
				t.Fatal(err)
			}
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			found(t, dir, 1)
			if _, err := os.Lstat(dead); !os.IsNotExist(err) {
				t.Errorf("the socket of a dead process is left: %v", err)
			}
		})
	}
}

func TestAsk(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir)
	ask := func(path, form string) (Status, error) {
		return Ask(t.Context(), s.path, path, strings.NewReader(form))
	}
	if st, err := ask("/pause", "reason=a%1b[31mb"); err != nil || st.Paused != "paused by an operator: a?[31mb" {
		t.Errorf("%q, %v", st.Paused, err)
	}
	if st, err := ask("/resume", ""); err != nil || st.Paused != "" {
		t.Errorf("%q, %v", st.Paused, err)
	}
	for form, says := range map[string]string{
		"max_share=200%25": "out of range", "max_share=x": "percentage", "speed=1": "write one of", "elements_per_second=x": "whole number",
	} {
		if _, err := ask("/pace", form); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", form, err)
		}
	}
	if _, err := ask("/stop", "job=none"); err == nil {
		t.Error("a job that does not run was stopped")
	}
	if _, err := ask("/run", "job=x"); err == nil {
		t.Error("a process without jobs ran one")
	}
	if _, err := Ask(t.Context(), s.path, "/pause", nil); err == nil {
		t.Error("GET changes something")
	}
}
