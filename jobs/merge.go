package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Merger joins the reports of several workers, or of several targets, into
// one. What it holds is bounded: lists are cut to the largest, and groups are
// as many as the parts have.
type Merger struct {
	top      int
	s        *Summary
	t        *tally
	elements *top // findings by elements, for parts that list them so
	byBytes  bool // that is how the lists of all parts are ordered
	byElems  bool
	parts    []string
	shards   map[string]string // the part that has a shard
	targets  []string
	stops    []string
	notes    map[string][]string // the parts that have a note
	order    []string            // of the notes
	shares   []string            // of the deployment, that workers had
}

// NewMerger makes a Merger whose lists have at most top findings.
func NewMerger(top int) *Merger {
	return &Merger{top: top, shards: map[string]string{}, notes: map[string][]string{}, byBytes: true, byElems: true}
}

// Add takes in one part. Its name is for errors and notes. After an error the
// Merger is of no further use.
func (m *Merger) Add(part string, s *Summary) error {
	if m.s == nil {
		m.s = &Summary{
			Job: s.Job, Mode: s.Mode, Started: s.Started, Finished: s.Finished, Complete: true,
			Shards: []ShardSummary{}, Notes: []string{},
		}
		m.t = newTally(m.top, m.rank(byBytes))
		m.elements = newTop(m.top, m.rank(byElements))
		if s.ActSummary != nil {
			m.s.ActSummary = &ActSummary{Holds: []Hold{}}
		}
	}
	switch {
	case s.Mode != m.s.Mode:
		return fmt.Errorf("%s is of mode %s and %s of mode %s; only what ran alike can be merged", m.parts[0], m.s.Mode, part, s.Mode)
	case s.Job != m.s.Job:
		return fmt.Errorf("%s is of job %q and %s of job %q", m.parts[0], m.s.Job, part, s.Job)
	}
	for _, sh := range s.Shards {
		if other, there := m.shards[sh.ID]; there {
			return fmt.Errorf("shard %s is in %s and in %s: its keys would count twice", sh.ID, other, part)
		}
		m.shards[sh.ID] = part
	}
	m.parts = append(m.parts, part)
	m.add(part, s)
	return nil
}

func (m *Merger) rank(r rank) rank {
	if m.s.Mode != string(Scan) {
		return failedFirst(r)
	}
	return r
}

func (m *Merger) add(part string, s *Summary) {
	if !slices.Contains(m.targets, s.Target) {
		m.targets = append(m.targets, s.Target)
	}
	m.s.Started = earlier(m.s.Started, s.Started)
	if s.Finished.After(m.s.Finished) {
		m.s.Finished = s.Finished
	}
	m.s.Complete = m.s.Complete && s.Complete
	if s.Part != "" {
		m.shares = append(m.shares, s.Part)
	}
	m.s.Shards = append(m.s.Shards, s.Shards...)
	m.s.KeysScanned += s.KeysScanned
	m.t.matched += s.KeysMatched
	m.t.bytes += s.BytesMatched
	for _, f := range s.Findings {
		m.t.largest.add(f)
		m.elements.add(f)
	}
	for _, f := range s.TopElements {
		m.t.longest.add(f)
	}
	m.byBytes = m.byBytes && inOrder(s.Findings, m.rank(byBytes))
	m.byElems = m.byElems && inOrder(s.Findings, m.rank(byElements))
	m.t.types.join(s.Types)
	m.t.prefixes.join(s.Prefixes)
	m.t.ttl.join(s.TTL)
	m.t.sizes.join(s.Sizes)
	m.t.idle.join(s.Idle)
	m.t.folded = m.t.folded || m.t.prefixes[otherPrefixes] != nil
	for _, n := range s.Notes {
		m.note(part, n)
	}
	if n := int64(len(s.Findings)); n < s.KeysMatched && len(s.Findings) < m.top {
		m.note(part, fmt.Sprintf("it lists %d of its %d keys: others of them may be missing from the list", n, s.KeysMatched))
	}
	if s.Error != "" {
		m.s.Error = strings.TrimPrefix(m.s.Error+"\n"+part+": "+s.Error, "\n")
	}
	if a, b := m.s.ActSummary, s.ActSummary; a != nil && b != nil {
		a.Outcomes.add(&b.Outcomes)
		a.ElementsRemoved += b.ElementsRemoved
		a.BytesReleased += b.BytesReleased
		for _, h := range b.Holds {
			if i := slices.IndexFunc(a.Holds, func(g Hold) bool { return g.Reason == h.Reason && g.Shard == h.Shard }); i >= 0 {
				a.Holds[i].Seconds += h.Seconds
			} else {
				a.Holds = append(a.Holds, h)
			}
		}
		if b.StoppedBy != "" && !slices.Contains(m.stops, b.StoppedBy) {
			m.stops = append(m.stops, b.StoppedBy)
		}
	}
}

// missingParts says which shares of a deployment are not among those that
// workers had; "" if none is missing.
func missingParts(shares []string) string {
	of := 0
	have := map[int]bool{}
	for _, share := range shares {
		var i, n int
		if _, err := fmt.Sscanf(share, "%d-of-%d", &i, &n); err == nil {
			have[i], of = true, max(of, n)
		}
	}
	var missing []string
	for i := 1; i <= of; i++ {
		if !have[i] {
			missing = append(missing, Part{i - 1, of}.String())
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "missing: part " + strings.Join(missing, ", ")
}

func (m *Merger) note(part, text string) {
	if m.notes[text] == nil {
		m.order = append(m.order, text)
	}
	m.notes[text] = append(m.notes[text], part)
}

// Summary is all parts in one; nil without any.
func (m *Merger) Summary() *Summary {
	s := m.s
	if s == nil {
		return nil
	}
	s.Target = strings.Join(m.targets, ", ")
	if missing := missingParts(m.shares); missing != "" {
		s.Complete = false
		s.Notes = append(s.Notes, missing)
	}
	if s.ActSummary != nil {
		s.StoppedBy = strings.Join(m.stops, ", ")
	}
	if !m.byBytes && m.byElems {
		m.t.largest = m.elements
	}
	for _, text := range m.order {
		// A note may count what is in its part only.
		switch parts := m.notes[text]; {
		case len(m.parts) == 1:
		case len(parts) == len(m.parts):
			text = "each part: " + text
		default:
			text = strings.Join(parts, ", ") + ": " + text
		}
		s.Notes = append(s.Notes, text)
	}
	before := s.Notes
	m.t.into(s)
	if n := len(s.Notes); n > len(before) && slices.ContainsFunc(before, func(t string) bool { return strings.HasSuffix(t, s.Notes[n-1]) }) {
		s.Notes = before // the parts say it already
	}
	s.TTL = append(s.TTL, m.t.ttl.unknown(ttlBands)...)
	s.Sizes = append(s.Sizes, m.t.sizes.unknown(sizeBands)...)
	s.Idle = append(s.Idle, m.t.idle.unknown(idleBands)...)
	s.TopElements = m.t.longest.sorted()
	if note := skew(s); s.Mode == string(Scan) && len(m.parts) > 1 && note != "" {
		s.Notes = append(s.Notes, note)
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func inOrder(fs []Finding, r rank) bool {
	return slices.IsSortedFunc(fs, func(a, b Finding) int { return -r(&a, &b) })
}

// join adds rows of a report.
func (g groups) join(rows []Group) {
	for _, from := range rows {
		g.row(from.Type + from.Prefix + from.Band).join(&from)
	}
}

// unknown is the rows of bands that this version does not have.
func (g groups) unknown(of []bandLimit) []Group {
	rest := groups{}
	for name, row := range g {
		if !slices.ContainsFunc(of, func(b bandLimit) bool { return b.name == name }) {
			rest[name] = row
		}
	}
	return rest.rows(func(row *Group, name string) { row.Band = name })
}
