package report

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/keyjanitor/keyjanitor/jobs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// hostile are names that have broken other tools: terminal escapes in 7 and
// 8 bits, line breaks, quotes, formulas, bytes that are no UTF-8, overrides
// of the writing direction, wide and combining runes.
var hostile = []string{
	"",
	" ",
	"mi:{a} b",
	"line\nbreak",
	"cr\r\nlf",
	"\x1b[2J\x1b]0;owned\x07",
	"c1\u009b31mred",
	"nul\x00byte",
	"\xff\xfe\x80",
	"half\xe4\xb8",
	`"quoted",and\slashed`,
	"=HYPERLINK(\"x\")",
	"<script>&",
	"消息:队列:1",
	"e\u0301\u0301\u0301",
	"rtl\u202egnp.exe",
	"emoji👩‍🚀",
	"\ufffd",
	"\U000e0041tag",
	strings.Repeat("long:", 40) + "\x00end",
}

func ptr[T any](v T) *T { return &v }

func scan(n int) *jobs.Summary {
	started := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	s := &jobs.Summary{
		Target: "msg", Mode: "scan", Started: started, Finished: started.Add(12345 * time.Millisecond), Complete: true,
		Shards: []jobs.ShardSummary{{
			ID: "127.0.0.1:6379/0", Addr: "127.0.0.1:6379", Role: "master", Server: "redis 7.0.15",
			KeysTotal: ptr(int64(500_004)), KeysScanned: 500_004,
		}},
		KeysScanned: 500_004,
	}
	types := []string{"hash", "set", "list", "zset", "string"}
	for i := range n {
		f := jobs.Finding{
			Name: fmt.Sprintf("mi:%d", i), Shard: "127.0.0.1:6379/0", Type: types[i%5], Encoding: "hashtable",
			Bytes: ptr(int64(200<<20) >> i), TTLMillis: ptr(int64(-1)), IdleSeconds: ptr(int64(0)),
		}
		if f.Type != "string" {
			f.Elements = ptr(int64(1_000_000) >> i)
		}
		if i == 1 {
			f.TTLMillis = ptr((76*time.Hour + 5*time.Second).Milliseconds())
		}
		if n >= len(hostile) {
			f.Name = hostile[i%len(hostile)]
		}
		s.Findings = append(s.Findings, f)
		s.KeysMatched++
		s.BytesMatched += *f.Bytes
	}
	if n > 0 {
		s.Types = []jobs.Group{{Type: "hash", Keys: 300_000, Bytes: 300 << 20, NoTTL: ptr(int64(12))}, {Type: "string", Keys: 4}}
		s.Prefixes = []jobs.Group{{Prefix: "mi:*", Keys: 300_004, Bytes: 300 << 20, NoTTL: ptr(int64(12))}}
		s.TTL = []jobs.Group{{Band: "none", Keys: 12, Bytes: 4 << 20}, {Band: "under 1h", Keys: 300_000, Bytes: 296 << 20}}
		s.Sizes = []jobs.Group{{Band: "1 KiB to 64 KiB", Keys: 300_000, Bytes: 290 << 20}, {Band: "over 64 MiB", Keys: 2, Bytes: 10 << 20}}
	}
	return s
}

// cluster is a run that acted, met trouble and was stopped.
func cluster(mode string, n int) *jobs.Summary {
	s := scan(n)
	s.Mode, s.Job, s.Complete = mode, "old-messages", false
	s.Shards = nil
	for i := range 3 {
		addr := fmt.Sprintf("redis-%d.redis.production.svc.cluster.local:6379", i)
		s.Shards = append(s.Shards, jobs.ShardSummary{
			ID: addr, Addr: addr, Role: "master", Server: "valkey 8.0.1", KeysTotal: ptr(int64(1_000_000)), KeysScanned: 1_000_000,
		})
	}
	s.Shards[2].KeysScanned = 40_000
	s.Shards[2].Error = "scan at cursor 17: read tcp 10.0.0.1:5555: i/o timeout\nsecond line \x1b[31mred"
	outcomes := []struct{ outcome, method, reason string }{
		{"unlinked", "unlink", ""},
		{"drained", "drain", ""},
		{"failed", "drain", "set aside: NOPERM this user has no permissions to run the 'renamenx' command\nGrant it: ACL SETUSER janitor +renamenx"},
		{"changed", "", "has 12 elements now"},
	}
	for i := range s.Findings {
		f := &s.Findings[i]
		f.Shard, f.Slot = s.Shards[i%3].ID, ptr(i*800)
		if f.Outcome, f.Method = "would_act", "drain"; mode == "execute" {
			o := outcomes[i%4]
			f.Outcome, f.Method, f.Reason = o.outcome, o.method, o.reason
			f.Batches, f.TookMillis, f.SlowestMillis = int64(i*1000+1), ptr(float64(i)*250.5), ptr(1.25)
		}
	}
	s.ActSummary = &jobs.ActSummary{Outcomes: jobs.Outcomes{WouldAct: int64(n)}}
	if mode == "execute" {
		s.ActSummary = &jobs.ActSummary{
			Outcomes:        jobs.Outcomes{Unlinked: 5, Drained: 5, Failed: 5, Changed: 5, Finished: 1},
			ElementsRemoved: 3_500_000, BytesReleased: 187 << 20,
			Holds:     []jobs.Hold{{Signal: "replica_lag", Shard: "10.0.0.1:6379", Reason: "replica 10.0.0.2:6379 is 6s behind", Seconds: 75.5}},
			StoppedBy: "limits.time: 2h",
		}
	}
	s.KeysMatched += 1000
	s.TopElements = s.Findings[:min(2, len(s.Findings))]
	for i := range 20 {
		s.Prefixes = append(s.Prefixes, jobs.Group{Prefix: fmt.Sprintf("p%d:\x1b", i), Keys: int64(100 - i)})
	}
	s.Notes = []string{strings.Repeat("A note that is long enough to be wrapped. ", 4), "Prefixes: 10,000 groups were kept, the rest is one row."}
	return s
}

func TestGolden(t *testing.T) {
	many := scan(1)
	for i := range 40 {
		many.Shards = append(many.Shards, jobs.ShardSummary{ID: fmt.Sprint("shard", i), Addr: "h", KeysTotal: ptr(int64(i * 1000))})
	}
	bare := &jobs.Summary{Target: "msg", Mode: "execute", ActSummary: &jobs.ActSummary{}, Error: "dial 127.0.0.1:7: connection refused"}
	for _, c := range []struct {
		name    string
		formats []string
		runs    []*jobs.Summary
	}{
		{"scan-0", []string{Table, JSON, JSONL, CSV}, []*jobs.Summary{scan(0)}},
		{"scan-1", []string{Table, HTML}, []*jobs.Summary{scan(1)}},
		{"scan-20", []string{Table, JSON, JSONL, CSV}, []*jobs.Summary{scan(20)}},
		{"shards-41", []string{Table}, []*jobs.Summary{many}},
		{"report", []string{Table}, []*jobs.Summary{cluster("report", 4)}},
		{"execute-20", []string{Table, JSON, JSONL, CSV}, []*jobs.Summary{cluster("execute", 20)}},
		{"runs", []string{Table, JSON, JSONL}, []*jobs.Summary{scan(1), bare}},
	} {
		for _, format := range c.formats {
			t.Run(c.name+"."+format, func(t *testing.T) {
				golden(t, c.name+"."+format, render(t, format, c.runs))
			})
		}
	}
}

func render(t *testing.T, format string, sums []*jobs.Summary) []byte {
	t.Helper()
	var out bytes.Buffer
	var err error
	switch {
	case format == JSONL || format == CSV:
		var s *Stream
		if s, err = NewStream(&out, format); err != nil {
			break
		}
		for _, sum := range sums {
			for _, f := range sum.Findings {
				err = errors.Join(err, s.Finding(f))
			}
			err = errors.Join(err, s.Close(sum))
		}
	case len(sums) == 1:
		err = Write(&out, format, sums[0])
	default:
		err = WriteRuns(&out, format, sums)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; see it with -update and git diff. Got:\n%s", path, got)
	}
}

// Every name must come back from every format that a program reads.
func TestNamesSurvive(t *testing.T) {
	s := scan(len(hostile))
	name := func(key, encoded string) string {
		if encoded == "" {
			return key
		}
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	type keys struct {
		Key       string `json:"key"`
		KeyBase64 string `json:"key_base64"`
	}
	got := map[string][]string{}

	var whole struct{ Findings []keys }
	if err := json.Unmarshal(render(t, JSON, []*jobs.Summary{s}), &whole); err != nil {
		t.Fatal(err)
	}
	for _, k := range whole.Findings {
		got[JSON] = append(got[JSON], name(k.Key, k.KeyBase64))
	}
	lines := bytes.Split(bytes.TrimSpace(render(t, JSONL, []*jobs.Summary{s})), []byte("\n"))
	for _, line := range lines[:len(lines)-1] {
		var k keys
		if err := json.Unmarshal(line, &k); err != nil {
			t.Fatal(err)
		}
		got[JSONL] = append(got[JSONL], name(k.Key, k.KeyBase64))
	}
	rows, err := csv.NewReader(bytes.NewReader(render(t, CSV, []*jobs.Summary{s}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		got[CSV] = append(got[CSV], name(row[0], row[1]))
	}
	for _, format := range []string{JSON, JSONL, CSV} {
		if len(got[format]) != len(hostile) {
			t.Fatalf("%s has %d names, want %d", format, len(got[format]), len(hostile))
		}
		for i, want := range hostile {
			if got[format][i] != want {
				t.Errorf("%s: name %q came back as %q", format, want, got[format][i])
			}
		}
	}
}

func TestNothingControlsATerminal(t *testing.T) {
	for _, format := range []string{Table, JSON, JSONL} {
		for _, s := range []*jobs.Summary{scan(20), cluster("report", 20), cluster("execute", 20)} {
			s.Target, s.Shards[0].Server = "t\x1bc", "redis \u202e\x9b7"
			for _, r := range string(render(t, format, []*jobs.Summary{s})) {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Fatalf("%s of a %s lets %U out", format, s.Mode, r)
				}
			}
		}
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	for _, s := range []*jobs.Summary{scan(20), cluster("report", 20)} {
		for line := range strings.Lines(string(render(t, Table, []*jobs.Summary{s}))) {
			if w := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); w > lineWidth {
				t.Errorf("%d columns: %s", w, line)
			}
		}
	}
}

func TestQuoted(t *testing.T) {
	for _, c := range []struct {
		name, want string
		width      int
	}{
		{"mi:1", "mi:1", 60},
		{"", `""`, 60},
		{"a b", `"a b"`, 60},
		{`say"`, `"say\""`, 60},
		{"消息", "消息", 60},
		{"0123456789", "0123456789", 10},
		{"0123456789a", "01234…789a", 10},
		{"\x00\x01\x02\x03\x04", `"\x00…\x04"`, 12}, // an escape stays whole
		{"消息队列消息队列", "消息…队列", 10},                   // 9 columns: no half rune for the tenth
		{strings.Repeat("x", 1<<20), "xxxxx…xxxx", 10},
	} {
		if got := quoted(c.name, c.width); got != c.want {
			t.Errorf("quoted(%.20q, %d) = %s, want %s", c.name, c.width, got, c.want)
		}
	}
}

// However a long name is cut, no half rune reaches the terminal.
func TestQuotedCutsNoRune(t *testing.T) {
	for width := 8; width < 40; width++ {
		for _, r := range []string{"\u0301", "é", "消", "🚀"} {
			if got := quoted(strings.Repeat(r, 1000), width); !utf8.ValidString(got) {
				t.Errorf("quoted(%s…, %d) = %q", r, width, got)
			}
		}
	}
}

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"}, {340 * time.Millisecond, "340ms"}, {12345 * time.Millisecond, "12.3s"},
		{time.Minute, "1m"}, {59*time.Minute + 59*time.Second + 999*time.Millisecond, "59m59s"},
		{2*time.Hour + 5*time.Minute, "2h5m"}, {76 * time.Hour, "3d4h"}, {72*time.Hour + time.Minute, "3d"},
	} {
		if got := duration(c.d); got != c.want {
			t.Errorf("duration(%v) = %s, want %s", c.d, got, c.want)
		}
	}
	if got := ttl(1 << 62); got != "292y+" {
		t.Errorf("ttl past 292 years = %s", got)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{Write(nil, "xml", scan(0)), `format "xml" is not known`},
		{Write(nil, JSONL, scan(0)), "one by one"},
		{WriteRuns(nil, CSV, nil), "one by one"},
		{streamError(HTML), "whole summary"},
		{Write(broken{}, HTML, scan(1)), "disk full"},
		{streamError(JSON), "whole summary"},
		{Write(broken{}, Table, scan(1)), "disk full"},
		{Write(broken{}, JSON, scan(1)), "disk full"},
		{streamError(CSV), "disk full"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", c.err, c.want)
		}
	}
}

func streamError(format string) error {
	_, err := NewStream(broken{}, format)
	return err
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }
