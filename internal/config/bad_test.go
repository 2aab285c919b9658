package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the messages that come into testdata/bad")

const wantMark = "# want: "

// Each file breaks one rule; its first lines hold the exact messages.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				data = withMessages(t, name, data)
				if err := os.WriteFile(file, data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, _ := cutMessages(data)
			if got := messages(t, name, data); got != want {
				t.Errorf("messages\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func messages(t *testing.T, name string, data []byte) string {
	t.Helper()
	c, err := Parse(name, data, func(string) string { return "" })
	if err == nil {
		t.Fatalf("no error, but %+v", c)
	}
	if c != nil {
		t.Error("a configuration beside the error")
	}
	return err.Error()
}

// cutMessages returns the messages at the top of a file, and the rest of it.
func cutMessages(data []byte) (string, []byte) {
	var wants []string
	for bytes.HasPrefix(data, []byte(wantMark)) {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		wants = append(wants, string(line[len(wantMark):]))
		data = rest
	}
	return strings.Join(wants, "\n"), data
}

// withMessages puts the messages that come at the top. That moves the lines,
// and so the messages: the second round settles it.
func withMessages(t *testing.T, name string, data []byte) []byte {
	_, body := cutMessages(data)
	for range 3 {
		head := wantMark + strings.ReplaceAll(messages(t, name, data), "\n", "\n"+wantMark) + "\n"
		data = append([]byte(head), body...)
	}
	return data
}
