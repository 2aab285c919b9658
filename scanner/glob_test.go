package scanner

import (
	"strings"
	"testing"
	"time"
)

var globs = []struct {
	pattern, name string
	want          bool
}{
	{"", "", true}, {"", "a", false}, {"a", "", false}, {"a", "a", true}, {"a", "A", false}, {"a", "ab", false}, {"ab", "a", false},
	{"*", "", true}, {"*", "anything\x00\n", true}, {"**", "", true}, {"***", "a", true}, {"*a", "bca", true}, {"*a", "ab", false},
	{"a*", "a", true}, {"a*", "abc", true}, {"a*b*c", "aXbYc", true}, {"a*b*c", "abcb", false}, {"*ab*", "aab", true},
	{"*:*:x", "a:b:c:x", true}, {"a**", "a", true}, {"a*?", "a", false}, {"a*?", "ab", true},
	{"?", "", false}, {"?", "a", true}, {"?", "\xff", true}, {"?", "é", false}, {"??", "é", true}, {"h?llo", "hello", true},
	{"[abc]", "b", true}, {"[abc]", "d", false}, {"[abc]", "", false}, {"x[abc]y", "xby", true}, {"[^abc]", "d", true},
	{"[^abc]", "a", false}, {"[^abc]", "", false}, {"[!a]", "!", true}, {"[!a]", "b", false},
	{"[a-c]", "b", true}, {"[a-c]", "d", false}, {"[a-c]", "-", false}, {"[c-a]", "b", true}, {"[^a-c]", "b", false}, {"[^c-a]", "d", true},
	{"[a-]", "a", true}, {"[a-]", "-", false}, {"[-a]", "-", true}, {"[a-c-e]", "d", false}, {"[a-c-e]", "-", true},
	{"[a-c0-9]x", "7x", true},
	// ] ends a class wherever it stands; ^ negates only in front.
	{"[]", "]", false}, {"[]a]", "a]", false}, {"[^]", "a", true}, {"[a^]", "^", true},
	// A class that is not closed ends with the pattern.
	{"[", "[", false}, {"[a", "a", true}, {"[a", "b", false}, {"[^", "x", true}, {"[^a", "b", true}, {"[ab", "bc", false}, {"[a-", "-", true},
	{"*[ab", "xxb", true},
	// A range may end in what looks like the end of the class, or an escape.
	{"[A-]]", "]", true}, {"[A-]]", "B", true}, {`[A-\]x]`, "x]", false}, {`[A-\]`, "B", true},
	{`\*`, "*", true}, {`\*`, "a", false}, {`\?`, "?", true}, {`\[a]`, "[a]", true}, {`\\`, `\`, true}, {`\a`, "a", true}, {`\`, `\`, true},
	{`a\`, `a\`, true}, {`[\]]`, "]", true}, {`[\]]`, `\`, false}, {`[\^a]`, "^", true}, {`[\-a]`, "-", true}, {`[a\-c]`, "b", false}, {`[\`, `\`, true},
	{"\x00*", "\x00\xff", true}, {"[\x00-\x7f]", "a", true}, {"[^a]", "\xff", true},
}

func TestGlob(t *testing.T) {
	for _, test := range globs {
		if got := Glob(test.pattern, test.name); got != test.want {
			t.Errorf("Glob(%q, %q) is %t", test.pattern, test.name, got)
		}
		if got := stringmatchlen(test.pattern, test.name); got != test.want {
			t.Errorf("the test's own copy: (%q, %q) is %t", test.pattern, test.name, got)
		}
	}
}

// stringmatchlen is Redis' own function, step by step (util.c of 4.0 and
// later), except that stars match the empty name.
func stringmatchlen(p, s string) bool {
	for len(p) > 0 {
		switch p[0] {
		case '*':
			for len(p) > 1 && p[1] == '*' {
				p = p[1:]
			}
			if len(p) == 1 {
				return true
			}
			for ; len(s) > 0; s = s[1:] {
				if stringmatchlen(p[1:], s) {
					return true
				}
			}
			return false
		case '?':
			if len(s) == 0 {
				return false
			}
			s = s[1:]
		case '[':
			if len(s) == 0 {
				return false
			}
			p = p[1:]
			not := len(p) > 0 && p[0] == '^'
			if not {
				p = p[1:]
			}
			match := false
			for ; len(p) > 0 && p[0] != ']'; p = p[1:] {
				switch {
				case p[0] == '\\' && len(p) >= 2:
					p = p[1:]
					match = match || p[0] == s[0]
				case len(p) >= 3 && p[1] == '-':
					from, to := min(p[0], p[2]), max(p[0], p[2])
					match = match || from <= s[0] && s[0] <= to
					p = p[2:]
				default:
					match = match || p[0] == s[0]
				}
			}
			if match == not {
				return false
			}
			s = s[1:]
			if len(p) == 0 {
				return len(s) == 0
			}
		default:
			if p[0] == '\\' && len(p) >= 2 {
				p = p[1:]
			}
			if len(s) == 0 || p[0] != s[0] {
				return false
			}
			s = s[1:]
		}
		p = p[1:]
		if len(s) == 0 {
			return strings.Trim(p, "*") == ""
		}
	}
	return len(s) == 0
}

func FuzzGlob(f *testing.F) {
	for _, test := range globs {
		f.Add(test.pattern, test.name)
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 20 || len(name) > 20 {
			return // the copy takes exponential time
		}
		if got, want := Glob(pattern, name), stringmatchlen(pattern, name); got != want {
			t.Errorf("Glob(%q, %q) is %t, Redis says %t", pattern, name, got, want)
		}
	})
}

// Tried from every star anew, this would not end.
func TestManyStarsTakeNoTime(t *testing.T) {
	start := time.Now()
	if Glob(strings.Repeat("*a", 500)+"b", strings.Repeat("a", 10_000)) {
		t.Error("matched")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}
