package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// skeleton is the elements and attributes of a page or a chart, and its text.
// What numbers and charts are like is left out: only what data could become.
func skeleton(t *testing.T, page []byte) (elements map[string]int, text string) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	elements = map[string]int{}
	var all strings.Builder
	for n := range root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			name := "<" + n.Data
			for _, a := range n.Attr {
				name += " " + a.Key
			}
			elements[name]++
		case html.CommentNode:
			t.Errorf("a comment: %q", n.Data)
		case html.TextNode:
			if n.Parent.Data != "style" {
				all.WriteString(n.Data)
			}
		}
	}
	return elements, all.String()
}

var evil = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</style><b>", "</svg><i>", "--><b>", "{{.Title}}", "&lt;b&gt;&amp;",
	"javascript:alert(1)", "']]>", "\u200b\u200d\u2028\u2066zero", "a\u0000b", "\xed\xa0\x80", "\ufffe\uffff", "url(http://x)",
}

// spoiled puts hostile text wherever a summary has any.
func spoiled(n int) *jobs.Summary {
	words := slices.Concat(hostile, evil)
	word := func(i int) string { return words[i%len(words)] }
	s := cluster("execute", n)
	s.Target, s.Job, s.Error = word(12), word(21), strings.Join(words, "\n")
	s.StoppedBy, s.Notes = word(22), nil
	s.Types, s.Prefixes, s.TTL, s.Sizes, s.Shards = nil, nil, nil, nil, nil
	for i := range s.Findings {
		f := &s.Findings[i]
		f.Name, f.Reason, f.Type, f.Outcome, f.Method, f.State = word(i), word(i+1), word(i+2), word(i+3), word(i+4), word(i+5)
	}
	for i, w := range words {
		bytes := int64(1) << (20 + i%8)
		s.Notes = append(s.Notes, w)
		s.Types = append(s.Types, jobs.Group{Type: w, Keys: 1, Bytes: bytes})
		s.Prefixes = append(s.Prefixes, jobs.Group{Prefix: w, Keys: 1, Bytes: bytes})
		s.TTL = append(s.TTL, jobs.Group{Band: w, Keys: 1, Bytes: bytes})
		s.Sizes = append(s.Sizes, jobs.Group{Band: w, Keys: 1, Bytes: bytes})
		s.Idle = append(s.Idle, jobs.Group{Band: w, Keys: 1, Bytes: bytes})
		s.Holds = append(s.Holds, jobs.Hold{Reason: w, Seconds: 1})
		s.Shards = append(s.Shards, jobs.ShardSummary{ID: w, Addr: w, Server: w, Role: w, Error: w, BytesMatched: bytes})
	}
	long := strings.Repeat("\u202e<b>", 1<<18) // only names of keys can be long
	s.Findings[0].Name = long
	s.Prefixes = append(s.Prefixes, jobs.Group{Prefix: long, Keys: 1, Bytes: 1 << 27})
	return s
}

// Whatever text a report holds, the page has the same elements and attributes
// as one with harmless text in its place.
func TestNoTextBecomesMarkup(t *testing.T) {
	page := render(t, HTML, []*jobs.Summary{spoiled(60), spoiled(3)})
	elements, text := skeleton(t, page)
	for name := range elements {
		known := regexp.MustCompile(`^<(html lang|head|meta( (charset|name|content|http-equiv))+|title|style|body|nav aria-label|main|` +
			`article id|header|h1|h2|small|span class|p class|p|strong|ul|li|a href|dl|dt|dd|bdi|section( class)?|figure|figcaption|i class|` +
			`div( class)?( role aria-label)?|div class tabindex role aria-label|svg xmlns xlink viewbox|path d style|text x y style|` +
			`table|thead|tbody|tr|th scope( class)?|td( class)?|footer)$`)
		// The parser corrects the case of viewBox.
		if !known.MatchString(strings.ToLower(name)) {
			t.Errorf("the page has %s", name)
		}
	}
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%U in the text", r)
		}
	}
	for _, w := range []string{"<script>alert(1)</script>", `onerror=alert(1)`, "{{.Title}}", "&lt;b&gt;&amp;"} {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not shown as it is", w)
		}
	}
	if len(page) > 2<<20 {
		t.Errorf("names of a megabyte make a page of %d bytes", len(page))
	}
}

// A page needs nothing but itself.
func TestPageIsAlone(t *testing.T) {
	page := string(render(t, HTML, []*jobs.Summary{cluster("execute", 20), scan(1)}))
	outside := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|@import|url\(|\ssrc=|href="[^#]`)
	if found := outside.FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
	if hosts := regexp.MustCompile(`https?://[^"]*`).FindAllString(page, -1); slices.ContainsFunc(hosts, func(u string) bool {
		return !strings.HasPrefix(u, "http://www.w3.org/") // names of SVG's namespaces
	}) {
		t.Errorf("the page names %q", hosts)
	}
}

// Of nothing, of one, of many: every page is whole, and every chart in it is
// XML. What is not known is a dash.
func TestPageOfAnySize(t *testing.T) {
	empty := &jobs.Summary{}
	many := scan(1)
	for i := range 5000 {
		many.Findings = append(many.Findings, jobs.Finding{Name: fmt.Sprint("k:", i), Shard: fmt.Sprint(i % 800), Bytes: ptr(int64(5000 - i))})
		many.Prefixes = append(many.Prefixes, jobs.Group{Prefix: fmt.Sprint("p", i%1000), Keys: int64(i), Bytes: int64(i)})
		many.Shards = append(many.Shards, jobs.ShardSummary{ID: fmt.Sprint(i), BytesMatched: int64(i)})
	}
	huge := scan(20)
	huge.Prefixes = append(huge.Prefixes, jobs.Group{Prefix: "x", Keys: math.MaxInt64, Bytes: math.MaxInt64}, jobs.Group{Prefix: "y", Bytes: math.MaxInt64})
	svg := regexp.MustCompile(`(?s)<svg.*?</svg>`)
	for name, s := range map[string]*jobs.Summary{
		"empty": empty, "0": scan(0), "1": scan(1), "20": scan(20), "many": many, "huge": huge, "report": cluster("report", 4), "spoiled": spoiled(9),
	} {
		page := render(t, HTML, []*jobs.Summary{s})
		if elements, _ := skeleton(t, page); elements["<footer"] != 1 || !bytes.HasSuffix(page, []byte("</html>\n")) {
			t.Errorf("%s: the page is not whole", name)
		}
		for _, chart := range svg.FindAll(page, -1) {
			d := xml.NewDecoder(bytes.NewReader(chart))
			for {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: a chart is no XML: %v\n%.500s", name, err, chart)
				}
			}
			if bytes.Contains(chart, []byte("NaN")) || bytes.Contains(chart, []byte("-92233720")) {
				t.Errorf("%s: a chart has no place for a number: %.500s", name, chart)
			}
		}
	}
}

// What a page is about stands in it: errors, notes, whether it is complete,
// and that a report has changed nothing.
func TestPageSays(t *testing.T) {
	_, text := skeleton(t, render(t, HTML, []*jobs.Summary{cluster("execute", 20), cluster("report", 4)}))
	for _, want := range []string{
		"Run of job old-messages on msg", "NOT COMPLETE", "i/o timeout\nsecond line", "Stopped by a limit", "limits.time: 2h", "10,000 groups were kept",
		"Nothing was changed: this is what the run would do.", "3,500,000", "187 MiB", "would drain", "FAILED", "Grant it: ACL SETUSER janitor +renamenx",
		"replica 10.0.0.2:6379 is 6s behind", "valkey 8.0.1", "20 of 1,020 matched",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	_, text = skeleton(t, render(t, HTML, []*jobs.Summary{scan(0)}))
	if !strings.Contains(text, "No key matched.") {
		t.Error("a page of no keys does not say so")
	}
	byElements := scan(5)
	byElements.Findings[4].Bytes = ptr(int64(1 << 40)) // the list is in the order of elements
	_, text = skeleton(t, render(t, HTML, []*jobs.Summary{byElements}))
	if most, large := strings.Index(text, "Most elements"), strings.Index(text, "Largest keys"); most < 0 || large < most {
		t.Error("a list in the order of elements is not called so")
	}
}

// The style sheet knows each colour of the charts, for dark screens.
func TestColoursHaveADarkSide(t *testing.T) {
	all := []string{"fill:" + inkColor.String(), "stroke:" + lineColor.String(), "fill:" + bytesColor.String(), "fill:" + keysColor.String()}
	for _, tint := range tints {
		all = append(all, "fill:"+tint.fill.String(), "fill:"+tint.text.String())
	}
	for _, c := range all {
		if !strings.Contains(pageSource, `[style*="`+c+`"]`) {
			t.Errorf("no rule for %s", c)
		}
	}
}

// The cells fill the rectangle, do not overlap, and have the areas that their
// values ask for.
func TestSquarify(t *testing.T) {
	for _, values := range [][]float64{{1}, {6, 6, 4, 3, 2, 2, 1}, {1, 1, 1, 1}, {1e12, 1, 1}, {math.MaxInt64, math.MaxInt64}, {1, 5}} {
		total, r := 0.0, rect{0, 0, 600, 400}
		for _, v := range values {
			total += v
		}
		cells := squarify(values, r)
		if len(cells) != len(values) {
			t.Fatalf("%v: %d cells", values, len(cells))
		}
		for i, c := range cells {
			if want := values[i] / total * r.w * r.h; math.Abs(c.w*c.h-want) > 1e-6*r.w*r.h {
				t.Errorf("%v: area %d is %g, want %g", values, i, c.w*c.h, want)
			}
			if c.x < -1e-6 || c.y < -1e-6 || c.x+c.w > r.w+1e-6 || c.y+c.h > r.h+1e-6 {
				t.Errorf("%v: cell %d is outside: %+v", values, i, c)
			}
			for j, d := range cells[:i] {
				if min(c.x+c.w, d.x+d.w)-max(c.x, d.x) > 1e-6 && min(c.y+c.h, d.y+d.h)-max(c.y, d.y) > 1e-6 {
					t.Errorf("%v: cells %d and %d overlap", values, i, j)
				}
			}
		}
	}
	// The example of the paper: no cell is longer than three times its width.
	for _, c := range squarify([]float64{6, 6, 4, 3, 2, 2, 1}, rect{0, 0, 600, 400}) {
		if ratio := max(c.w/c.h, c.h/c.w); ratio > 3 {
			t.Errorf("a cell of %g by %g", c.w, c.h)
		}
	}
}

func TestCellsOf(t *testing.T) {
	var groups []jobs.Group
	for i := range 40 {
		groups = append(groups, jobs.Group{Prefix: fmt.Sprint(i), Keys: 1, Bytes: int64(1000 - i)})
	}
	groups = append(groups, jobs.Group{Prefix: "none", Keys: 9})
	cells := cellsOf(groups)
	if len(cells) != maxCells+1 || cells[0].Prefix != "0" || cells[maxCells].Type != "16 more" || cells[maxCells].Keys != 16 {
		t.Errorf("cells %+v", cells)
	}
	if got := cellsOf([]jobs.Group{{Prefix: "a"}}); len(got) != 0 {
		t.Errorf("of no bytes: %+v", got)
	}
}
