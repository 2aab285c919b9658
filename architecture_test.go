package keyjanitor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/keyjanitor/keyjanitor"

// anything may import whatever of ours it likes.
var anything = []string{"*"}

// mayImport is the map of the house: each folder with Go files, and what of
// ours it may import, tests included. An arrow that is not here is refused,
// and so is a folder.
var mayImport = map[string][]string{
	".":                 {},
	"scanner":           {},
	"deleter":           {},
	"throttle":          {},
	"internal/config":   {},
	"internal/topology": {"internal/config"},
	"jobs":              {"scanner", "deleter", "throttle", "internal/topology", "internal/config"},
	"internal/audit":    {"jobs"},
	"internal/report":   {"jobs"},
	"internal/web":      {"jobs"},
	"cmd/keyjanitor":    anything,
	"integration":       anything,
	"bench":             anything,
}

func TestImportsFollowTheMap(t *testing.T) {
	eachGoFile(t, func(name string, fset *token.FileSet, file *ast.File) {
		dir := path.Dir(name)
		allowed, known := mayImport[dir]
		if !known {
			t.Errorf("%s: folder %s is not in the map of this test", name, dir)
			return
		}
		if dir == "integration" && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s: integration holds test code only", name)
		}
		for _, spec := range file.Imports {
			imported := text(spec.Path)
			ours, ok := strings.CutPrefix(imported, module+"/")
			if !ok && imported != module {
				continue
			}
			if ours != dir && !slices.Contains(allowed, ours) && !slices.Equal(allowed, anything) {
				t.Errorf("%s: %s may not import %s", fset.Position(spec.Pos()), dir, ours)
			}
		}
	})
}

func TestNoForbiddenCommand(t *testing.T) {
	eachGoFile(t, func(name string, fset *token.FileSet, file *ast.File) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, at := range forbidden(file) {
			t.Errorf("%s: FLUSHDB, FLUSHALL, KEYS, CONFIG SET and SCRIPT KILL have no place in this program", fset.Position(at))
		}
	})
}

// The search has to find what it is for, and only that.
func TestForbiddenIsFound(t *testing.T) {
	for snippet, want := range map[string]int{
		`c.FlushAll(ctx)`:                                     1,
		`c.FlushDBAsync(ctx)`:                                 1,
		`c.Keys(ctx, "*")`:                                    1,
		`pipe.ConfigSet(ctx, "maxmemory", "0")`:               1,
		`c.ScriptKill(ctx)`:                                   1,
		`c.Do(ctx, "keys", "*")`:                              1,
		`c.Do(ctx, "CONFIG", "SET", "a", "b")`:                1,
		`c.Process(ctx, redis.NewCmd(ctx, "SCRIPT", "kill"))`: 1,
		`redis.NewStatusCmd(ctx, "FlushDb")`:                  1,
		`run([]any{"KEYS", "*"})`:                             1,
		`run([]string{"config", "set"})`:                      1,
		`const name = "flushall"`:                             1,
		"const lua = `return redis.call('KEYS', '*')`":        1,
		`c.Do(ctx, "CONFIG", "GET", "maxmemory")`:             0,
		`c.Do(ctx, "SCAN", 0, "MATCH", "keys")`:               0,
		`log.Info("done", "keys", 3)`:                         0,
		`maps.Keys(m)`:                                        0,
		`title("KEYS")`:                                       0,
		"type row struct { Keys int `json:\"keys\"` }":        0,
	} {
		source := "package p\nimport \"maps\"\n" + snippet
		if !strings.HasPrefix(snippet, "const") && !strings.HasPrefix(snippet, "type") {
			source = "package p\nimport \"maps\"\nfunc f() { " + snippet + " }"
		}
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := forbidden(file); len(got) != want {
			t.Errorf("%s: found %d times, want %d", snippet, len(got), want)
		}
	}
}

var (
	forbiddenMethods = []string{
		"FlushDB", "FlushDBAsync", "FlushAll", "FlushAllAsync", "Keys", "ConfigSet", "ScriptKill",
	}
	sendsCommand = regexp.MustCompile(`^(Do|DoContext|Process|Send|Call|Args|New\w*Cmd)$`)
	inScript     = regexp.MustCompile(`(?i)redis\.p?call\(\s*['"](flushdb|flushall|keys|config['"]\s*,\s*['"]set|script['"]\s*,\s*['"]kill)['"]`)
)

// forbidden returns where a file calls a client's method for, or spells out,
// a command that this program must never send. KEYS and SET are words as
// well, so they count only where a command is put together: in a call that
// sends one or at the head of a list of arguments.
func forbidden(file *ast.File) []token.Pos {
	packages := map[string]bool{}
	for _, spec := range file.Imports {
		name := path.Base(text(spec.Path))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		packages[name] = true
	}
	var found []token.Pos
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			word := strings.ToUpper(text(n))
			if word == "FLUSHDB" || word == "FLUSHALL" || inScript.MatchString(text(n)) {
				found = append(found, n.Pos())
			}
		case *ast.CallExpr:
			name := ""
			switch fun := n.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				name = fun.Sel.Name
				from, isName := fun.X.(*ast.Ident)
				if slices.Contains(forbiddenMethods, name) && !(isName && packages[from.Name]) {
					found = append(found, fun.Sel.Pos())
				}
			}
			if sendsCommand.MatchString(name) && forbiddenWords(n.Args) {
				found = append(found, n.Pos())
			}
		case *ast.CompositeLit:
			if _, isList := n.Type.(*ast.ArrayType); isList && forbiddenWords(n.Elts) {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// forbiddenWords looks at the first words of a command: the first literals
// of a list, whatever (a context) stands before them.
func forbiddenWords(args []ast.Expr) bool {
	first := slices.IndexFunc(args, func(e ast.Expr) bool { return literal(e) != "" })
	if first < 0 {
		return false
	}
	words := literal(args[first])
	if first+1 < len(args) {
		words += " " + literal(args[first+1])
	}
	head, rest, _ := strings.Cut(words, " ")
	second, _, _ := strings.Cut(rest, " ")
	return head == "KEYS" || head == "CONFIG" && second == "SET" || head == "SCRIPT" && second == "KILL"
}

func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	return strings.ToUpper(text(lit))
}

// text returns what a string literal says, "" for other literals.
func text(lit *ast.BasicLit) string {
	if lit.Kind != token.STRING {
		return ""
	}
	s, _ := strconv.Unquote(lit.Value) // the parser has accepted it
	return s
}

func eachGoFile(t *testing.T, fn func(name string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (base[0] == '.' || base == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		seen++
		fn(filepath.ToSlash(name), fset, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 2 { // this file and at least one it is about
		t.Fatal("no Go files found: is the test run from the module's root?")
	}
}
