package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/keyjanitor/keyjanitor/jobs"
)

const (
	lineWidth   = 100 // columns of the terminal that it is made for
	keyWidth    = 60  // where other columns leave that much
	keyNarrow   = 20  // where they do not, the line gets longer
	hostWidth   = 28
	nodeWidth   = 21 // 255.255.255.255:65535
	manyShards  = 20 // more are summarised
	topPrefixes = 15
	topElements = 20
)

// table writes one run for a person. Errors of w are the caller's to see: it
// hands in a buffered writer.
func table(w io.Writer, s *jobs.Summary) {
	fmt.Fprintln(w, headline(s))
	fmt.Fprintln(w, counts(s))
	shards(w, s.Shards)
	findings(w, s)
	groups(w, "TYPE", s.Types, len(s.Types))
	groups(w, "PREFIX", s.Prefixes, topPrefixes)
	groups(w, "TTL", s.TTL, len(s.TTL))
	groups(w, "SIZE OF A KEY", s.Sizes, len(s.Sizes))
	groups(w, "NOT USED FOR", s.Idle, len(s.Idle))
	if s.ActSummary != nil {
		acts(w, s.ActSummary)
	}
	remarks(w, s)
}

// headline says what was run, on what, and whether to believe it is whole.
func headline(s *jobs.Summary) string {
	state := "complete"
	if !s.Complete {
		state = "NOT COMPLETE"
	}
	line := heading(s) + ": " + state
	if !s.Started.IsZero() {
		line += ", " + when(s)
	}
	if s.Mode == "report" {
		line += "\n" + nothingChanged
	}
	return line
}

const nothingChanged = "Nothing was changed: this is what the run would do."

// heading says what was run, on what.
func heading(s *jobs.Summary) string {
	what := map[string]string{"scan": "Scan", "report": "Report", "execute": "Run"}[s.Mode]
	if what == "" {
		what = s.Mode
	}
	if s.Job != "" {
		what += " of job " + s.Job
	}
	return fmt.Sprintf("%s on %s", printable(what), printable(s.Target))
}

func when(s *jobs.Summary) string {
	return fmt.Sprintf("took %s, started %s", duration(s.Finished.Sub(s.Started)), s.Started.Format("2006-01-02 15:04:05 MST"))
}

func counts(s *jobs.Summary) string {
	line := fmt.Sprintf("%s scanned on %s, %s matched", plural(s.KeysScanned, "key"),
		plural(int64(len(s.Shards)), "shard"), humanize.Comma(s.KeysMatched))
	if s.BytesMatched > 0 {
		line += ", about " + size(s.BytesMatched)
	}
	return line
}

func shards(w io.Writer, all []jobs.ShardSummary) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w)
	if len(all) > manyShards {
		totals := make([]int64, len(all))
		unfinished := 0
		for i, sh := range all {
			if sh.KeysTotal != nil {
				totals[i] = *sh.KeysTotal
			}
			if sh.Error != "" {
				unfinished++
			}
		}
		slices.Sort(totals)
		fmt.Fprintf(w, "Keys per shard: %s in the smallest, %s in the median, %s in the largest.\n",
			humanize.Comma(totals[0]), humanize.Comma(totals[len(totals)/2]), humanize.Comma(totals[len(totals)-1]))
		if unfinished > 0 {
			fmt.Fprintf(w, "%s failed: see below.\n", plural(int64(unfinished), "shard"))
		}
		return
	}
	cols := shardColumns(all)
	if slices.Equal(cols[0].cells, cols[1].cells) {
		cols = cols[1:]
	}
	grid(w, cols, nil)
}

func shardColumns(all []jobs.ShardSummary) []column {
	cols := make([]column, 6)
	for i, title := range []string{"SHARD", "ADDRESS", "DB", "SERVER", "KEYS", "SCANNED"} {
		cols[i] = column{title: title, right: i == 2 || i > 3}
	}
	for _, sh := range all {
		server := text(sh.Server)
		if sh.Role != "" && sh.Role != "master" && sh.Role != "primary" {
			server += ", " + printable(sh.Role)
		}
		for i, cell := range []string{
			host(sh.ID, hostWidth), host(sh.Addr, hostWidth), strconv.Itoa(sh.DB), server,
			known(sh.KeysTotal, humanize.Comma), humanize.Comma(sh.KeysScanned),
		} {
			cols[i].cells = append(cols[i].cells, cell)
		}
	}
	return cols
}

func findings(w io.Writer, s *jobs.Summary) {
	if len(s.Findings) == 0 {
		return
	}
	fmt.Fprintln(w)
	if s.KeysMatched > int64(len(s.Findings)) {
		fmt.Fprintf(w, "%s of %s matched:\n", humanize.Comma(int64(len(s.Findings))), humanize.Comma(s.KeysMatched))
		findingGrid(w, s, s.Findings)
		if len(s.TopElements) > 0 {
			top := s.TopElements[:min(topElements, len(s.TopElements))]
			fmt.Fprintf(w, "\nMost elements:\n")
			findingGrid(w, s, top)
		}
		return
	}
	findingGrid(w, s, s.Findings)
}

// findingGrid writes findings with the key as the last column: it is the only
// one whose width nobody can foresee.
func findingGrid(w io.Writer, s *jobs.Summary, fs []jobs.Finding) {
	cols := findingColumns(s, fs)
	room := lineWidth
	for _, c := range cols {
		room -= c.width() + len(gap)
	}
	cols = slices.DeleteFunc(cols, func(c column) bool {
		drop := c.optional && room < keyWidth/2
		if drop {
			room += c.width() + len(gap)
		}
		return drop
	})
	room = min(keyWidth, max(keyNarrow, room))

	grid(w, append(cols, keyColumn(fs, room)), func(row int) []string {
		lines := wrap(fs[row].Reason, lineWidth-6)
		for i := range lines {
			lines[i] = "      " + lines[i]
		}
		return lines
	})
}

func keyColumn(fs []jobs.Finding, width int) column {
	c := column{title: "KEY", name: true}
	for _, f := range fs {
		c.cells = append(c.cells, quoted(f.Name, width))
	}
	return c
}

// findingColumns is what there is to say of findings, besides the key.
func findingColumns(s *jobs.Summary, fs []jobs.Finding) []column {
	var (
		addrs    = map[string]string{}
		distinct = map[string]bool{}
		act      = s.ActSummary != nil
		slots    bool
		dbs      bool
		trash    bool
		removed  bool
	)
	for _, sh := range s.Shards {
		addrs[sh.ID] = sh.Addr
		distinct[sh.Addr] = true
	}
	for _, f := range fs {
		slots = slots || f.Slot != nil
		dbs = dbs || f.DB != 0
		trash = trash || f.State != ""
		// Of what is removed whole the elements say it.
		removed = removed || f.Removed > 0 && (f.Outcome == "trimmed" || f.Outcome == "failed")
	}
	node := func(f jobs.Finding) string {
		if addr := addrs[f.Shard]; addr != "" {
			return host(addr, nodeWidth)
		}
		return host(f.Shard, nodeWidth)
	}

	var cols []column
	add := func(when, right, optional bool, title string, cell func(jobs.Finding) string) {
		if !when {
			return
		}
		c := column{title: title, right: right, optional: optional}
		for _, f := range fs {
			c.cells = append(c.cells, cell(f))
		}
		cols = append(cols, c)
	}
	add(true, true, false, "SIZE", func(f jobs.Finding) string { return known(f.Bytes, size) })
	add(true, true, false, "ELEMENTS", func(f jobs.Finding) string { return known(f.Elements, humanize.Comma) })
	add(true, false, false, "TYPE", func(f jobs.Finding) string { return text(f.Type) })
	add(true, true, false, "TTL", func(f jobs.Finding) string { return known(f.TTLMillis, ttl) })
	add(len(distinct) > 1 || slots, false, false, "NODE", node)
	add(dbs, true, false, "DB", func(f jobs.Finding) string { return strconv.Itoa(f.DB) })
	add(slots, true, false, "SLOT", func(f jobs.Finding) string { return known(f.Slot, strconv.Itoa) })
	add(trash, false, false, "IN THE TRASH", func(f jobs.Finding) string {
		if f.Due == nil {
			return text(f.State)
		}
		return "until " + f.Due.UTC().Format("2006-01-02 15:04")
	})
	add(trash, false, true, "NONCE", func(f jobs.Finding) string { return text(f.Nonce) })
	add(act, false, false, "OUTCOME", outcome)
	add(removed, true, true, "REMOVED", func(f jobs.Finding) string { return humanize.Comma(f.Removed) })
	add(s.Mode == "execute", true, true, "BATCHES", func(f jobs.Finding) string { return humanize.Comma(f.Batches) })
	add(s.Mode == "execute", true, true, "SLOWEST", func(f jobs.Finding) string { return known(f.SlowestMillis, slowest) })
	return cols
}

// outcome says what became of a key, and how, where that does not say it.
func outcome(f jobs.Finding) string {
	o, m := printable(f.Outcome), printable(f.Method)
	switch {
	case o == "":
		return "-"
	case o == "would_act":
		if m == "" {
			m = "act"
		}
		return "would " + m
	case m == "" || strings.HasPrefix(o, m) || m == "keep" || m == "restore": // unlinked by unlink
		return o
	}
	return o + " (" + m + ")"
}

func groups(w io.Writer, title string, gs []jobs.Group, limit int) {
	if len(gs) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := gs[:min(limit, len(gs))]
	grid(w, groupColumns(title, rows, keyWidth), nil)
	if more := len(gs) - len(rows); more > 0 {
		fmt.Fprintf(w, "… and %s more\n", humanize.Comma(int64(more)))
	}
}

// groupColumns has the numbers first: a prefix may be of any width.
func groupColumns(title string, rows []jobs.Group, width int) []column {
	cols := []column{
		{title: "KEYS", right: true}, {title: "SIZE", right: true}, {title: "NO TTL", right: true}, {title: title, name: title == "PREFIX"},
	}
	for _, g := range rows {
		name := printable(g.Type + g.Band)
		if name == "" {
			name = quoted(g.Prefix, width)
		}
		bytes := "-" // no key takes 0 bytes
		if g.Bytes > 0 {
			bytes = size(g.Bytes)
		}
		noTTL := "-"
		if g.NoTTL != nil {
			noTTL = humanize.Comma(*g.NoTTL)
		}
		for i, cell := range []string{humanize.Comma(g.Keys), bytes, noTTL, name} {
			cols[i].cells = append(cols[i].cells, cell)
		}
	}
	if title != "TYPE" && title != "PREFIX" {
		cols = slices.Delete(cols, 2, 3)
	}
	return cols
}

func acts(w io.Writer, a *jobs.ActSummary) {
	parts := outcomeWords(&a.Outcomes)
	if parts == nil {
		parts = []string{"none"}
	}
	fmt.Fprintln(w)
	item(w, "Keys", strings.Join(parts, ", "))
	if a.ElementsRemoved > 0 {
		item(w, "Elements removed", humanize.Comma(a.ElementsRemoved))
	}
	if a.BytesReleased > 0 {
		item(w, "Memory released", "about "+size(a.BytesReleased)+" (estimate)")
	}
	for _, h := range longest(a.Holds) {
		item(w, "Held "+duration(time.Duration(h.Seconds*float64(time.Second))), h.Reason+" ("+cmp.Or(h.Addr, h.Shard)+")")
	}
	if more := len(a.Holds) - shownHolds; more > 0 {
		item(w, "Held", fmt.Sprintf("for %d more; --format json has them all", more))
	}
	if a.StoppedBy != "" {
		item(w, "Stopped by", a.StoppedBy)
	}
}

// shownHolds is how many holds a person is shown: each shard of a cluster has
// its own.
const shownHolds = 10

// longest are the longest holds.
func longest(holds []jobs.Hold) []jobs.Hold {
	out := slices.Clone(holds)
	slices.SortStableFunc(out, func(a, b jobs.Hold) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return out[:min(len(out), shownHolds)]
}

// outcomeWords is what became of the keys, as far as it occurred.
func outcomeWords(o *jobs.Outcomes) []string {
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{
		{o.WouldAct, "would be acted on"},
		{o.Unlinked, "unlinked"}, {o.Deleted, "deleted"}, {o.Drained, "drained"}, {o.Trashed, "moved to the trash"},
		{o.Trimmed, "trimmed"}, {o.Expired, "given a TTL"}, {o.Finished, "left by an earlier run and finished"},
		{o.Restored, "restored"},
		{o.Gone, "not there"}, {o.Changed, "not as the rule asks"}, {o.Protected, "protected"}, {o.Failed, "FAILED"},
	} {
		if p.n > 0 {
			parts = append(parts, humanize.Comma(p.n)+" "+p.what)
		}
	}
	return parts
}

// remarks come last, where a person's eyes rest when the run is over.
func remarks(w io.Writer, s *jobs.Summary) {
	if len(s.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range s.Notes {
		item(w, "Note", n)
	}
	for i, e := range failures(s) {
		if i == 0 {
			fmt.Fprintln(w)
		}
		item(w, "Error", e)
	}
}

// failures are the errors of a run, those of its shards first.
func failures(s *jobs.Summary) []string {
	var all []string
	for _, sh := range s.Shards {
		if sh.Error != "" {
			all = append(all, "shard "+sh.ID+": "+sh.Error)
		}
	}
	if s.Error != "" {
		all = append(all, s.Error)
	}
	return all
}

// item writes "name: text", wrapped, later lines indented.
func item(w io.Writer, name, text string) {
	for i, line := range wrap(name+": "+text, lineWidth-2) {
		if i > 0 {
			line = "  " + line
		}
		fmt.Fprintln(w, line)
	}
}

func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return humanize.Comma(n) + " " + noun
}

func size(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

func ttl(ms int64) string {
	switch {
	case ms < 0:
		return "none"
	case ms > math.MaxInt64/int64(time.Millisecond): // past what a Duration holds, 292 years
		return "292y+"
	}
	return duration(time.Duration(ms) * time.Millisecond)
}

func slowest(ms float64) string {
	return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
}

// known renders a value, or a dash where it is not known.
func known[T any](v *T, render func(T) string) string {
	if v == nil {
		return "-"
	}
	return render(*v)
}

func text(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// host shortens an address that would push the key off the line.
func host(s string, width int) string {
	if s = printable(s); len(s) > width {
		s = cutMiddle(escaped(s, true), width)
	}
	return s
}
