package config

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a file. The YAML parser's time and stack grow faster than its
// input: 100 KiB of lines take 0.1 s, 20,000 open brackets 1.6 s.
const (
	maxFileBytes = 512 << 10
	maxDepth     = 32 // open brackets, or dashes at the start of one line
	maxIndent    = 256
)

// splitLines cuts a file into lines of characters, without line breaks and
// the byte order mark, so that an index plus one is a column.
func splitLines(data []byte) ([][]rune, *Problem) {
	if len(data) > maxFileBytes {
		return nil, &Problem{Line: 1, Column: 1, Message: "the file is larger than 512 KiB; split it"}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	var lines [][]rune
	for text := range strings.SplitSeq(string(data), "\n") {
		lines = append(lines, []rune(text))
		column := 0
		for i, r := range text {
			column++
			at := &Problem{Line: len(lines), Column: column}
			if _, size := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 {
				at.Message = "a byte that is not UTF-8; save the file as UTF-8"
				return nil, at
			}
			if r != '\t' && unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
				at.Message = `a control character; delete it, or write it as \xNN in double quotes`
				return nil, at
			}
		}
	}
	return lines, nil
}

func joinLines(lines [][]rune) []byte {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(string(line))
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// indentOf counts the spaces a line begins with; -1 for a line that holds
// nothing but a comment at most.
func indentOf(line []rune) int {
	for i, r := range line {
		switch r {
		case ' ':
		case '#':
			return -1
		default:
			return i
		}
	}
	return -1
}

// beginsEntry says whether a list entry or the end of the line follows a
// dash at position at.
func beginsEntry(line []rune, at int) bool {
	return line[at] == '-' && (at+1 == len(line) || line[at+1] == ' ')
}

func cloneLines(lines [][]rune) [][]rune {
	out := make([][]rune, len(lines))
	for i, line := range lines {
		out[i] = slices.Clone(line)
	}
	return out
}
