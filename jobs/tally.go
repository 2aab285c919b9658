package jobs

import (
	"cmp"
	"container/heap"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxGroups bounds the number of prefixes that are told apart on one shard
// and in a report; the keys of all others share one row.
const maxGroups = 1000

// otherPrefixes is the name of that row.
const otherPrefixes = "(other)"

// rank orders findings: the larger, the earlier in a report.
type rank func(a, b *Finding) int

func known(p *int64) int64 {
	if p == nil {
		return -1
	}
	return *p
}

func byBytes(a, b *Finding) int {
	return cmp.Or(cmp.Compare(known(a.Bytes), known(b.Bytes)), cmp.Compare(known(a.Elements), known(b.Elements)))
}

func byElements(a, b *Finding) int {
	return cmp.Or(cmp.Compare(known(a.Elements), known(b.Elements)), cmp.Compare(known(a.Bytes), known(b.Bytes)))
}

// failedFirst puts what needs a person's eye above everything else.
func failedFirst(r rank) rank {
	bad := func(f *Finding) int {
		if f.Outcome == "failed" || f.Outcome == "trashed" && f.Method == "drain" {
			return 1
		}
		return 0
	}
	return func(a, b *Finding) int { return cmp.Or(cmp.Compare(bad(a), bad(b)), r(a, b)) }
}

// top keeps the n largest findings by a rank; exact, and of bounded size. A
// key that SCAN repeats is kept once.
type top struct {
	n     int
	rank  rank
	items []Finding
	names map[string]struct{}
}

func newTop(n int, r rank) *top { return &top{n: n, rank: r, names: map[string]struct{}{}} }

func (t *top) Len() int           { return len(t.items) }
func (t *top) Less(i, j int) bool { return t.rank(&t.items[i], &t.items[j]) < 0 }
func (t *top) Swap(i, j int)      { t.items[i], t.items[j] = t.items[j], t.items[i] }
func (t *top) Push(x any)         { t.items = append(t.items, x.(Finding)) }

// Pop gives the smallest up, for package heap.
func (t *top) Pop() any {
	last := len(t.items) - 1
	f := t.items[last]
	t.items = t.items[:last]
	return f
}

func (f *Finding) id() string { return f.Shard + "\x00" + f.Nonce + "\x00" + f.Name }

// wants reports whether a finding is among the largest so far.
func (t *top) wants(f *Finding) bool {
	return t.n > 0 && (len(t.items) < t.n || t.rank(f, &t.items[0]) > 0)
}

func (t *top) add(f Finding) {
	if !t.wants(&f) {
		return
	}
	id := f.id()
	if _, again := t.names[id]; again {
		return
	}
	t.names[id] = struct{}{}
	heap.Push(t, f)
	if len(t.items) > t.n {
		out := heap.Pop(t).(Finding)
		delete(t.names, out.id())
	}
}

// sorted is what was kept, the largest first.
func (t *top) sorted() []Finding {
	out := slices.Clone(t.items)
	slices.SortStableFunc(out, func(a, b Finding) int { return -t.rank(&a, &b) })
	return out
}

// groups is one table of a report.
type groups map[string]*Group

func (g groups) row(name string) *Group {
	row := g[name]
	if row == nil {
		row = &Group{NoTTL: new(int64)}
		g[name] = row
	}
	return row
}

func (g groups) add(name string, f *Finding) { g.row(name).add(f) }

func (row *Group) add(f *Finding) {
	row.Keys++
	row.Bytes += max(0, known(f.Bytes))
	switch {
	case f.TTLMillis == nil:
		row.NoTTL = nil
	case *f.TTLMillis < 0 && row.NoTTL != nil:
		*row.NoTTL++
	}
}

// join adds what another row counted.
func (row *Group) join(from *Group) {
	row.Keys += from.Keys
	row.Bytes += from.Bytes
	switch {
	case from.NoTTL == nil:
		row.NoTTL = nil
	case row.NoTTL != nil:
		*row.NoTTL += *from.NoTTL
	}
}

func (g groups) merge(other groups) {
	for name, from := range other {
		g.row(name).join(from)
	}
}

// tally is what one shard's findings amount to. Its size is bounded.
type tally struct {
	matched, bytes int64
	folded         bool // there were more prefixes than are told apart
	largest        *top
	longest        *top
	types          groups
	prefixes       groups
	ttl            groups
	sizes          groups
	idle           groups
	expiring       int64 // oversized keys that expire within an hour

	head string // of the last name, and the row of its prefix: names come in runs
	row  *Group
}

func newTally(n int, first rank) *tally {
	return &tally{
		largest: newTop(n, first), longest: newTop(n, byElements),
		types: groups{}, prefixes: groups{}, ttl: groups{}, sizes: groups{}, idle: groups{},
	}
}

func (t *tally) add(f Finding) {
	t.count(&f)
	t.largest.add(f)
	if f.Elements != nil {
		t.longest.add(f)
	}
}

// wants reports whether a finding is kept by itself, and not only counted.
func (t *tally) wants(f *Finding) bool {
	return t.largest.wants(f) || f.Elements != nil && t.longest.wants(f)
}

// count takes a finding into the tables; it keeps nothing of f.
func (t *tally) count(f *Finding) {
	t.matched++
	t.bytes += max(0, known(f.Bytes))
	if f.Type != "" {
		t.types.add(f.Type, f)
	}
	if head := headOf(f.Name); t.row == nil || head != t.head {
		prefix := folded(head)
		if _, there := t.prefixes[prefix]; !there && len(t.prefixes) >= maxGroups {
			prefix, t.folded = otherPrefixes, true
		}
		t.head, t.row = strings.Clone(head), t.prefixes.row(prefix)
	}
	t.row.add(f)
	if f.TTLMillis != nil {
		t.ttl.add(band(ttlBands, *f.TTLMillis), f)
	}
	if f.Bytes != nil {
		t.sizes.add(band(sizeBands, *f.Bytes), f)
	}
	if f.IdleSeconds != nil {
		t.idle.add(band(idleBands, *f.IdleSeconds), f)
	}
	if expiresSoon(f) {
		t.expiring++
	}
}

func (t *tally) merge(o *tally) {
	t.matched += o.matched
	t.bytes += o.bytes
	t.folded = t.folded || o.folded
	for _, f := range o.largest.items {
		t.largest.add(f)
	}
	for _, f := range o.longest.items {
		t.longest.add(f)
	}
	t.types.merge(o.types)
	t.ttl.merge(o.ttl)
	t.sizes.merge(o.sizes)
	t.idle.merge(o.idle)
	t.expiring += o.expiring
	t.prefixes.merge(o.prefixes)
}

// into writes the tables into a summary, the rows with most bytes first.
func (t *tally) into(s *Summary) {
	s.KeysMatched, s.BytesMatched = t.matched, t.bytes
	s.Findings = t.largest.sorted()
	s.Types = t.types.rows(func(g *Group, name string) { g.Type = name })
	s.Prefixes = t.prefixes.rows(func(g *Group, name string) { g.Prefix = name })
	if t.folded || len(s.Prefixes) > maxGroups {
		s.Prefixes = fold(s.Prefixes)
		s.Notes = append(s.Notes, "there are more than "+strconv.Itoa(maxGroups)+" prefixes; the rest share the row "+otherPrefixes)
	}
	s.TTL = t.ttl.bands(ttlBands)
	s.Sizes = t.sizes.bands(sizeBands)
	s.Idle = t.idle.bands(idleBands)
}

// fold leaves the first rows, fewer than maxGroups, and makes one of all
// others, which comes last.
func fold(rows []Group) []Group {
	rest := Group{Prefix: otherPrefixes, NoTTL: new(int64)}
	kept := make([]Group, 0, maxGroups)
	for _, g := range rows {
		if g.Prefix != otherPrefixes && len(kept) < maxGroups-1 {
			kept = append(kept, g)
			continue
		}
		rest.join(&g)
	}
	return append(kept, rest)
}

func (g groups) rows(set func(*Group, string)) []Group {
	out := make([]Group, 0, len(g))
	for name, row := range g {
		set(row, name)
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(-cmp.Compare(a.Bytes, b.Bytes), -cmp.Compare(a.Keys, b.Keys),
			cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// bands are the rows in the order of the bands.
func (g groups) bands(of []bandLimit) []Group {
	out := []Group{}
	for _, b := range of {
		if row := g[b.name]; row != nil {
			row.Band = b.name
			out = append(out, *row)
		}
	}
	return out
}

// bandLimit is a band of values below a limit.
type bandLimit struct {
	below int64
	name  string
}

const noLimit = 1<<63 - 1

var ttlBands = []bandLimit{
	{0, "none"},
	{time.Minute.Milliseconds(), "under 1m"},
	{time.Hour.Milliseconds(), "1m to 1h"},
	{24 * time.Hour.Milliseconds(), "1h to 1d"},
	{7 * 24 * time.Hour.Milliseconds(), "1d to 7d"},
	{30 * 24 * time.Hour.Milliseconds(), "7d to 30d"},
	{noLimit, "30d and over"},
}

var sizeBands = []bandLimit{
	{1 << 10, "under 1KiB"},
	{10 << 10, "1KiB to 10KiB"},
	{100 << 10, "10KiB to 100KiB"},
	{1 << 20, "100KiB to 1MiB"},
	{10 << 20, "1MiB to 10MiB"},
	{100 << 20, "10MiB to 100MiB"},
	{1 << 30, "100MiB to 1GiB"},
	{noLimit, "1GiB and over"},
}

var idleBands = []bandLimit{
	{int64(time.Hour / time.Second), "under 1h"},
	{24 * int64(time.Hour/time.Second), "1h to 1d"},
	{7 * 24 * int64(time.Hour/time.Second), "1d to 7d"},
	{30 * 24 * int64(time.Hour/time.Second), "7d to 30d"},
	{noLimit, "30d and over"},
}

func band(of []bandLimit, v int64) string {
	for _, b := range of {
		if v < b.below {
			return b.name
		}
	}
	return of[len(of)-1].name
}

// prefixOf is the group of a name: what stands before its first separator,
// that included, with every run of digits written as #. A name without a
// separator is its own group, cut to 32 bytes.
func prefixOf(name string) string { return folded(headOf(name)) }

// headOf is the part of a name that decides its group.
func headOf(name string) string {
	const longest = 32
	head := name[:min(len(name), longest)]
	if i := strings.IndexAny(head, ":/|"); i >= 0 {
		return head[:i+1]
	}
	if i := strings.IndexAny(head, ".-_ "); i >= 0 {
		return head[:i+1]
	}
	return head
}

// folded writes every run of digits as #.
func folded(head string) string {
	var b strings.Builder
	digits := false
	for i := range len(head) {
		digit := head[i] >= '0' && head[i] <= '9'
		switch {
		case !digit:
			b.WriteByte(head[i])
		case !digits:
			b.WriteByte('#')
		}
		digits = digit
	}
	if out := b.String(); utf8.ValidString(out) {
		return out
	}
	return strconv.QuoteToASCII(b.String())
}
