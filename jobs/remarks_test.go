package jobs

import (
	"slices"
	"strings"
	"testing"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

func nodes(bytes ...int64) *Summary {
	s := &Summary{}
	for i, n := range bytes {
		addr := string(rune('a'+i)) + ":1"
		s.Shards = append(s.Shards, ShardSummary{ID: addr + "/0", Addr: addr, KeysScanned: 1, BytesMatched: n})
		s.Findings = append(s.Findings, Finding{Name: "k:" + addr, Addr: addr, Bytes: num(n / 2)})
	}
	return s
}

func TestSkew(t *testing.T) {
	failed := nodes(10, 10, 90)
	failed.Shards = append(failed.Shards, ShardSummary{Addr: "d:1", Error: "no route"})
	databases := nodes(10, 50)
	databases.Shards[1].Addr = "a:1"
	hostile := nodes(90, 10, 10)
	hostile.Findings[0].Name = "\x1b\xff\u202e"
	for _, c := range []struct {
		name string
		s    *Summary
		want string
	}{
		{"none", nodes(), ""},
		{"one node", nodes(100), ""},
		{"two nodes can't hold more than twice their share", nodes(100, 0), ""},
		{"even", nodes(10, 10, 10), ""},
		{"no bytes", nodes(0, 0, 0, 0), ""},
		{"exactly twice", nodes(20, 5, 5, 10), ""},
		{"more than twice", nodes(21, 5, 5, 9), "node a:1 holds 52% of the bytes of 4 nodes; 48% of it is key k:a:1"},
		{"a node of which nothing is known", failed, "node c:1 holds 82% of the bytes of 3 nodes; 50% of it is key k:c:1"},
		{"databases of one node", databases, ""},
		{"a name that does not print", hostile, `node a:1 holds 82% of the bytes of 3 nodes; 50% of it is key "\x1b\xff\u202e"`},
	} {
		if got := skew(c.s); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	small := nodes(90, 1, 1)
	small.Findings[0].Bytes = num(5)
	if got := skew(small); strings.Contains(got, "key") {
		t.Errorf("a key that is little of it is named: %q", got)
	}
}

func TestRemarks(t *testing.T) {
	finding := func(ttl, elements int64) Finding {
		return Finding{Name: "a", TTLMillis: num(ttl), Elements: num(elements)}
	}
	for _, c := range []struct {
		name     string
		findings []Finding
		rule     config.Select
		want     []string // how the notes begin
	}{
		{"nothing", nil, config.Select{}, nil},
		{"all is well", []Finding{finding(10_000_000, 1_000_000)}, config.Select{}, nil},
		{"small ones expire", []Finding{finding(1000, 10)}, config.Select{}, nil},
		{"a TTL that is not known", []Finding{{Name: "a", Elements: num(1_000_000)}}, config.Select{}, nil},
		{"no TTL", []Finding{finding(-1, 1), finding(-1, 1)}, config.Select{}, []string{"2 keys without a TTL"}},
		{"no TTL, as was asked for", []Finding{finding(-1, 1)}, config.Select{NoTTL: true}, nil},
		{"one expires", []Finding{finding(0, 10_001)}, config.Select{}, []string{"1 oversized key expires within an hour"}},
		{"both", []Finding{finding(-1, 1), finding(1, 10_001), finding(1, 10_001)}, config.Select{},
			[]string{"1 key without a TTL", "2 oversized keys expire within an hour"}},
	} {
		w := &run{tally: newTally(1, byBytes)}
		w.Job.Select = c.rule
		for _, f := range c.findings {
			w.tally.add(f)
		}
		if got := w.remarks(&Summary{}); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLegible(t *testing.T) {
	for name, want := range map[string]string{
		"mi:0": "mi:0", "": `""`, "消息": "消息", "\x00": `"\x00"`, `"`: `"\""`,
		strings.Repeat("x", 60):        strings.Repeat("x", 60),
		strings.Repeat("x", 61):        strings.Repeat("x", 60) + "…",
		strings.Repeat("x", 59) + "消息": strings.Repeat("x", 59) + "…",
		strings.Repeat("x", 57) + "消息": strings.Repeat("x", 57) + "消…",
		strings.Repeat("\xff", 1<<20):  `"` + strings.Repeat(`\xff`, 60) + `"…`,
	} {
		if got := legible(name); got != want {
			t.Errorf("legible(%.20q) = %s, want %s", name, got, want)
		}
	}
}

func TestIdleBands(t *testing.T) {
	for v, want := range map[int64]string{
		0: "under 1h", 3599: "under 1h", 3600: "1h to 1d", 86_400: "1d to 7d", 7 * 86_400: "7d to 30d", 30 * 86_400: "30d and over",
	} {
		if got := band(idleBands, v); got != want {
			t.Errorf("idle for %d s is in %q, want %q", v, got, want)
		}
	}
	tl := newTally(1, byBytes)
	tl.add(Finding{Name: "a", IdleSeconds: num(5), Bytes: num(7)})
	tl.add(Finding{Name: "b"})
	all := newTally(1, byBytes)
	all.merge(tl)
	var s Summary
	all.into(&s)
	if want := []Group{{Band: "under 1h", Keys: 1, Bytes: 7}}; !slices.Equal(s.Idle, want) {
		t.Errorf("idle bands %+v, want %+v", s.Idle, want)
	}
}
