package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a configuration, and what to write
// instead. Line and Column count from 1; they are 0, and File is empty, for
// problems of values that come from flags and not from a file.
type Problem struct {
	File    string
	Line    int
	Column  int
	Path    string // jobs[0].select.match; relative to the value that was checked
	Message string // what is wrong; what to write. Never holds a password
}

// String is FILE:LINE:COL: PATH: MESSAGE, less the parts that are not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" || p.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Error is every problem of one configuration, in the order of the file.
type Error struct {
	Problems []Problem
}

// Error has one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// asError sorts the problems by place and drops repeats; nil if there are none.
func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{Problems: slices.Compact(problems)}
}

// under puts the problems of a part below the path of that part.
func under(path string, problems []Problem) []Problem {
	for i := range problems {
		problems[i].Path = joinPath(path, problems[i].Path)
	}
	return problems
}

func joinPath(path, key string) string {
	switch {
	case path == "":
		return key
	case key == "" || key[0] == '[':
		return path + key
	}
	return path + "." + key
}

// parentPath of a.b[1] is a.b, of a.b it is a, and of a it is empty.
func parentPath(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// shown quotes a value for a message, at most 60 characters of it.
func shown(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return strconv.Quote(text)
}
