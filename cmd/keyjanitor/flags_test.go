package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Flags with a unit refuse a bare number and say which flag it was.
func TestBareNumbers(t *testing.T) {
	url := "redis://127.0.0.1:1"
	conf := configFor(t, "127.0.0.1:1", "")
	both := []string{"min-bytes", "ttl-under", "ttl-over", "target-latency", "scan-share"}
	acts := []string{"max-bytes", "max-percent", "time-limit", "max-share", "bytes-per-second"}
	for cmd, names := range map[string][]string{"scan": both, "clean": slices.Concat(both, acts), "delete": slices.Concat(both, acts)} {
		for _, name := range names {
			for _, value := range []string{"5", "5.5", "-5", "five", ""} {
				a := args(cmd, "--url", url, "--"+name, value)
				switch cmd {
				case "clean":
					a = append(a, "--prefix", "x:")
				case "delete":
					a = append(a, "--key", "x")
				}
				r := keyjanitor(t, a...).exits(2, "--"+name+": ")
				if value == "5" && !strings.Contains(r.stderr, "write 5") {
					t.Errorf("%s --%s 5: does not say what to write: %s", cmd, name, r.stderr)
				}
			}
		}
	}
	for _, cmd := range []string{"run", "daemon"} {
		a := args(cmd, "--config", conf, "--lock-wait", "5")
		if cmd == "run" {
			a = append(a, "--all")
		}
		keyjanitor(t, a...).exits(2, "--lock-wait: ", "5s")
	}
	keyjanitor(t, "clean", "--url", url, "--prefix", "x:", "--max-keys", "10k").exits(2, "max-keys")
}

// Whatever is wrong is told at once.
func TestAllProblemsAtOnce(t *testing.T) {
	r := keyjanitor(t, "clean", "--url", "redis://127.0.0.1:1", "--min-bytes", "5", "--type", "hashes", "--match", "*", "--ttl-under", "1",
		"--max-keys", "-1", "--max-percent", "200%", "--parallel", "0", "--ok-on", "all", "--format", "xml", "--top", "-1", "--method", "quickly")
	r.exits(2, "--min-bytes: ", "--type: ", "--match: ", "--ttl-under: ", "--max-keys: ", "--max-percent: ",
		"--ok-on: ", "--format: ", "--top: ", "--method: ")
	if n := strings.Count(r.stderr, "\n"); n < 10 {
		t.Errorf("%d lines for ten problems:\n%s", n, r.stderr)
	}
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "keyjanitor: ") {
			t.Errorf("a line that does not say whose it is: %q", line)
		}
	}
}

func TestAllKeysNeedsConsent(t *testing.T) {
	m := server(t, "a", "b")
	url := "redis://" + m.Addr()
	for _, a := range [][]string{
		{}, {"--min-bytes", "1B"}, {"--type", "string"}, {"--match", "*"}, {"--match", "?*"}, {"--match", "**"},
		{"--match", "a", "--match", "*"}, {"--exclude", "x"}, {"--no-ttl"}, {"--match", "*", "--execute"}, {"--prefix", ""},
	} {
		keyjanitor(t, append(args("clean", "--url", url), a...)...).exits(2)
	}
	keyjanitor(t, "clean", "--url", url, "--no-ttl").exits(2, "--all-keys")
	if n := m.TotalConnectionCount(); n != 0 {
		t.Errorf("%d connections for command lines that were refused", n)
	}
	keyjanitor(t, "clean", "--url", url, "--all-keys").exits(0) // and without --execute nothing happens
	if keys := m.Keys(); len(keys) != 2 {
		t.Errorf("left are the keys %q", keys)
	}
}

func TestWhichDeployment(t *testing.T) {
	conf := configFor(t, "127.0.0.1:1", "")
	two := file(t, "two.yaml", "targets:\n  a: {addresses: [\"127.0.0.1:1\"]}\n  b: {addresses: [\"127.0.0.1:2\"]}\n")
	none := file(t, "none.yaml", "protect: [\"session:*\"]\n")
	env := world{env: map[string]string{"KEYJANITOR_URL": "redis://127.0.0.1:3"}}
	for _, c := range []struct {
		w     world
		args  []string
		code  int
		words string // where the run gets that far, the address it dials
	}{
		{world{}, args(), 2, "--url"},
		{world{}, args("--url", ""), 2, "--url"},
		{world{}, args("--url", "localhost:6379"), 2, "--url: "},
		{world{}, args("--url", "redis://127.0.0.1:3", "--config", conf), 1, "127.0.0.1:3"},
		{world{}, args("--config", conf), 1, "127.0.0.1:1"},
		{world{}, args("--config", two), 2, "--target"},
		{world{}, args("--config", two, "--target", "b"), 1, "127.0.0.1:2"},
		{world{}, args("--config", two, "--target", "c"), 2, "--target"},
		{world{}, args("--config", two, "--target", "b", "--url", "redis://127.0.0.1:3"), 2, "--target"},
		{world{}, args("--target", "b"), 2, "--config"},
		{world{}, args("--config", none), 2, "--target"},
		// A flag wins over the environment; where it is not clear, nothing is done.
		{env, args(), 1, "127.0.0.1:3"},
		{env, args("--url", "redis://127.0.0.1:4"), 1, "127.0.0.1:4"},
		{env, args("--config", two, "--target", "b"), 1, "127.0.0.1:2"},
		{env, args("--config", conf), 2, "KEYJANITOR_URL"},
		{env, args("--config", none), 1, "127.0.0.1:3"},
		{env, args("--url", ""), 2, "--url"},
		{world{}, args("--url", "redis://127.0.0.1:3/0", "--db", "-1"), 2, "negative"},
		{world{env: map[string]string{"KEYJANITOR_URL": "nonsense"}}, args(), 2, "KEYJANITOR_URL: "},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			c.w.run(t, append(args("scan"), c.args...)...).exits(c.code, c.words)
		})
	}
}

// needing is a server that wants a password.
func needing(t *testing.T, user, password string) *miniredis.Miniredis {
	t.Helper()
	m := server(t, "old:1")
	m.RequireUserAuth(user, password)
	return m
}

// Flags go before the environment, and that before the file.
func TestWhoseLoginCounts(t *testing.T) {
	m := needing(t, "jan", "right")
	good, bad := file(t, "good", "right\n"), file(t, "bad", "wrong\n")
	conf := func(user, password string) string {
		return file(t, "c.yaml", fmt.Sprintf("targets:\n  here: {addresses: [%q], username: %q, password: %q}\n"+
			"jobs:\n  - {name: one, target: here, select: {prefix: [\"old:\"]}}\n", m.Addr(), user, password))
	}
	right := map[string]string{"KEYJANITOR_USERNAME": "jan", "KEYJANITOR_PASSWORD": "right"}
	wrong := map[string]string{"KEYJANITOR_USERNAME": "jon", "KEYJANITOR_PASSWORD": "wrong"}
	for i, c := range []struct {
		env  map[string]string
		args []string
		fine bool
	}{
		{nil, args("scan", "--url", "redis://jan:right@"+m.Addr()), true},
		{nil, args("scan", "--url", "redis://jan:wrong@"+m.Addr()), false},
		{right, args("scan", "--url", "redis://"+m.Addr()), true},
		{right, args("scan", "--config", conf("jon", "wrong")), true},
		{wrong, args("scan", "--config", conf("jan", "right")), false},
		{wrong, args("scan", "--config", conf("jon", "wrong"), "--username", "jan", "--password-file", good), true},
		{right, args("scan", "--config", conf("jan", "right"), "--password-file", bad), false},
		{nil, args("run", "--config", conf("jan", "right"), "--all"), true},
		{right, args("run", "--config", conf("jon", "wrong"), "--all"), true},
		{wrong, args("run", "--config", conf("jan", "right"), "--all"), false},
		{right, args("check", "--config", conf("jon", "wrong")), true},
		{wrong, args("check", "--config", conf("jan", "right")), false},
	} {
		r := world{env: c.env}.run(t, c.args...)
		if want := map[bool]int{true: 0, false: 1}[c.fine]; r.code != want {
			t.Errorf("%d: %q with %v: exit %d, want %d: %s%s", i, c.args, c.env, r.code, want, r.stderr, r.stdout)
		}
	}
	keyjanitor(t, "scan", "--url", "redis://"+m.Addr(), "--password-file", filepath.Join(t.TempDir(), "absent")).exits(2, "--password-file: ")
}

// No output shows a password: not that of a URL that can't be reached, of one
// that can't be parsed, nor of a server that refuses it.
func TestNoPasswordIsShown(t *testing.T) {
	const secret = "hush-hush"
	m := needing(t, "jan", "another")
	var urls []string
	for _, format := range []string{
		"redis://jan:%s@127.0.0.1:1", "redis://:%s@127.0.0.1:1", "redis+cluster://jan:%s@127.0.0.1:1,127.0.0.1:2",
		"rediss://jan:%s@127.0.0.1:1", "redis://jan:%s@127.0.0.1:99999", "redis://jan:%s@127.0.0.1:1/x", "redis://jan:%s@",
		"redis://jan:%s@[::1", "http://jan:%s@127.0.0.1:1", "jan:%s@127.0.0.1", "unix://jan:%s@/no/such.sock",
		"redis://jan:%s@127.0.0.1:1?x=y", "redis://jan:%s@" + m.Addr(),
	} {
		urls = append(urls, fmt.Sprintf(format, secret))
	}
	for _, url := range urls {
		for _, a := range [][]string{
			{"scan"}, {"clean", "--prefix", "x:", "--execute", "--state-dir", t.TempDir()}, {"delete", "--key", "x"}, {"check"},
			{"check", "--format", "json"}, {"scan", "--db", "-1"}, {"scan", "extra"},
		} {
			r := keyjanitor(t, append(a, "--url", url)...)
			if r.code == 0 {
				t.Errorf("%q with %s: exit 0", a, url)
			}
			if strings.Contains(r.stderr+r.stdout, secret) {
				t.Errorf("%q with %s shows the password: %s%s", a, url, r.stderr, r.stdout)
			}
		}
	}
	for env, value := range map[string]string{"KEYJANITOR_PASSWORD": secret, "KEYJANITOR_URL": urls[0]} {
		w := world{env: map[string]string{env: value}}
		a := args("scan")
		if env == "KEYJANITOR_PASSWORD" {
			a = args("scan", "--url", "redis://jan@"+m.Addr())
		}
		if r := w.run(t, a...).exits(1); strings.Contains(r.stderr+r.stdout, secret) {
			t.Errorf("%s is shown: %s", env, r.stderr)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	text := "targets:\n  here: {addresses: [\"127.0.0.1:1\"], password: \"" + secret + "\"}\n  there: {adresses: [], password: " + secret + "*}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := keyjanitor(t, "check", "--config", path).exits(2); strings.Contains(r.stderr, secret) {
		t.Errorf("the password of the file is shown: %s", r.stderr)
	}
}
