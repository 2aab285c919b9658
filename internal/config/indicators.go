package config

import (
	"slices"
	"strings"
)

// maskIndicators finds every plain text that begins with a character YAML
// gives a meaning of its own, and masks it in lines. A syntax error of the
// YAML parser would hide all other problems of the file.
//
// It walks the characters with as much of YAML's grammar as it takes to know
// where a value begins: comments, quotes, block texts, brackets, and entries.
//
// It gives up, with ok false, where the nesting is deeper than the parser
// should be given.
func maskIndicators(lines [][]rune) (masks []mask, problems []Problem, ok bool) {
	s := &indicatorScan{lines: lines, blockColumn: -1, plainColumn: -1}
	for i := range lines {
		if s.line(i); s.tooDeep {
			break
		}
	}
	return s.masks, s.problems, !s.tooDeep
}

type indicatorScan struct {
	lines    [][]rune
	masks    []mask
	problems []Problem
	tooDeep  bool

	quote       rune // the quote that is open, or 0
	open        []place
	entry       int // column (from 0) of the innermost key or dash on the line
	blockColumn int // entry of the block text that is open, or -1
	plainColumn int // entry of the plain text that the last line ended with, or -1
}

func (s *indicatorScan) problem(line, at int, message string) {
	s.problems = append(s.problems, Problem{Line: line + 1, Column: at + 1, Message: message})
}

func (s *indicatorScan) line(n int) {
	line := s.lines[n]
	indent := 0
	for indent < len(line) && line[indent] == ' ' {
		indent++
	}
	if s.quote == 0 && len(s.open) == 0 {
		content := indentOf(line)
		if s.blockColumn >= 0 || s.plainColumn >= 0 {
			inside := max(s.blockColumn, s.plainColumn)
			if len(line) == indent || indent > inside {
				return
			}
		}
		s.blockColumn, s.plainColumn = -1, -1
		if content < 0 {
			return
		}
		if line[content] == '\t' {
			if strings.TrimSpace(string(line)) != "" {
				s.problem(n, content, "a tab at the start of a line; write spaces")
			}
			indent = content
			for indent < len(line) && (line[indent] == '\t' || line[indent] == ' ') {
				line[indent] = ' '
				indent++
			}
		}
		if indent > maxIndent {
			s.problem(n, indent, "more than 256 spaces at the start of a line; write fewer")
			s.tooDeep = true
			return
		}
		if text := string(line); strings.HasPrefix(text, "---") || strings.HasPrefix(text, "...") {
			return
		}
		if content == 0 && line[0] == '%' {
			s.problem(n, 0, "YAML directives are not supported; delete the line")
			blank(line, 0, len(line))
			return
		}
	}
	s.values(n, indent)
}

// values walks one line from position at, where a value or an entry begins
// unless a quote is open.
func (s *indicatorScan) values(n, at int) {
	line := s.lines[n]
	expect, dashes := s.quote == 0, 0
	s.entry = at
	for at < len(line) && !s.tooDeep {
		c := line[at]
		flow := len(s.open) > 0
		switch {
		case s.quote != 0:
			at = s.closeQuote(line, at)
			continue
		case c == ' ' || c == '\t':
			at++
			continue
		case c == '#' && (at == 0 || line[at-1] == ' ' || line[at-1] == '\t'):
			return
		case flow && c == ',':
			expect = true
		case flow && (c == ']' || c == '}'):
			at = s.closeBracket(n, at)
			expect = false
			continue
		case c == ':' && !expect:
			if next := at + 1; next == len(line) || line[next] == ' ' || flow {
				expect = true
			}
		case !expect:
		case c == '[' || c == '{':
			s.open = append(s.open, place{n, at})
			if len(s.open) > maxDepth {
				s.problem(n, at, "brackets within brackets, more than 32 deep; close them")
				s.tooDeep = true
			}
		case c == '"' || c == '\'':
			s.quote = c
			expect = false
		case (c == '-' || c == '?') && (at+1 == len(line) || line[at+1] == ' '):
			if !flow {
				s.entry = at
			}
			if dashes++; dashes > maxDepth {
				s.problem(n, at, "more than 32 lists within lists; write fewer")
				s.tooDeep = true
			}
		case !flow && (c == '|' || c == '>'):
			s.blockColumn = s.entry
			return
		case strings.ContainsRune("*&!%@`", c):
			at, expect = s.indicator(n, at)
			continue
		default:
			at = s.plain(n, at)
			expect = false
			continue
		}
		at++
	}
}

// closeQuote returns the position behind the quote that is open, or the end
// of the line.
func (s *indicatorScan) closeQuote(line []rune, at int) int {
	for ; at < len(line); at++ {
		switch {
		case s.quote == '"' && line[at] == '\\':
			at++
		case line[at] != s.quote:
		case s.quote == '\'' && at+1 < len(line) && line[at+1] == '\'':
			at++
		default:
			s.quote = 0
			return at + 1
		}
	}
	return at
}

// plain returns the position behind a plain text: the colon of a key, what
// ends it within brackets, a comment, or the end of the line.
func (s *indicatorScan) plain(n, at int) int {
	line := s.lines[n]
	start, flow, colon := at, len(s.open) > 0, false
	end := at
	for ; at < len(line); at++ {
		c := line[at]
		if flow && strings.ContainsRune(",]}", c) || c == '#' && line[at-1] == ' ' {
			break
		}
		if flow && (c == '[' || c == '{') { // no plain text in brackets holds brackets
			return s.mask(n, start, s.textEnd(line, start), "holds "+bracketMeaning(c))
		}
		if c == ':' && (at+1 == len(line) || line[at+1] == ' ' || flow && strings.ContainsRune(",]}", line[at+1])) {
			if !flow {
				s.entry = start
				return at
			}
			if at+1 < len(line) && strings.ContainsRune(",]", line[at+1]) && s.inList() { // [user:]
				return s.mask(n, start, at+1, "ends with :, which YAML reads as the end of a key")
			}
			break
		}
		colon = colon || c == ':'
		if c != ' ' && c != '\t' {
			end = at + 1
		}
	}
	switch {
	case flow && colon && end-start > 1:
		// The parser takes {a:b} for {a: b}, and {x: [a:b]} for {x: [{a: b}]}.
		s.mask(n, start, end, "")
	case !flow && at == len(line):
		s.plainColumn = s.entry
	}
	return at
}

// inList says whether the innermost open bracket is that of a list.
func (s *indicatorScan) inList() bool {
	at := s.open[len(s.open)-1]
	return s.lines[at.line][at.column] == '['
}

// closeBracket returns the position behind a closing bracket. Text that
// follows at once shows that the bracket was part of a glob: [ab]*.
func (s *indicatorScan) closeBracket(n, at int) int {
	line := s.lines[n]
	start := s.open[len(s.open)-1]
	s.open = s.open[:len(s.open)-1]
	at++
	ends := " \t"
	if len(s.open) > 0 {
		ends += ",]}:"
	}
	if at == len(line) || strings.ContainsRune(ends, line[at]) || start.line != n ||
		line[at] == ':' && (at+1 == len(line) || line[at+1] == ' ') {
		return at
	}
	from := start.column
	s.masks = slices.DeleteFunc(s.masks, func(m mask) bool { return m.line == n+1 && m.column > from })
	return s.mask(n, from, s.textEnd(line, at), "begins with "+bracketMeaning(line[from]))
}
