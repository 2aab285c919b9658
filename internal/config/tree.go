package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

type kind string

const (
	isNull   kind = "nothing"
	isText   kind = "a text"
	isList   kind = "a list"
	isMap    kind = "a map"
	isBroken kind = "broken" // a syntax error, reported already
)

// node is a value of the file with its place. Scalars keep the text that was
// written: what type it has depends on the key it stands under.
type node struct {
	place
	kind   kind
	text   string
	plain  bool  // without quotes
	masked *mask // plain and not YAML, reported already
	items  []*node
	fields []field
	// incomplete: a syntax error took some of the fields or items away.
	incomplete bool
}

type field struct {
	place
	key   string
	value *node
}

// tree converts the parser's nodes and gives masked texts back what they were.
type tree struct {
	offset   int // lines before the first one that was parsed
	masks    map[place]*mask
	problems []Problem
}

// parse reads lines as one YAML document, with nothing of it refused yet but
// syntax. It returns a problem if they are none.
func (t *tree) parse(lines [][]rune) (root *node, problem *Problem) {
	defer func() { // the parser has panicked on malformed input before
		if recover() != nil {
			root, problem = nil, &Problem{Line: t.offset + 1, Column: 1, Message: notYAML}
		}
	}()
	file, err := parser.ParseBytes(joinLines(lines), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, t.syntaxProblem(err)
	}
	t.problems = nil
	for _, doc := range file.Docs {
		if root != nil && (doc.Start != nil || doc.Body != nil) {
			p := Problem{Line: t.offset + 1, Column: 1, Message: "a second YAML document; write everything in one, without ---"}
			if doc.Start != nil {
				p.Line, p.Column = t.place(doc.Start).line, t.place(doc.Start).column
			}
			t.problems = append(t.problems, p)
			break
		}
		if doc.Body != nil {
			root = t.convert(doc.Body)
		}
	}
	if root == nil {
		root = &node{kind: isNull, place: place{t.offset + 1, 1}}
	}
	return root, nil
}

func (t *tree) place(tk *token.Token) place {
	if tk == nil || tk.Position == nil {
		return place{t.offset + 1, 1}
	}
	return place{tk.Position.Line + t.offset, max(tk.Position.Column, 1)}
}

func (t *tree) convert(n ast.Node) *node {
	out := &node{place: t.place(n.GetToken()), kind: isText}
	switch v := n.(type) {
	case *ast.NullNode:
		out.kind, out.plain = isNull, true
	case *ast.LiteralNode:
		out.text = v.Value.Value
	case *ast.StringNode:
		out.text, out.plain = v.Value, v.Token.Type == token.StringType
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		out.text, out.plain = n.GetToken().Value, true
	case *ast.MappingNode:
		out.kind = isMap
		for _, pair := range v.Values {
			t.pair(out, pair)
		}
		if !v.IsFlowStyle && len(out.fields) > 0 {
			out.place = out.fields[0].place
		}
	case *ast.MappingValueNode:
		out.kind = isMap
		t.pair(out, v)
		out.place = out.fields[0].place
	case *ast.SequenceNode:
		out.kind = isList
		for _, item := range v.Values {
			out.items = append(out.items, t.convert(item))
		}
	default: // anchors, aliases and tags were masked; this is a rare rest
		out.kind = isBroken
		t.problems = append(t.problems, Problem{Line: out.line, Column: out.column,
			Message: fmt.Sprintf("%s are not supported; write the value out", strings.ToLower(n.Type().YAMLName())+"s")})
	}
	if m := t.masks[out.place]; m != nil && out.kind == isText {
		out.text, out.plain = m.text, m.what == ""
		if m.what != "" {
			out.masked = m
		}
	}
	return out
}

func (t *tree) pair(out *node, pair *ast.MappingValueNode) {
	f := field{place: t.place(pair.Key.GetToken()), key: pair.Key.GetToken().Value, value: t.convert(pair.Value)}
	if key, ok := pair.Key.(*ast.MappingKeyNode); ok { // ? key
		f.place, f.key = t.place(key.Value.GetToken()), key.Value.GetToken().Value
	}
	if m := t.masks[f.place]; m != nil {
		f.key = m.text
	}
	if f.value.kind == isNull { // its own place is behind the colon
		f.value.place = f.place
	}
	out.fields = append(out.fields, f)
}

const notYAML = "not valid YAML; check the indentation, and put quotes around text with special characters"

// syntaxProblem says in our words what the parser says in its own. Its texts
// are not repeated: some quote the input, which may be a password.
func (t *tree) syntaxProblem(err error) *Problem {
	p := &Problem{Line: t.offset + 1, Column: 1, Message: notYAML}
	syntax, ok := err.(*yaml.SyntaxError)
	if !ok {
		return p
	}
	at := t.place(syntax.Token)
	p.Line, p.Column = at.line, at.column
	for _, known := range []struct{ says, message string }{
		{"mapping value is not allowed", `a second ": " in one line; put quotes around text that holds one`},
		{"',' or ']' must", "a list is not closed; write , or ] before this"},
		{"sequence end token", "a list is not closed; write ]"},
		{"',' or '}' must", "a map is not closed; write , or } before this"},
		{"mapping end token", "a map is not closed; write }"},
		{"could not find end character", "a quote is not closed; write it again at the end of the text"},
		{"escape", `an unknown \ escape in double quotes; write \\ for one \, or use single quotes`},
		{"non-map value", "a line without a key; write KEY: VALUE"},
		{"unexpected key name", "a line without a key; write KEY: VALUE"},
		{"corresponding to", "a bracket is closed that was not opened; put quotes around text that holds one"},
		{"block sequence entries", "a list entry behind a key; write it on a line of its own, or as KEY: [VALUE]"},
	} {
		if strings.Contains(syntax.Message, known.says) {
			p.Message = known.message
			break
		}
	}
	return p
}
