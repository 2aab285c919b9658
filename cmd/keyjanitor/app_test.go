package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// ran is what a command line came to.
type ran struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

// world is what a command line finds around it.
type world struct {
	env   map[string]string
	stdin string
}

func (w world) run(t *testing.T, args ...string) ran {
	t.Helper()
	return w.runUnder(t.Context(), t, args...)
}

func (w world) runUnder(ctx context.Context, t *testing.T, args ...string) ran {
	t.Helper()
	var out, told bytes.Buffer
	code := run(ctx, append([]string{"keyjanitor"}, args...), process{
		getenv: func(name string) string { return w.env[name] },
		stdin:  strings.NewReader(w.stdin), stdout: &out, stderr: &told,
	})
	return ran{t, code, out.String(), told.String()}
}

func keyjanitor(t *testing.T, args ...string) ran {
	t.Helper()
	return world{}.run(t, args...)
}

// exits checks the exit code, and that stderr has each of the words.
func (r ran) exits(code int, words ...string) ran {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("exit %d, want %d\nstderr: %s\nstdout: %.500s", r.code, code, r.stderr, r.stdout)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			r.t.Errorf("stderr does not say %q: %s", w, r.stderr)
		}
	}
	if code == exitUsage && r.stdout != "" {
		r.t.Errorf("a refused command line wrote results: %.500s", r.stdout)
	}
	return r
}

// server is an embedded server with some keys.
func server(t *testing.T, keys ...string) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.RunT(t)
	for _, key := range keys {
		if err := m.Set(key, "some text"); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func args(parts ...string) []string { return parts }

func TestHelp(t *testing.T) {
	app := newApp(process{})
	top := keyjanitor(t, "--help").exits(0)
	if bare := keyjanitor(t).exits(0); bare.stdout != top.stdout {
		t.Error("without a command there is no help")
	}
	for _, cmd := range app.Commands {
		if !strings.Contains(top.stdout, cmd.Name) {
			t.Errorf("--help does not list %s", cmd.Name)
		}
		help := keyjanitor(t, cmd.Name, "--help").exits(0)
		if !strings.Contains(help.stdout, "Examples:") || !strings.Contains(help.stdout, "  keyjanitor "+cmd.Name) {
			t.Errorf("%s --help has no examples:\n%s", cmd.Name, help.stdout)
		}
		if help.stderr != "" {
			t.Errorf("%s --help writes to stderr: %s", cmd.Name, help.stderr)
		}
	}
	if !strings.Contains(top.stdout, "Exit codes") {
		t.Error("--help does not tell the exit codes")
	}
}

// Every line of an example is a command line that is taken, as far as that
// can be told without the server and the files it names.
func TestExamplesParse(t *testing.T) {
	for _, cmd := range newApp(process{}).Commands {
		for line := range strings.Lines(cmd.Description) {
			_, line, isExample := strings.Cut(line, "keyjanitor ")
			if !isExample || cmd.Name == "demo" {
				continue
			}
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))
			app := newApp(process{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}})
			reached := false
			for _, c := range app.Commands {
				for _, c := range append(c.Subcommands, c) {
					c.Action = func(*cli.Context) error { reached = true; return nil }
					if cmd.Name != "report" { // whose files are arguments
						c.Action = withoutArguments(c.Action)
					}
				}
			}
			if err := app.Run(append([]string{"keyjanitor"}, words...)); err != nil || !reached {
				t.Errorf("keyjanitor %s: %v", line, err)
			}
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	keyjanitor(t, "scna").exits(2, "scna", "--help")
	keyjanitor(t, "--execute").exits(2, "-execute", "keyjanitor --help")
	keyjanitor(t, "scan", "--exceute").exits(2, "-exceute", "keyjanitor scan --help")
}

// The library stops at the first argument that is no flag: what stands behind
// it would be lost, a --match as well as an --execute.
func TestLeftoverArguments(t *testing.T) {
	m := server(t, "old:1", "x")
	url := "redis://" + m.Addr()
	conf := configFor(t, m.Addr(), "")
	for _, a := range [][]string{
		{"scan", "--url", url, "old:*"},
		{"scan", "old:*", "--url", url},
		{"clean", "--url", url, "--prefix", "old:", "x", "--execute"},
		{"clean", "--url", url, "--prefix", "old:", "--execute", "x"},
		{"clean", "--url", url, "--prefix", "old:", "--execute", "--", "x"},
		{"clean", "--url", url, "--prefix", "old:", "--execute", "true"},
		{"delete", "--url", url, "x", "--execute"},
		{"delete", "--url", url, "--key", "x", "--execute", "old:1"},
		{"run", "--config", conf, "--all", "one"},
		{"daemon", "--config", conf, "one"},
		{"check", "--config", conf, "one"},
		{"demo", "one"},
		{"version", "one"},
	} {
		keyjanitor(t, a...).exits(2, "argument")
	}
	if n := m.TotalConnectionCount(); n != 0 {
		t.Errorf("%d connections for command lines that were refused", n)
	}
	if keys := m.Keys(); !slices.Equal(keys, []string{"old:1", "x"}) {
		t.Errorf("left are the keys %q", keys)
	}
}

func TestVersion(t *testing.T) {
	if r := keyjanitor(t, "version").exits(0); !strings.HasPrefix(r.stdout, "keyjanitor "+version+" (go") {
		t.Errorf("version says %q", r.stdout)
	}
}

// Texts are taken as they are: the library would cut them at commas and at
// blanks, and so turn one name or glob into another.
func TestTextsAreTakenAsTheyAre(t *testing.T) {
	for _, cmd := range newApp(process{}).Commands {
		for _, f := range cmd.Flags {
			if s, ok := f.(*cli.StringSliceFlag); ok && !s.KeepSpace {
				t.Errorf("%s --%s loses blanks", cmd.Name, s.Name)
			}
		}
	}
	m := server(t, "a,b", "a", "b", " a ", "a ", "\n", "", "x*y", "xzy")
	url := "redis://" + m.Addr()
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{args("--match", "a,b"), []string{"a,b"}},
		{args("--match", "*,*"), []string{"a,b"}},
		{args("--match", " *"), []string{" a "}},
		{args("--prefix", "a "), []string{"a "}},
		{args("--prefix", "x*"), []string{"x*y"}},
		{args("--match", "a,b", "--match", "b"), []string{"a,b", "b"}},
		{args("--match", "*", "--exclude", "*a*", "--exclude", "x?y"), []string{"", "\n", "b"}},
		{args("--match", "\n"), []string{"\n"}},
	} {
		r := keyjanitor(t, append(args("scan", "--url", url, "--format", "jsonl", "--quiet"), c.flags...)...).exits(0)
		if got := namesIn(t, r.stdout); !slices.Equal(got, c.want) {
			t.Errorf("scan %q finds %q, want %q", c.flags, got, c.want)
		}
	}
	r := keyjanitor(t, "delete", "--url", url, "--key", " a ", "--key", "a,b", "--key", "", "--key", "\n", "--execute", "--state-dir", t.TempDir())
	r.exits(0)
	if keys := m.Keys(); !slices.Equal(keys, []string{"a", "a ", "b", "x*y", "xzy"}) {
		t.Errorf("left are the keys %q\n%s", keys, r.stdout)
	}
}

// namesIn are the keys of JSON lines, sorted.
func namesIn(t *testing.T, lines string) []string {
	t.Helper()
	names := []string{}
	for n, err := range jobs.NamesFromJSON(strings.NewReader(lines), 0) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// A command of several parts says what they are, and a mistake in one is a
// mistake of usage like any other.
func TestSubcommands(t *testing.T) {
	for _, name := range []string{"ctl", "trash", "report"} {
		keyjanitor(t, name).exits(2, name+" needs a subcommand; write one of ")
		keyjanitor(t, name, "stat").exits(2, name+` has no subcommand "stat"; write one of `)
	}
	keyjanitor(t, "ctl", "pace", "--foo").exits(2, "keyjanitor ctl pace --help lists the flags")
	keyjanitor(t, "ctl", "pause", "coffee").exits(2, `unexpected argument "coffee"`, "keyjanitor ctl pause --help")
	keyjanitor(t, "delete", "--elements-per-second", "4k").exits(2, "write a whole number")
}
