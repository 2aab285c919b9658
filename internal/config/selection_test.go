package config

import (
	"math"
	"testing"
)

func TestOnlyAnything(t *testing.T) {
	for pattern, want := range map[string]bool{
		"*": true, "**": true, "?*": true, "*?": true, "?*?*": true,
		"": false, "?": false, "???": false, "a*": false, "*a": false, "*:*": false, `\*`: false, "[*]": false, " *": false,
	} {
		if got := OnlyAnything(pattern); got != want {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}

func TestConsentToActOnEverything(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      Select
		acting bool
		want   string // path of the problem, - for none
	}{
		{"report on everything", Select{}, false, "-"},
		{"act on everything", Select{}, true, ""},
		{"consent", Select{AllKeys: true}, true, "-"},
		{"consent with *", Select{AllKeys: true, Match: []string{"*"}}, true, "-"},
		{"only size", Select{MinBytes: 1}, true, ""},
		{"exclude is no name filter", Select{Exclude: []string{"a*"}}, true, ""},
		{"star", Select{Match: []string{"*"}}, true, "match[0]"},
		{"star in report", Select{Match: []string{"*"}}, false, "-"},
		{"one of two", Select{Match: []string{"a*", "?*"}}, true, "match[1]"},
		{"star beside prefix", Select{Match: []string{"*"}, Prefix: []string{"a"}}, true, "match[0]"},
		{"prefix", Select{Prefix: []string{"*"}}, true, "-"},
		{"empty prefix", Select{Prefix: []string{""}}, true, "prefix[0]"},
		{"empty prefix in report", Select{Prefix: []string{""}}, false, "prefix[0]"},
		{"empty prefix with consent", Select{Prefix: []string{""}, AllKeys: true}, true, "prefix[0]"},
		{"glob", Select{Match: []string{"a*"}}, true, "-"},
	} {
		ps := c.s.Problems(c.acting)
		if c.want == "-" {
			if len(ps) > 0 {
				t.Errorf("%s: %v", c.name, ps)
			}
		} else if len(ps) != 1 || ps[0].Path != c.want {
			t.Errorf("%s: %v, want one at %q", c.name, ps, c.want)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for _, name := range []string{"string", "list", "set", "zset", "hash", "stream", "ReJSON-RL", "MBbloom--", "TSDB-TYPE", "vectorset"} {
		if message := typeProblem(name); message != "" {
			t.Errorf("%s: %s", name, message)
		}
	}
	for _, name := range []string{"", "hashes", "Hash", "HASH", "Hashes", "sets", "ReJSON", "none", "hash ", "lowercase", "ReJSON RL"} {
		if typeProblem(name) == "" {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestNumbersOutOfRange(t *testing.T) {
	if ps := DefaultPace().Problems(); len(ps) > 0 {
		t.Errorf("the default pace: %v", ps)
	}
	if ps := (Pace{}).Problems(); len(ps) != 4 {
		t.Errorf("the zero pace: %v", ps)
	}
	p := DefaultPace()
	p.MaxShare, p.ScanShare, p.BytesPerSecond = Percent(math.NaN()), 100.1, -1
	if ps := p.Problems(); len(ps) != 3 {
		t.Errorf("%v", ps)
	}
	if ps := (Limits{}).Problems(); len(ps) > 0 {
		t.Errorf("no limits: %v", ps)
	}
	if ps := (Limits{MaxKeys: -1, MaxBytes: -1, MaxPercent: math.NaN(), Time: -1}).Problems(); len(ps) != 4 {
		t.Errorf("%v", ps)
	}
	if ps := (Select{MinElements: -1, MinBytes: -1, TTLUnder: -1, TTLOver: -1}).Problems(false); len(ps) != 4 {
		t.Errorf("%v", ps)
	}
	if ps := (Action{Delete: &Delete{}}).Problems(Select{}); len(ps) != 1 {
		t.Errorf("no method: %v", ps)
	}
}
