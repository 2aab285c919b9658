package config

import (
	"fmt"
	"io"
	"os"
)

// Load reads a configuration file. ${NAME} in its connection fields is taken
// from the environment. What is wrong in the file is an *Error.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data, os.Getenv)
}

// Parse reads the text of a configuration; name stands for the file in
// messages, and getenv answers for ${NAME} in connection fields. The error is
// an *Error with every problem of the text. It reads the files that
// password_file names, and no other.
func Parse(name string, data []byte, getenv func(string) string) (*Config, error) {
	c, problems := parse(data, getenv)
	for i := range problems {
		problems[i].File = name
	}
	if err := asError(problems); err != nil {
		return nil, err
	}
	return c, nil
}

func parse(data []byte, getenv func(string) string) (*Config, []Problem) {
	lines, problem := splitLines(data)
	if problem != nil {
		return nil, []Problem{*problem}
	}
	masks, problems, ok := maskIndicators(lines)
	byPlace := map[place]*mask{}
	for i := range masks {
		byPlace[masks[i].place] = &masks[i]
	}
	d := &decoder{getenv: getenv, places: map[string]place{}, spoiled: map[string]bool{}, partial: map[string]bool{}}
	c := &Config{Pace: DefaultPace(), HoldWhen: DefaultHoldWhen(), StateDir: DefaultStateDir}
	if ok {
		root, more := parseParts(lines, 0, byPlace)
		problems = append(problems, more...)
		if root.kind != isNull {
			d.config(root, c)
		}
		for _, p := range c.Problems() {
			d.conclude(p)
		}
	}
	problems = append(problems, d.problems...)
	for _, m := range masks {
		if m.what != "" && !m.reported { // a key, or a value below an unknown key: perhaps a password
			problems = append(problems, Problem{Line: m.line, Column: m.column,
				Message: m.what + "; put quotes around it"})
		}
	}
	return c, problems
}

// conclude gives a problem of the values its place in the file, unless it
// only follows from one that was reported where the value was read.
func (d *decoder) conclude(p Problem) {
	if d.spoiled[p.Path] {
		return
	}
	at, ok := d.places[p.Path]
	if !ok { // the key is missing: perhaps because it is misspelt
		parent := parentPath(p.Path)
		if d.partial[parent] || d.spoiled[parent] {
			return
		}
		for at, ok = d.places[parent]; !ok && parent != ""; at, ok = d.places[parent] {
			parent = parentPath(parent)
		}
	}
	p.Line, p.Column = max(at.line, 1), max(at.column, 1)
	d.problems = append(d.problems, p)
}
