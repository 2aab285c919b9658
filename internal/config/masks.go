package config

import (
	"strings"
	"unicode/utf8"
)

// A place is a position in the file, both numbers from 1.
type place struct{ line, column int }

// mask is a plain text that YAML would read as something else, or not at
// all: an unquoted glob, mostly. It stands in the lines as a quoted text of
// the same length, so that the rest parses and columns stay right.
type mask struct {
	place
	text string // as it was written
	what string // begins with *, which YAML reads as an alias; empty if nothing is wrong with it

	reported bool
}

func bracketMeaning(c rune) string {
	if c == '{' {
		return "{, which YAML reads as a map"
	}
	return "[, which YAML reads as a list"
}

// indicator masks the text at a character that YAML gives a meaning. It
// returns the position behind it, and whether a value is still to come there.
func (s *indicatorScan) indicator(n, at int) (int, bool) {
	line := s.lines[n]
	end := s.textEnd(line, at)
	var why string
	switch line[at] {
	case '*':
		why = "which YAML reads as an alias"
	case '&':
		why = "which YAML reads as an anchor; anchors are not supported"
	case '!':
		why = "which YAML reads as a tag; tags are not supported"
	case '%':
		why = "which YAML reads as a directive"
	default:
		why = "which no text begins with in YAML unless it is quoted"
	}
	what := "begins with " + string(line[at]) + ", " + why
	if line[at] == '&' || line[at] == '!' {
		// Before a map or a list it is what YAML takes it for, and without it
		// the rest parses.
		name, rest, _ := strings.Cut(string(line[at:end]), " ")
		rest = strings.TrimLeft(rest, " ")
		if rest == "" && len(s.open) == 0 && s.nested(n) || rest != "" && strings.Contains("{[", rest[:1]) {
			s.problem(n, at, what+"; delete it, and write out what an alias stands for")
			end = at + utf8.RuneCountInString(name)
			blank(line, at, end)
			return end, rest != ""
		}
	}
	return s.mask(n, at, end, what), false
}

// nested says whether the next line with content belongs below line n.
func (s *indicatorScan) nested(n int) bool {
	indent := indentOf(s.lines[n])
	for _, next := range s.lines[n+1:] {
		if i := indentOf(next); i >= 0 {
			return i > indent || i == indent && beginsEntry(next, i) && !beginsEntry(s.lines[n], indent)
		}
	}
	return false
}

// textEnd is the position behind the text that at lies in, as its writer
// meant it: brackets that open within it belong to it.
func (s *indicatorScan) textEnd(line []rune, at int) int {
	depth, flow := 0, len(s.open) > 0
	end := at
scan:
	for ; at < len(line); at++ {
		switch c := line[at]; {
		case c == '#' && line[max(at-1, 0)] == ' ':
			break scan
		case c == ':' && s.endsKey(line, at):
			break scan
		case !flow:
		case c == '[' || c == '{':
			depth++
		case (c == ']' || c == '}') && depth > 0:
			depth--
		case c == ',' && depth == 0 || c == ']' || c == '}':
			break scan
		}
		if line[at] != ' ' && line[at] != '\t' {
			end = at + 1
		}
	}
	return end
}

// endsKey says whether a colon makes the text before it a key: a space
// follows, and the line has no key before.
func (s *indicatorScan) endsKey(line []rune, at int) bool {
	if at+1 < len(line) && line[at+1] != ' ' {
		return false
	}
	return len(s.open) > 0 || !strings.Contains(string(line[:at]), ": ")
}

func (s *indicatorScan) mask(n, from, to int, what string) int {
	line := s.lines[n]
	s.masks = append(s.masks, mask{place: place{n + 1, from + 1}, text: string(line[from:to]), what: what})
	for i := from; i < to; i++ {
		line[i] = 'x'
	}
	if to-from > 1 {
		line[from], line[to-1] = '"', '"'
	}
	return to
}

func blank(line []rune, from, to int) {
	for i := from; i < to; i++ {
		line[i] = ' '
	}
}
