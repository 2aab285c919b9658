package config

import "strings"

// parseParts reads lines (offset lines into the file) as YAML. Where that
// fails it cuts them into the entries of the outermost level and reads each
// on its own, so that a syntax error costs the entry it stands in and not the
// other problems of the file.
func parseParts(lines [][]rune, offset int, masks map[place]*mask) (*node, []Problem) {
	t := &tree{offset: offset, masks: masks}
	root, problem := t.parse(lines)
	if problem == nil {
		return root, t.problems
	}
	broken := &node{kind: isBroken, place: place{problem.Line, problem.Column}, incomplete: true}
	starts := entryStarts(lines)
	if len(starts) > 1 {
		return mergeParts(lines, offset, masks, starts, broken, *problem)
	}
	if len(starts) == 0 {
		return broken, []Problem{*problem}
	}
	first := starts[0]
	line := lines[first]
	indent := indentOf(line)
	if beginsEntry(line, indent) {
		inner := cloneLines(lines[first:])
		inner[0][indent] = ' '
		item, problems := parseParts(inner, offset+first, masks)
		return &node{kind: isList, place: place{offset + first + 1, indent + 1}, items: []*node{item}}, problems
	}
	text, _, _ := strings.Cut(string(line), " #")
	key, header := strings.CutSuffix(strings.TrimSpace(text), ":")
	if !header || strings.ContainsAny(key, " \"'[]{},:#") || first+1 == len(lines) {
		return broken, []Problem{*problem}
	}
	value, problems := parseParts(lines[first+1:], offset+first+1, masks)
	at := place{offset + first + 1, indent + 1}
	return &node{kind: isMap, place: at, fields: []field{{place: at, key: key, value: value}}}, problems
}

// entryStarts are the lines at which the entries of the outermost level
// begin; none if the lines are indented in a way that tells no levels.
func entryStarts(lines [][]rune) []int {
	var starts []int
	level, dashed := -1, false
	for i, line := range lines {
		indent := indentOf(line)
		switch {
		case indent < 0 || level >= 0 && indent > level:
		case level >= 0 && indent < level:
			return nil
		case level < 0:
			level, dashed = indent, beginsEntry(line, indent)
			starts = append(starts, i)
		case dashed || !beginsEntry(line, indent): // a list may stand at the column of its key
			starts = append(starts, i)
		}
	}
	return starts
}

func mergeParts(lines [][]rune, offset int, masks map[place]*mask, starts []int, broken *node, whole Problem) (*node, []Problem) {
	var all []Problem
	out := &node{}
	for i, start := range starts {
		end := len(lines)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		part, problems := parseParts(lines[start:end], offset+start, masks)
		all = append(all, problems...)
		switch {
		case part.kind == isBroken || part.kind == isNull:
			out.incomplete = true
		case out.kind == "":
			part.incomplete = part.incomplete || out.incomplete
			out = part
		case out.kind == part.kind && out.kind != isText:
			out.items = append(out.items, part.items...)
			out.fields = append(out.fields, part.fields...)
			out.incomplete = out.incomplete || part.incomplete
		default:
			out.incomplete = true
		}
	}
	if out.kind == "" {
		out = broken
	}
	if len(all) == 0 { // each part is fine alone: it is how they stand together
		all = append(all, whole)
	}
	return out, all
}
