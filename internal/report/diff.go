package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// Diff is what changed from one report to a later one of the same target.
type Diff struct {
	Job      string        `json:"job,omitempty"`
	Target   string        `json:"target"`
	Old      DiffSide      `json:"old"`
	New      DiffSide      `json:"new"`
	Prefixes []GroupChange `json:"prefixes"` // those that changed, by how much
	Types    []GroupChange `json:"types"`
	Findings FindingDiff   `json:"findings"`
	Notes    []string      `json:"notes"`
}

// DiffSide is the totals of one of the two reports.
type DiffSide struct {
	Started      time.Time `json:"started"`
	Complete     bool      `json:"complete"`
	KeysScanned  int64     `json:"keys_scanned"`
	KeysMatched  int64     `json:"keys_matched"`
	BytesMatched int64     `json:"bytes_matched"`
}

// Change is a number in both reports.
type Change struct {
	Old int64 `json:"old"`
	New int64 `json:"new"`
}

func (c Change) by() int64 { return c.New - c.Old }

// GroupChange is one prefix or type in both reports.
type GroupChange struct {
	Prefix string `json:"prefix,omitempty"`
	Type   string `json:"type,omitempty"`
	Keys   Change `json:"keys"`
	Bytes  Change `json:"bytes"`
}

// FindingDiff is the keys that only one of the reports lists, and those that
// both list with different sizes. The new report's value is the finding's.
type FindingDiff struct {
	New    []FindingChange `json:"new"`
	Gone   []FindingChange `json:"gone"`
	Grown  []FindingChange `json:"grown"`
	Shrunk []FindingChange `json:"shrunk"`
}

// FindingChange is one key in one of the reports or in both. OldBytes and
// OldElements are nil where the old report does not list it or does not know.
type FindingChange struct {
	jobs.Finding
	OldBytes    *int64
	OldElements *int64
}

// MarshalJSON writes the finding with what it was before.
func (c FindingChange) MarshalJSON() ([]byte, error) {
	was := struct {
		OldBytes    *int64 `json:"old_bytes,omitempty"`
		OldElements *int64 `json:"old_elements,omitempty"`
	}{c.OldBytes, c.OldElements}
	// A finding writes itself, and so would be all that is written.
	now, err := json.Marshal(c.Finding)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(was)
	if err != nil || string(before) == "{}" {
		return now, err
	}
	return append(append(now[:len(now)-1], ','), before[1:]...), nil
}

// by is how much the key grew: in bytes where both are known and differ, else
// in elements.
func (c FindingChange) by() (bytes, elements int64) {
	if c.Bytes != nil && c.OldBytes != nil {
		bytes = *c.Bytes - *c.OldBytes
	}
	if c.Elements != nil && c.OldElements != nil {
		elements = *c.Elements - *c.OldElements
	}
	return bytes, elements
}

// Compare tells what changed between the runs of two reports, job by job.
// Lists are cut to the top largest changes.
func Compare(before, after *File, top int) []Diff {
	var all []Diff
	left := slices.Clone(before.Runs)
	for _, s := range after.Runs {
		i := slices.IndexFunc(left, func(o *jobs.Summary) bool { return o.Job == s.Job && o.Target == s.Target })
		if i < 0 { // a target may have got another name
			i = slices.IndexFunc(left, func(o *jobs.Summary) bool { return o.Job == s.Job })
		}
		if i < 0 {
			d := Diff{Job: s.Job, Target: s.Target, New: sideOf(s), Notes: []string{"only the new report has this run"}}
			all = append(all, d.withLists())
			continue
		}
		all = append(all, compare(left[i], s, top))
		left = slices.Delete(left, i, i+1)
	}
	for _, o := range left {
		d := Diff{Job: o.Job, Target: o.Target, Old: sideOf(o), Notes: []string{"only the old report has this run"}}
		all = append(all, d.withLists())
	}
	return all
}

func sideOf(s *jobs.Summary) DiffSide {
	return DiffSide{s.Started, s.Complete, s.KeysScanned, s.KeysMatched, s.BytesMatched}
}

func (d Diff) withLists() Diff {
	d.Prefixes, d.Types, d.Notes = list(d.Prefixes), list(d.Types), list(d.Notes)
	f := &d.Findings
	f.New, f.Gone, f.Grown, f.Shrunk = list(f.New), list(f.Gone), list(f.Grown), list(f.Shrunk)
	return d
}

func compare(o, n *jobs.Summary, top int) Diff {
	d := Diff{Job: n.Job, Target: n.Target, Old: sideOf(o), New: sideOf(n)}
	note := func(when bool, format string, args ...any) {
		if when {
			d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
		}
	}
	note(o.Target != n.Target, "the old report is of %s, the new one of %s", o.Target, n.Target)
	note(o.Mode != n.Mode, "the old report is of mode %s, the new one of mode %s: they may have looked for different keys", o.Mode, n.Mode)
	note(n.Started.Before(o.Started), "the old report was made after the new one")
	note(!o.Complete, "the old report is not complete: what seems to have come may have been there")
	note(!n.Complete, "the new report is not complete: what seems to be gone may be there")
	d.Prefixes = groupChanges(o.Prefixes, n.Prefixes, top)
	d.Types = groupChanges(o.Types, n.Types, top)
	d.Findings = findingChanges(o, n, top)
	cut := func(s *jobs.Summary) bool { return int64(len(s.Findings)) < s.KeysMatched }
	note(cut(o) && len(d.Findings.New) > 0, "the old report lists %d of its %s: a key that is new here may have been there, smaller", len(o.Findings), plural(o.KeysMatched, "key"))
	note(cut(n) && len(d.Findings.Gone) > 0, "the new report lists %d of its %s: a key that is gone here may be there, smaller", len(n.Findings), plural(n.KeysMatched, "key"))
	return d.withLists()
}

func groupChanges(o, n []jobs.Group, top int) []GroupChange {
	rows := map[[2]string]*GroupChange{}
	row := func(g jobs.Group) *GroupChange {
		id := [2]string{g.Prefix, g.Type}
		if rows[id] == nil {
			rows[id] = &GroupChange{Prefix: g.Prefix, Type: g.Type}
		}
		return rows[id]
	}
	for _, g := range o {
		r := row(g)
		r.Keys.Old, r.Bytes.Old = r.Keys.Old+g.Keys, r.Bytes.Old+g.Bytes
	}
	for _, g := range n {
		r := row(g)
		r.Keys.New, r.Bytes.New = r.Keys.New+g.Keys, r.Bytes.New+g.Bytes
	}
	var all []GroupChange
	for _, r := range rows {
		if r.Keys.by() != 0 || r.Bytes.by() != 0 {
			all = append(all, *r)
		}
	}
	slices.SortFunc(all, func(a, b GroupChange) int {
		return cmp.Or(-cmp.Compare(abs(a.Bytes.by()), abs(b.Bytes.by())), -cmp.Compare(abs(a.Keys.by()), abs(b.Keys.by())),
			cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.Type, b.Type))
	})
	return all[:min(len(all), top)]
}

func abs(n int64) int64 { return max(n, -n) }

// findingChanges compares what the two reports list, each by bytes and by
// elements.
func findingChanges(o, n *jobs.Summary, top int) FindingDiff {
	before, after := listed(o), listed(n)
	byName := map[string]string{} // the place of an old key; "" if it has several
	for id, f := range before {
		name := fmt.Sprint(f.DB, " ", f.Name)
		if _, twice := byName[name]; twice {
			id = ""
		}
		byName[name] = id
	}
	var d FindingDiff
	for _, id := range slices.Sorted(maps.Keys(after)) {
		f := after[id]
		was, there := before[id]
		if !there { // it may have moved to another node
			id = byName[fmt.Sprint(f.DB, " ", f.Name)]
			if _, stayed := after[id]; !stayed {
				was, there = before[id]
			}
		}
		if !there {
			d.New = append(d.New, FindingChange{Finding: *f})
			continue
		}
		delete(before, id)
		c := FindingChange{*f, was.Bytes, was.Elements}
		switch bytes, elements := c.by(); {
		case bytes > 0 || bytes == 0 && elements > 0:
			d.Grown = append(d.Grown, c)
		case bytes < 0 || elements < 0:
			d.Shrunk = append(d.Shrunk, c)
		}
	}
	for _, f := range before {
		d.Gone = append(d.Gone, FindingChange{Finding: *f})
	}
	value := func(p *int64) int64 {
		if p == nil {
			return -1
		}
		return *p
	}
	bySize := func(a, b FindingChange) int {
		return cmp.Or(-cmp.Compare(value(a.Bytes), value(b.Bytes)), -cmp.Compare(value(a.Elements), value(b.Elements)), cmp.Compare(a.Name, b.Name))
	}
	byChange := func(a, b FindingChange) int {
		ab, ae := a.by()
		bb, be := b.by()
		return cmp.Or(-cmp.Compare(abs(ab), abs(bb)), -cmp.Compare(abs(ae), abs(be)), cmp.Compare(a.Name, b.Name))
	}
	for _, l := range []struct {
		list  *[]FindingChange
		order func(a, b FindingChange) int
	}{{&d.New, bySize}, {&d.Gone, bySize}, {&d.Grown, byChange}, {&d.Shrunk, byChange}} {
		slices.SortFunc(*l.list, l.order)
		*l.list = (*l.list)[:min(len(*l.list), top)]
	}
	return d
}

// listed is the keys that a report lists, each once.
func listed(s *jobs.Summary) map[string]*jobs.Finding {
	all := map[string]*jobs.Finding{}
	for _, fs := range [][]jobs.Finding{s.Findings, s.TopElements} {
		for i := range fs {
			f := &fs[i]
			all[strings.Join([]string{f.Shard, fmt.Sprint(f.DB), f.Nonce, f.Name}, "\x00")] = f
		}
	}
	return all
}

// WriteDiffs renders what changed, as a table or as JSON: one object, or
// {"diffs": […]} where several is set.
func WriteDiffs(w io.Writer, format string, diffs []Diff, several bool) error {
	switch {
	case format == JSON && !several && len(diffs) == 1:
		return writeJSON(w, diffs[0], "  ")
	case format == JSON:
		return writeJSON(w, struct {
			Diffs []Diff `json:"diffs"`
		}{list(diffs)}, "  ")
	case format != Table:
		return fmt.Errorf("format %q can't show what changed: use table or json", format)
	}
	out := bufio.NewWriter(w)
	for i := range diffs {
		if i > 0 {
			fmt.Fprintf(out, "\n%s\n\n", strings.Repeat("─", lineWidth))
		}
		diffTable(out, &diffs[i])
	}
	return out.Flush()
}

func diffTable(w io.Writer, d *Diff) {
	what := printable(d.Target)
	if d.Job != "" {
		what = "job " + printable(d.Job) + " on " + what
	}
	fmt.Fprintf(w, "Changes of %s\n\n", what)
	cols := []column{{title: ""}, {title: "OLD", right: true}, {title: "NEW", right: true}, {title: "CHANGE", right: true}}
	row := func(cells ...string) {
		for i := range cols {
			cols[i].cells = append(cols[i].cells, cells[i])
		}
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.UTC().Format("2006-01-02 15:04")
	}
	later := "-"
	if !d.Old.Started.IsZero() && !d.New.Started.IsZero() {
		later = signed(int64(d.New.Started.Sub(d.Old.Started)), func(n int64) string { return duration(time.Duration(n)) })
	}
	row("started (UTC)", at(d.Old.Started), at(d.New.Started), later)
	total := func(name string, o, n int64, words func(int64) string) {
		row(name, words(o), words(n), signed(n-o, words))
	}
	total("keys scanned", d.Old.KeysScanned, d.New.KeysScanned, humanize.Comma)
	total("keys matched", d.Old.KeysMatched, d.New.KeysMatched, humanize.Comma)
	total("their size", d.Old.BytesMatched, d.New.BytesMatched, size)
	grid(w, cols, nil)

	for _, g := range []struct {
		title string
		rows  []GroupChange
	}{{"TYPE", d.Types}, {"PREFIX", d.Prefixes}} {
		if len(g.rows) == 0 {
			continue
		}
		cols = []column{{title: "KEYS", right: true}, {title: "CHANGE", right: true}, {title: "SIZE", right: true}, {title: "CHANGE", right: true}, {title: g.title}}
		for _, r := range g.rows {
			name := printable(r.Type)
			if g.title == "PREFIX" {
				name = quoted(r.Prefix, keyWidth)
			}
			now, by := size(r.Bytes.New), signed(r.Bytes.by(), size)
			if r.Bytes == (Change{}) { // no key takes 0 bytes
				now, by = "-", "-"
			}
			row(humanize.Comma(r.Keys.New), signed(r.Keys.by(), humanize.Comma), now, by, name)
		}
		fmt.Fprintln(w)
		grid(w, cols, nil)
	}

	cols = []column{{title: ""}, {title: "SIZE", right: true}, {title: "CHANGE", right: true}, {title: "ELEMENTS", right: true}, {title: "CHANGE", right: true}, {title: "TYPE"}, {title: "KEY"}}
	for _, l := range []struct {
		word string
		list []FindingChange
	}{{"new", d.Findings.New}, {"grown", d.Findings.Grown}, {"shrunk", d.Findings.Shrunk}, {"gone", d.Findings.Gone}} {
		for _, c := range l.list {
			bytes, elements := c.by()
			row(l.word, known(c.Bytes, size), changed(c.Bytes, c.OldBytes, bytes, size),
				known(c.Elements, humanize.Comma), changed(c.Elements, c.OldElements, elements, humanize.Comma),
				text(c.Type), quoted(c.Name, keyWidth/2+4))
		}
	}
	fmt.Fprintln(w)
	if len(cols[0].cells) > 0 {
		grid(w, cols, nil)
	} else {
		fmt.Fprintln(w, "No key that the reports list came, went, grew or shrank.")
	}
	if len(d.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range d.Notes {
		item(w, "Note", n)
	}
}

func changed(now, before *int64, by int64, words func(int64) string) string {
	if now == nil || before == nil {
		return "-"
	}
	return signed(by, words)
}

func signed(n int64, words func(int64) string) string {
	switch {
	case n > 0:
		return "+" + words(n)
	case n < 0:
		return "-" + words(-n)
	}
	return "0"
}
