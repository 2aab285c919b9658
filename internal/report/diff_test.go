package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// aDayLater is two scans of one target.
func aDayLater() (before, after *jobs.Summary) {
	before, after = scan(6), scan(6)
	after.Started = after.Started.Add(24*time.Hour + 90*time.Second)
	after.KeysScanned += 1000
	size := func(f *jobs.Finding, bytes, elements int64) { f.Bytes, f.Elements = ptr(bytes), ptr(elements) }
	size(&after.Findings[0], 210<<20, 1_050_000) // grown
	size(&after.Findings[1], 90<<20, 400_000)    // shrunk
	after.Findings[2].Elements = ptr(int64(1))   // shrunk, by elements only
	after.Findings[3].Shard = "10.0.0.9:6379/0"  // moved
	after.Findings[4].Name = "new\x1b:1"
	after.TopElements = []jobs.Finding{after.Findings[0], {Name: "many", Shard: "s", Elements: ptr(int64(5))}}
	after.Prefixes = []jobs.Group{{Prefix: "mi:*", Keys: 300_010, Bytes: 310 << 20, NoTTL: ptr(int64(12))}, {Prefix: "new\x1b:", Keys: 2, Bytes: 1 << 20}}
	after.Types = []jobs.Group{{Type: "hash", Keys: 300_000, Bytes: 300 << 20, NoTTL: ptr(int64(12))}, {Type: "list", Keys: 1}}
	after.KeysMatched, after.BytesMatched = 9, 500<<20
	return before, after
}

func diffed(t *testing.T, format string, before, after *jobs.Summary) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := WriteDiffs(&out, format, Compare(&File{Runs: []*jobs.Summary{before}}, &File{Runs: []*jobs.Summary{after}}, 100), false); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDiffGolden(t *testing.T) {
	for _, format := range []string{Table, JSON} {
		before, after := aDayLater()
		text := diffed(t, format, before, after)
		golden(t, "diff."+format, text)
		for _, r := range string(text) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%s lets %U out", format, r)
			}
		}
	}
}

func namesOf(cs []FindingChange) (names []string) {
	for _, c := range cs {
		names = append(names, c.Name)
	}
	return names
}

func TestDiff(t *testing.T) {
	before, after := aDayLater()
	d := compare(before, after, 100)
	for _, c := range []struct {
		what string
		got  []FindingChange
		want []string
	}{
		{"new", d.Findings.New, []string{"new\x1b:1", "many"}},
		{"gone", d.Findings.Gone, []string{"mi:4"}},
		{"grown", d.Findings.Grown, []string{"mi:0"}},
		{"shrunk", d.Findings.Shrunk, []string{"mi:1", "mi:2"}},
	} {
		if !slices.Equal(namesOf(c.got), c.want) {
			t.Errorf("%s: %q, want %q", c.what, namesOf(c.got), c.want)
		}
	}
	if !slices.ContainsFunc(d.Notes, func(n string) bool { return strings.Contains(n, "the new report lists 6 of its 9 keys") }) {
		t.Errorf("notes %q", d.Notes)
	}
	if same := compare(before, before, 100); len(same.Prefixes)+len(same.Types)+len(same.Notes) != 0 || !strings.Contains(string(diffed(t, Table, before, before)), "No key that") {
		t.Errorf("a report differs from itself: %+v", same)
	}
	if few := compare(before, after, 1); len(few.Findings.New) != 1 || len(few.Findings.Shrunk) != 1 || len(few.Prefixes) != 1 {
		t.Errorf("cut to 1: %+v", few)
	}
}

// A key of two shards is not taken for another's, whichever of them moved.
func TestDiffOfKeysOfOneName(t *testing.T) {
	on := func(shards ...string) *jobs.Summary {
		s := scan(0)
		for i, shard := range shards {
			s.Findings = append(s.Findings, jobs.Finding{Name: "a", Shard: shard, Bytes: ptr(int64(i + 1))})
		}
		s.KeysMatched = int64(len(shards))
		return s
	}
	for _, c := range []struct {
		before, after []string
		want          string
	}{
		{[]string{"1", "2"}, []string{"1", "2"}, "0 new 0 gone"},
		{[]string{"1"}, []string{"2"}, "0 new 0 gone"},
		{[]string{"1"}, []string{"1", "2"}, "1 new 0 gone"},
		{[]string{"1", "2"}, []string{"1"}, "0 new 1 gone"},
		{[]string{"1", "2"}, []string{"3"}, "1 new 2 gone"},
		{[]string{"1"}, []string{"2", "3"}, "1 new 0 gone"},
	} {
		f := compare(on(c.before...), on(c.after...), 10).Findings
		if got := fmt.Sprintf("%d new %d gone", len(f.New), len(f.Gone)); got != c.want {
			t.Errorf("%q to %q: %s, want %s", c.before, c.after, got, c.want)
		}
	}
}

func TestDiffOfSeveral(t *testing.T) {
	job := func(name string) *jobs.Summary {
		s := scan(1)
		s.Job = name
		return s
	}
	before := &File{Runs: []*jobs.Summary{job("a"), job("old")}, Several: true}
	after := &File{Runs: []*jobs.Summary{job("new"), job("a")}, Several: true}
	all := Compare(before, after, 10)
	var out bytes.Buffer
	if err := WriteDiffs(&out, JSON, all, true); err != nil {
		t.Fatal(err)
	}
	var read struct {
		Diffs []struct {
			Job   string
			Notes []string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(read.Diffs); got != "[{new [only the new report has this run]} {a []} {old [only the old report has this run]}]" {
		t.Errorf("diffs %s", got)
	}
	if err := WriteDiffs(&out, HTML, all, true); err == nil {
		t.Error("a diff in html")
	}
}
