package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// decoder turns nodes into values. It goes on after a problem, and keeps what
// later checks need in order not to complain about its consequences.
type decoder struct {
	getenv   func(string) string
	problems []Problem
	places   map[string]place // of every path that the file has
	spoiled  map[string]bool  // paths whose value is not what the file meant to say
	partial  map[string]bool  // maps in which a key is unknown or unreadable
}

func (d *decoder) problem(at place, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...)})
}

// refuse reports a value and marks it.
func (d *decoder) refuse(n *node, path, format string, args ...any) {
	d.problem(n.place, path, format, args...)
	d.spoiled[path] = true
}

// enter notes where a value stands and tells whether there is one to read.
func (d *decoder) enter(n *node, path string) bool {
	d.places[path] = n.place
	if n.masked != nil {
		fix := "put quotes around it"
		if !strings.HasSuffix(path, "password") {
			fix += ": " + quoted(n.text)
		}
		d.problem(n.place, path, "%s; %s", n.masked.what, fix)
		n.masked.reported = true
	}
	if n.kind == isBroken {
		d.spoiled[path] = true
		return false
	}
	return true
}

// wrongKind says what stands where something else is meant.
func (d *decoder) wrongKind(n *node, path, want, example string) {
	switch {
	case n.masked != nil:
		d.spoiled[path] = true
	case n.kind == isNull:
		d.refuse(n, path, "no value; write %s, or delete the key", example)
	default:
		d.refuse(n, path, "%s where %s is meant; write %s", n.kind, want, example)
	}
}

type key struct {
	name   string
	decode func(n *node, path string)
}

// mapping reads a map with these keys. Keys that later versions may have are
// refused in other words than unknown ones.
func (d *decoder) mapping(n *node, path, example string, later []string, keys ...key) bool {
	if !d.enter(n, path) {
		return false
	}
	if n.kind != isMap {
		d.wrongKind(n, path, string(isMap), example)
		return false
	}
	d.partial[path] = n.incomplete
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	seen := map[string]place{}
	for _, f := range n.fields {
		// {password=secret} is a key to YAML: what may be a value stays hidden.
		ends := ":="
		if f.value.kind == isNull {
			ends = ":= "
		}
		if i := strings.IndexAny(f.key, ends); i >= 0 {
			d.partial[path] = true
			d.problem(f.place, path, "a key without a colon and a space; write %s: VALUE", f.key[:i])
			continue
		}
		at := joinPath(path, f.key)
		if first, ok := seen[f.key]; ok {
			d.problem(f.place, at, "the key stands already in line %d; delete one", first.line)
			continue
		}
		seen[f.key] = f.place
		if i := slices.Index(names, f.key); i >= 0 {
			keys[i].decode(f.value, at)
			continue
		}
		d.partial[path] = true
		near := nearest(f.key, names)
		switch {
		case slices.Contains(later, f.key):
			d.problem(f.place, path, "%s is not supported by this version; delete it", f.key)
		case f.key == "<<":
			d.problem(f.place, path, "merge keys are not supported; write the keys out")
		case near != "":
			d.problem(f.place, path, "unknown key %s; did you mean %q?", shown(f.key), near)
		default:
			d.problem(f.place, path, "unknown key %s; the keys here are %s", shown(f.key), strings.Join(names, ", "))
		}
	}
	return true
}

// each calls fn for every entry of a list. A single value is a list of one.
func (d *decoder) each(n *node, path, example string, fn func(n *node, path string)) bool {
	if n.kind == isText {
		fn(n, path)
		return true
	}
	if !d.enter(n, path) {
		return false
	}
	if n.kind != isList {
		d.wrongKind(n, path, string(isList), example)
		return false
	}
	if n.incomplete {
		d.spoiled[path] = true
	}
	for i, item := range n.items {
		fn(item, index(path, i))
	}
	return true
}

// scalar reads the text of a value that is neither a list nor a map.
func (d *decoder) scalar(n *node, path, want, example string) (string, bool) {
	if !d.enter(n, path) {
		return "", false
	}
	if n.kind != isText {
		d.wrongKind(n, path, want, example)
		return "", false
	}
	return n.text, true
}

// otherThanText matches plain texts that some YAML reader takes for a truth
// value, a number or nothing: no, 0123, 1e3, 12:30, ~.
var otherThanText = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null|~` +
	`|[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)(e[-+]?\d+)?|[-+]?0[xob][0-9a-f_]+|[-+]?\.(inf|nan)|\d+(:[0-5]?\d)+)$`)

// text reads a text. What YAML might read as another type must be quoted.
func (d *decoder) text(n *node, path string) (string, bool) {
	example := `a text such as "NAME"`
	if n.kind == isMap {
		example = `a text, in quotes if it holds ": " or ends with ":"`
	}
	s, ok := d.scalar(n, path, string(isText), example)
	if ok && n.plain && otherThanText.MatchString(s) {
		fix := ""
		if !strings.HasSuffix(path, "password") {
			fix = ": " + quoted(s)
		}
		d.refuse(n, path, "YAML may read this as a number or as yes or no; put quotes around it%s", fix)
		return "", false
	}
	return s, ok
}

// texts reads a list of texts, or one text as a list of one.
func (d *decoder) texts(n *node, path string) (out []string) {
	d.each(n, path, `["TEXT"]`, func(n *node, path string) {
		if s, ok := d.text(n, path); ok {
			out = append(out, s)
		} else {
			d.spoiled[listPath(path)] = true
			out = append(out, unreadable)
		}
	})
	return out
}

// unreadable stands for an entry that was refused, so that later entries keep
// their numbers. No file can hold it: it is not UTF-8.
const unreadable = "\xff"

// globs reads patterns. They must be quoted: some characters of theirs change
// what YAML reads, depending on where they stand.
func (d *decoder) globs(n *node, path string) []string {
	check := func(n *node, path string) {
		if n.kind == isText && n.plain && strings.ContainsAny(n.text, "*?[]{}\\") {
			d.refuse(n, path, "a pattern without quotes; put quotes around it: %s", quoted(n.text))
		}
	}
	if n.kind == isText {
		check(n, path)
	}
	for i, item := range n.items {
		check(item, index(path, i))
	}
	return d.texts(n, path)
}

// integer reads a whole number in decimal digits.
func (d *decoder) integer(n *node, path string, largest int64) int64 {
	s, ok := d.scalar(n, path, "a number", "a number such as 1000")
	if !ok || n.masked != nil {
		d.spoiled[path] = true
		return 0
	}
	i, err := strconv.ParseInt(s, 10, 64)
	switch {
	case !n.plain && err == nil:
		d.refuse(n, path, "a number in quotes; write it without: %d", i)
	case err != nil || s[0] == '+' || len(strings.TrimLeft(s, "-")) > 1 && strings.TrimLeft(s, "-")[0] == '0':
		d.refuse(n, path, "%s is not a whole number; write digits only, such as 1000", shown(s))
	case i > largest:
		d.refuse(n, path, "%d is too large; write at most %d", i, largest)
	default:
		return i
	}
	return 0
}

func (d *decoder) count(n *node, path string) int64 { return d.integer(n, path, math.MaxInt64) }

// boolean reads true or false and none of their other spellings.
func (d *decoder) boolean(n *node, path string) bool {
	s, ok := d.scalar(n, path, "true or false", "true or false")
	if ok && n.masked == nil && (!n.plain || s != "true" && s != "false") {
		d.refuse(n, path, "%s where true or false is meant; write one of them, without quotes", shown(s))
	}
	return s == "true"
}

// measure reads a text with a unit.
func measure[T any](d *decoder, n *node, path, example string, parse func(string) (T, error)) T {
	var zero T
	s, ok := d.scalar(n, path, "a text", example)
	if !ok || n.masked != nil {
		d.spoiled[path] = true
		return zero
	}
	v, err := parse(s)
	if err != nil {
		d.refuse(n, path, "%v", err)
		return zero
	}
	return v
}

func (d *decoder) duration(n *node, path string) Duration {
	return measure(d, n, path, "a duration such as 15m", ParseDuration)
}

func (d *decoder) size(n *node, path string) Size {
	return measure(d, n, path, "a size such as 64MiB", ParseSize)
}

func (d *decoder) percent(n *node, path string) Percent {
	return measure(d, n, path, "a percentage such as 20%", ParsePercent)
}

// choice reads one of a few words.
func (d *decoder) choice(n *node, path string, later []string, words ...string) string {
	all := strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	s, ok := d.scalar(n, path, "a word", all)
	switch {
	case !ok || slices.Contains(words, s):
		return s
	case n.masked != nil:
		d.spoiled[path] = true
	case slices.Contains(later, s):
		d.refuse(n, path, "%s is not supported by this version; write %s", s, all)
	case nearest(s, words) != "":
		d.refuse(n, path, "unknown word %s; did you mean %q?", shown(s), nearest(s, words))
	default:
		d.refuse(n, path, "unknown word %s; write %s", shown(s), all)
	}
	return ""
}

// listPath is the list that an entry's path belongs to, or the path itself.
func listPath(path string) string {
	if strings.HasSuffix(path, "]") {
		return parentPath(path)
	}
	return path
}

// quoted writes a text as YAML reads it back.
func quoted(text string) string {
	if strings.ContainsAny(text, `"\`) {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return `"` + text + `"`
}
