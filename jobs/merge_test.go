package jobs

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// part is what one worker would report of its findings.
func part(shard string, n int, r rank, fs ...Finding) *Summary {
	t := newTally(n, r)
	s := &Summary{
		Target: "msg", Mode: "scan", Started: time.Unix(100, 0), Finished: time.Unix(200, 0), Complete: true, KeysScanned: 10,
		Shards: []ShardSummary{{ID: shard, Addr: shard, KeysScanned: 10}},
	}
	for _, f := range fs {
		f.Shard, f.Addr = shard, shard
		t.add(f)
	}
	t.into(s)
	s.TopElements = t.longest.sorted()
	s.Shards[0].KeysMatched, s.Shards[0].BytesMatched = t.matched, t.bytes
	return s
}

func merged(t *testing.T, top int, parts ...*Summary) *Summary {
	t.Helper()
	m := NewMerger(top)
	for i, p := range parts {
		if err := m.Add(fmt.Sprintf("part-%d.json", i), p); err != nil {
			t.Fatal(err)
		}
	}
	return m.Summary()
}

// Parts that are merged are what one worker would have reported.
func TestMergeIsTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, order := range []rank{byBytes, byElements} {
		one := newTally(20, order)
		var parts []*Summary
		for i := range 5 {
			var fs []Finding
			for j := range 100 {
				f := sized(fmt.Sprintf("p%c:%d", 'a'+j%26, j), int64(r.IntN(1<<30)), int64(r.IntN(1<<20)))
				f.Type, f.TTLMillis, f.IdleSeconds = []string{"hash", "list"}[j%2], num(int64(j)*1e7), num(int64(j)*1e5)
				fs = append(fs, f)
			}
			p := part(fmt.Sprint("s/", i), 20, order, fs...)
			parts = append(parts, p)
			for _, f := range fs {
				f.Shard, f.Addr = p.Shards[0].ID, p.Shards[0].ID
				one.add(f)
			}
		}
		var want Summary
		one.into(&want)
		got := merged(t, 20, parts...)
		names := func(fs []Finding) (names []string) {
			for _, f := range fs {
				names = append(names, f.Shard+" "+f.Name)
			}
			return names
		}
		if !slices.Equal(names(got.Findings), names(want.Findings)) {
			t.Errorf("findings %q\nwant %q", names(got.Findings), names(want.Findings))
		}
		if !slices.Equal(names(got.TopElements), names(one.longest.sorted())) {
			t.Errorf("most elements %q\nwant %q", names(got.TopElements), names(one.longest.sorted()))
		}
		for i, pair := range [][2][]Group{{got.Types, want.Types}, {got.Prefixes, want.Prefixes}, {got.TTL, want.TTL}, {got.Sizes, want.Sizes}, {got.Idle, want.Idle}} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("table %d is %+v\nwant %+v", i, pair[0], pair[1])
			}
		}
		if got.KeysMatched != 500 || got.BytesMatched != want.BytesMatched || got.KeysScanned != 50 || len(got.Shards) != 5 || !got.Complete {
			t.Errorf("merged: %+v", got)
		}
	}
}

func TestMergeOfRunsThatAct(t *testing.T) {
	act := func(shard string, by string, fs ...Finding) *Summary {
		s := part(shard, 5, failedFirst(byBytes), fs...)
		s.Mode = "execute"
		s.ActSummary = &ActSummary{
			Outcomes: Outcomes{Unlinked: 1, Failed: 2}, ElementsRemoved: 3, BytesReleased: 4, StoppedBy: by,
			Holds: []Hold{{Signal: "snapshot", Reason: "a snapshot", Seconds: 1}, {Signal: "replica_lag", Shard: shard, Reason: "lag", Seconds: 2}},
		}
		return s
	}
	bad := sized("bad", 1, 1)
	bad.Outcome = "failed"
	a, b := act("s/0", "time: 2h", sized("large", 1000, 1)), act("s/1", "time: 2h", bad)
	a.Started, b.Finished, b.Complete, b.Error, a.Target = time.Unix(50, 0), time.Unix(900, 0), false, "no route", "other"
	got := merged(t, 5, a, b)
	if got.Outcomes != (Outcomes{Unlinked: 2, Failed: 4}) || got.ElementsRemoved != 6 || got.BytesReleased != 8 || got.StoppedBy != "time: 2h" {
		t.Errorf("acts: %+v", got.ActSummary)
	}
	if want := []Hold{{Signal: "snapshot", Reason: "a snapshot", Seconds: 2}, {Signal: "replica_lag", Shard: "s/0", Reason: "lag", Seconds: 2}, {Signal: "replica_lag", Shard: "s/1", Reason: "lag", Seconds: 2}}; !slices.Equal(got.Holds, want) {
		t.Errorf("holds %+v", got.Holds)
	}
	if got.Findings[0].Name != "bad" {
		t.Errorf("shown first is %s, not what failed", got.Findings[0].Name)
	}
	if got.Complete || got.Error != "part-1.json: no route" || !got.Started.Equal(time.Unix(50, 0)) || !got.Finished.Equal(time.Unix(900, 0)) || got.Target != "other, msg" {
		t.Errorf("merged: %+v", got)
	}
}

func TestMergeNotes(t *testing.T) {
	parts := []*Summary{part("a", 1, byBytes, sized("x", 900, 1), sized("y", 1, 1)), part("b", 1, byBytes), part("c", 1, byBytes)}
	for i, p := range parts {
		p.Notes = []string{"of all", fmt.Sprint("of part ", i)}
	}
	parts[1].Notes = append(parts[1].Notes, "of some")
	parts[2].Notes = append(parts[2].Notes, "of some")
	got := merged(t, 2, parts...).Notes
	want := []string{
		"each part: of all", "part-0.json: of part 0", "part-0.json: it lists 1 of its 2 keys: others of them may be missing from the list", "part-1.json: of part 1",
		"part-1.json, part-2.json: of some", "part-2.json: of part 2", "node a holds 100% of the bytes of 3 nodes; 100% of it is key x",
	}
	if !slices.Equal(got, want) {
		t.Errorf("notes %q\nwant  %q", got, want)
	}
}

// Of several times a thousand prefixes a thousand rows are left, and every key
// is in one of them.
func TestMergeFoldsPrefixes(t *testing.T) {
	var parts []*Summary
	for i := range 3 {
		var fs []Finding
		for j := range 1500 {
			fs = append(fs, sized(string([]rune{rune('a' + i), rune('a' + j%26), rune('a' + j/26)})+":", int64(j), 1))
		}
		parts = append(parts, part(fmt.Sprint(i), 1, byBytes, fs...))
	}
	got := merged(t, 1, parts...)
	var keys int64
	for _, g := range got.Prefixes {
		keys += g.Keys
	}
	if len(got.Prefixes) != maxGroups || keys != 4500 || got.Prefixes[maxGroups-1].Prefix != otherPrefixes {
		t.Errorf("%d rows of %d keys, the last %+v", len(got.Prefixes), keys, got.Prefixes[len(got.Prefixes)-1])
	}
	if n := len(slices.DeleteFunc(slices.Clone(got.Notes), func(s string) bool { return !strings.Contains(s, "more than 1000 prefixes") })); n != 1 {
		t.Errorf("said %d times that rows are shared: %q", n, got.Notes)
	}
}

func TestMergeKeepsBandsItDoesNotKnow(t *testing.T) {
	a, b := part("a", 1, byBytes, sized("x", 5, 1)), part("b", 1, byBytes)
	b.Sizes = []Group{{Band: "1TiB and over", Keys: 1, Bytes: 1 << 40}}
	got := merged(t, 1, a, b).Sizes
	if want := []Group{{Band: "under 1KiB", Keys: 1, Bytes: 5}, {Band: "1TiB and over", Keys: 1, Bytes: 1 << 40}}; !slices.Equal(got, want) {
		t.Errorf("sizes %+v", got)
	}
}

func TestMergeRefuses(t *testing.T) {
	if NewMerger(1).Summary() != nil {
		t.Error("of nothing there is a summary")
	}
	mode, job := part("b", 1, byBytes), part("b", 1, byBytes)
	mode.Mode, job.Job = "report", "nightly"
	for _, c := range []struct {
		name  string
		other *Summary
		want  string
	}{
		{"the same shard", part("a", 1, byBytes), "shard a is in one.json and in two.json: its keys would count twice"},
		{"another mode", mode, "one.json is of mode scan and two.json of mode report; only what ran alike can be merged"},
		{"another job", job, `one.json is of job "" and two.json of job "nightly"`},
	} {
		m := NewMerger(1)
		err := cmp.Or(m.Add("one.json", part("a", 1, byBytes)), m.Add("two.json", c.other))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}
