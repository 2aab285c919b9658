package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/keyjanitor/keyjanitor/jobs"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

const (
	pageKeyWidth = 96 // columns of a key's or prefix's name
	paperRows    = 100
)

// page is what the template shows. All its text is printable; that it is no
// markup is html/template's part.
type page struct {
	Title string
	Runs  []pageRun
	Tints []legend
}

type pageRun struct {
	Heading, When string
	Complete      bool
	Untouched     string // that nothing was changed
	Errors, Notes []string
	Figures       []figure
	Nothing       bool // matched
	Outcomes      []figure
	Holds         []string
	StoppedBy     string
	Map, TallMap  template.HTML // of prefixes, for wide screens and narrow ones
	Charts        []chart
	Findings      []pageTable
	Groups        []pageTable
	Shards        []pageTable
}

// figure is one number with what it counts.
type figure struct {
	Number, Of string
	Bad        bool
}

type legend struct{ Fill, Says string }

type chart struct {
	Title, Note string
	Bytes, Keys bool // what it has bars for
	SVG         template.HTML
}

type pageTable struct {
	Title, Note string
	Columns     []pageCell
	Rows        [][]pageCell
	OnPaper     string // said where not all of it is printed
}

type pageCell struct{ Text, Class, Below string }

// writePage renders runs as one HTML page, in one Write.
func writePage(w io.Writer, runs []*jobs.Summary) error {
	p := page{Title: "keyjanitor"}
	for _, t := range tints {
		p.Tints = append(p.Tints, legend{t.fill.String(), t.says})
	}
	for _, s := range runs {
		r, err := pageRunOf(s)
		if err != nil {
			return err
		}
		p.Runs = append(p.Runs, r)
	}
	if len(p.Runs) == 1 {
		p.Title = p.Runs[0].Heading + " · keyjanitor"
	}
	var buf bytes.Buffer
	if err := pageTemplate.Execute(&buf, p); err != nil {
		return err
	}
	_, err := w.Write(buf.Bytes())
	return err
}

func pageRunOf(s *jobs.Summary) (pageRun, error) {
	r := pageRun{Heading: heading(s), Complete: s.Complete, Errors: eachLines(failures(s)), Notes: eachLines(s.Notes), Nothing: s.KeysMatched == 0}
	if !s.Started.IsZero() {
		r.When = when(s)
	}
	if s.Mode == "report" {
		r.Untouched = nothingChanged
	}
	r.Figures = []figure{
		{Number: humanize.Comma(s.KeysScanned), Of: "keys scanned"},
		{Number: humanize.Comma(s.KeysMatched), Of: "matched"},
	}
	add := func(number, of string) { r.Figures = append(r.Figures, figure{Number: number, Of: of}) }
	if s.BytesMatched > 0 {
		add(size(s.BytesMatched), "size of these, about")
	}
	number, of, _ := strings.Cut(plural(int64(len(s.Shards)), "shard"), " ")
	add(number, of)
	if a := s.ActSummary; a != nil {
		if a.ElementsRemoved > 0 {
			add(humanize.Comma(a.ElementsRemoved), "elements removed")
		}
		if a.BytesReleased > 0 {
			add(size(a.BytesReleased), "released, about")
		}
		for _, words := range outcomeWords(&a.Outcomes) {
			number, of, _ := strings.Cut(words, " ")
			r.Outcomes = append(r.Outcomes, figure{number, of, of == "FAILED"})
		}
		for _, h := range longest(a.Holds) {
			r.Holds = append(r.Holds, duration(time.Duration(h.Seconds*float64(time.Second)))+": "+lines(h.Reason+" ("+cmp.Or(h.Addr, h.Shard)+")"))
		}
		if more := len(a.Holds) - shownHolds; more > 0 {
			r.Holds = append(r.Holds, fmt.Sprintf("%d more; JSON has them all", more))
		}
		r.StoppedBy = lines(a.StoppedBy)
	}
	if err := r.draw(s); err != nil {
		return r, err
	}
	r.tables(s)
	return r, nil
}

// lines is other people's text with its line breaks, else printable.
func lines(text string) string {
	parts := strings.Split(strings.TrimSpace(text), "\n")
	for i := range parts {
		parts[i] = printable(parts[i])
	}
	return strings.Join(parts, "\n")
}

func eachLines(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = lines(t)
	}
	return out
}

// draw makes the charts, of what there is more than one of.
func (r *pageRun) draw(s *jobs.Summary) (err error) {
	if len(cellsOf(s.Prefixes)) > 1 {
		if r.Map, err = treemap(s.Prefixes, 960, 300); err != nil {
			return err
		}
		if r.TallMap, err = treemap(s.Prefixes, 380, 420); err != nil {
			return err
		}
	}
	add := func(title, note string, rows []bar) {
		c := chart{Title: title, Note: note}
		for _, b := range rows {
			c.Bytes, c.Keys = c.Bytes || b.bytes > 0, c.Keys || b.keys > 0
		}
		if err == nil && len(rows) > 0 {
			c.SVG, err = bars(rows)
		}
		if c.SVG != "" {
			r.Charts = append(r.Charts, c)
		}
	}
	add("Size of a key", "", bandBars(s.Sizes))
	add("Time to live", "", bandBars(s.TTL))
	if len(s.Idle) > 0 {
		add("Not used for", "", bandBars(s.Idle))
	}
	if n := len(s.Shards); n > 1 {
		note := ""
		if n > fewBars {
			note = "the " + humanize.Comma(fewBars) + " with most, of " + humanize.Comma(int64(n))
		}
		add("Shards", note, shardBars(s.Shards))
	}
	return err
}

// tables makes the tables, those of findings first.
func (r *pageRun) tables(s *jobs.Summary) {
	found := func(title, note string, fs []jobs.Finding) {
		if len(fs) == 0 {
			return
		}
		t := pageTableOf(title, note, append([]column{keyColumn(fs, pageKeyWidth)}, findingColumns(s, fs)...))
		for i, f := range fs {
			t.Rows[i][0].Below = lines(f.Reason)
			t.mark(i, f.Outcome == "failed")
		}
		r.Findings = append(r.Findings, t)
	}
	note, all := "", s.KeysMatched <= int64(len(s.Findings))
	if !all {
		note = humanize.Comma(int64(len(s.Findings))) + " of " + humanize.Comma(s.KeysMatched) + " matched"
	}
	switch {
	case s.ActSummary != nil:
		found("Keys", note, s.Findings)
	case sorted(s.Findings, bytesOf):
		found("Largest keys", note, s.Findings)
		top := s.TopElements
		if len(top) == 0 && all {
			top = resorted(s.Findings, elementsOf)
		}
		top = top[:min(len(top), topElements)]
		if len(s.Findings) > 1 {
			found("Most elements", "", top)
		}
	default:
		found("Most elements", note, s.Findings)
		if !all {
			note = "of the keys above"
		}
		top := resorted(s.Findings, bytesOf)
		if len(s.Findings) > 1 {
			found("Largest keys", note, top[:min(len(top), topElements)])
		}
	}
	group := func(title, head string, gs []jobs.Group) {
		if len(gs) == 0 {
			return
		}
		cols := groupColumns(head, gs, pageKeyWidth)
		last := len(cols) - 1 // names first: there is room
		r.Groups = append(r.Groups, pageTableOf(title, "", append(cols[last:len(cols):len(cols)], cols[:last]...)))
	}
	group("Prefixes", "PREFIX", s.Prefixes)
	group("Types", "TYPE", s.Types)
	group("Sizes of keys", "SIZE OF A KEY", s.Sizes)
	group("Time to live", "TTL", s.TTL)
	group("Not used for", "NOT USED FOR", s.Idle)
	if len(s.Shards) > 0 {
		t := pageTableOf("Shards", "", pageShardColumns(s.Shards))
		for i, sh := range s.Shards {
			t.mark(i, sh.Error != "")
		}
		r.Shards = append(r.Shards, t)
	}
}

func pageShardColumns(all []jobs.ShardSummary) []column {
	cols := shardColumns(all)
	matched, bytes := column{title: "MATCHED", right: true}, column{title: "SIZE OF MATCHED", right: true}
	state := column{title: "STATE"}
	for _, sh := range all {
		matched.cells = append(matched.cells, humanize.Comma(sh.KeysMatched))
		about := "-"
		if sh.BytesMatched > 0 {
			about = size(sh.BytesMatched)
		}
		bytes.cells = append(bytes.cells, about)
		word := "done"
		if sh.Error != "" {
			word = "failed"
		}
		state.cells = append(state.cells, word)
	}
	return append(cols, matched, bytes, state)
}

func pageTableOf(title, note string, cols []column) pageTable {
	t := pageTable{Title: title, Note: note}
	for _, c := range cols {
		class := ""
		switch {
		case c.right:
			class = "n"
		case c.name:
			class = "k"
		}
		t.Columns = append(t.Columns, pageCell{Text: c.title, Class: class})
	}
	for row := range cols[0].cells {
		cells := make([]pageCell, len(cols))
		for i, c := range cols {
			cells[i] = pageCell{Text: c.cells[row], Class: t.Columns[i].Class}
		}
		t.Rows = append(t.Rows, cells)
	}
	if len(t.Rows) > paperRows {
		t.OnPaper = fmt.Sprintf("On paper: the first %d of %s rows.", paperRows, humanize.Comma(int64(len(t.Rows))))
	}
	return t
}

// mark sets a row apart that needs a person's eye.
func (t *pageTable) mark(row int, bad bool) {
	for i := range t.Rows[row] {
		if bad {
			t.Rows[row][i].Class += " bad"
		}
	}
}

func bytesOf(f *jobs.Finding) *int64    { return f.Bytes }
func elementsOf(f *jobs.Finding) *int64 { return f.Elements }

// falling compares by what of gives, the largest first and the unknown last.
func falling(of func(*jobs.Finding) *int64) func(a, b jobs.Finding) int {
	value := func(f *jobs.Finding) int64 {
		if n := of(f); n != nil {
			return *n
		}
		return -1
	}
	return func(a, b jobs.Finding) int { return -cmp.Compare(value(&a), value(&b)) }
}

func sorted(fs []jobs.Finding, of func(*jobs.Finding) *int64) bool {
	return slices.IsSortedFunc(fs, falling(of))
}

// resorted is those of which the value is known, the largest first.
func resorted(fs []jobs.Finding, of func(*jobs.Finding) *int64) []jobs.Finding {
	out := slices.DeleteFunc(slices.Clone(fs), func(f jobs.Finding) bool { return of(&f) == nil })
	slices.SortStableFunc(out, falling(of))
	return out
}
