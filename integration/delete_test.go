package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDeleteByKey(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		names := slices.DeleteFunc(hostileNames(), func(n string) bool {
			return strings.Contains(n, "\x00") // no process can be given such an argument
		})
		// Each name has a neighbour that a slip would take with it.
		for _, n := range names {
			m.do(t, 0, "RPUSH", n, "a", "b", "c")
		}
		l := newLoader(t, m.addr, 0)
		for _, n := range []string{"starfish", "a", "b", "c", "with", "space", "backslash", "cachea:", "hello", "line", "break", "execute", "x"} {
			l.cmd("SET", n, "x")
		}
		for _, n := range names {
			if trimmed := strings.TrimSpace(n); !slices.Contains(names, trimmed) {
				l.cmd("SET", trimmed, "another key")
			}
		}
		l.fill("hash", "big", size.hash)
		l.close()
		load(t, d, 3, "hash", "big", 2000)
		load(t, d, 3, "string", "only three", 9)
		var victims []keyID
		base := []string{"delete", "--url", d.url(), "--format", "json"}
		for _, n := range names {
			base = append(base, "--key="+n)
			victims = append(victims, keyID{0, n})
		}
		base = append(base, "--key", "big")
		victims = append(victims, keyID{0, "big"})
		before := digestOf(t, d)
		o := newOperator(t)

		s := o.run(t, base...).exit(0).summary()
		mustEqual(t, before, digestOf(t, d))
		s.outcomes(map[string]int64{"would_act": int64(len(victims))})

		s = o.run(t, args(base, "--execute")...).exit(0).summary()
		mustEqual(t, before, digestOf(t, d), victims...)
		if s.removed() != int64(len(victims)) {
			s.from.error("%d removed, want %d", s.removed(), len(victims))
		}
		if want := int64(3*len(names) + size.hash); s.ElementsRemoved == nil || *s.ElementsRemoved != want {
			s.from.error("elements_removed is not %d", want)
		}

		// What is gone is an outcome and no error.
		before = digestOf(t, d)
		s = o.run(t, args(base, "--execute")...).exit(0).summary()
		s.outcomes(map[string]int64{"gone": int64(len(victims))})
		mustEqual(t, before, digestOf(t, d))

		// The database is the URL's.
		s = o.run(t, "delete", "--url", m.url(3), "--key", "big", "--execute", "--format", "json").exit(0).summary()
		if s.removed() != 1 {
			s.from.error("big is in database 3")
		}
		mustEqual(t, before, digestOf(t, d), keyID{3, "big"})
		o.run(t, "delete", "--url", d.url(), "--key", "only three", "--execute").exit(0)
		mustEqual(t, before, digestOf(t, d), keyID{3, "big"})
	})
}

// What could be a slip of the fingers is refused before anything happens.
func TestDeleteRefuses(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		bystand(t, d, 0, 20)
		before := digestOf(t, d)
		o := newOperator(t)
		o.file(t, "broken.jsonl", `{"key":"bystander:1","db":0}`+"\n{\"key\":\n")
		o.file(t, "nokey.jsonl", `{"db":0}`+"\n")
		o.file(t, "base64.jsonl", `{"key":"bystander:1","key_base64":"***","db":0}`+"\n")
		o.file(t, "db.jsonl", `{"key":"bystander:1","db":"zero"}`+"\n")
		for _, c := range [][]string{
			{"bystander:1"},
			{"--key", "bystander:1", "bystander:2"},
			{"--key", "bystander:1", "--", "bystander:2"},
			{},
			{"--keys-file", "absent.jsonl"},
			{"--keys-file", "broken.jsonl"},
			{"--keys-file", "nokey.jsonl"},
			{"--keys-file", "base64.jsonl"},
			{"--keys-file", "db.jsonl"},
			{"--key", "bystander:1", "--method", "quickly"},
		} {
			o.run(t, args("delete", "--url", d.url(), "--execute", c)...).exit(2)
			mustEqual(t, before, digestOf(t, d))
		}
	})
}

// TestFeedBack takes what scan wrote and gives it to delete, with every
// hostile name as a key of every type.
func TestFeedBack(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, renamed := range []bool{false, true} {
			if renamed && !b.hasUnlink() {
				continue
			}
			name, opts := "as it is", []option{}
			if renamed {
				name, opts = "UNLINK renamed away", []option{noUnlink}
			}
			t.Run(name, func(t *testing.T) { feedBack(t, standalone(t, b, opts...)) })
		}
	})
}

func feedBack(t *testing.T, d *deployment) {
	t.Helper()
	dbs := []int{0, 2, 4, 6, 8}
	names := hostileNames()
	var victims []keyID
	for i, kind := range kinds {
		db := d.db(dbs[i])
		if d.cluster {
			// One name is one key here: each type takes its turn.
			feedBackOne(t, d, db, kind, names)
			continue
		}
		for _, n := range names {
			load(t, d, db, kind, n, 1500) // more elements than are removed in one piece
			victims = append(victims, keyID{db, n})
		}
	}
	if d.cluster {
		return
	}
	bystand(t, d, 0, 100)
	bystand(t, d, 2, 100)
	before := digestOf(t, d)
	o := newOperator(t)
	r := o.run(t, "scan", "--url", d.url(), "--exclude", "bystander:*", "--format", "jsonl").exit(0)
	if found, _ := r.stream(); len(found) != len(victims) {
		r.error("%d found, want %d", len(found), len(victims))
	}
	o.file(t, "found.jsonl", r.stdout)
	base := args("delete", "--url", d.url(), "--keys-file", "found.jsonl", "--format", "json")
	s := o.run(t, base...).exit(0).summary()
	s.outcomes(map[string]int64{"would_act": int64(len(victims))})
	mustEqual(t, before, digestOf(t, d))
	s = o.run(t, args(base, "--execute")...).exit(0).summary()
	mustEqual(t, before, digestOf(t, d), victims...)
	if s.removed() != int64(len(victims)) {
		s.from.error("%d removed, want %d", s.removed(), len(victims))
	}
}

func feedBackOne(t *testing.T, d *deployment, db int, kind string, names []string) {
	t.Helper()
	d.flush(t)
	var victims []keyID
	for _, n := range names {
		load(t, d, db, kind, n, 1500)
		victims = append(victims, keyID{db, n})
	}
	bystand(t, d, db, 100)
	before := digestOf(t, d)
	o := newOperator(t)
	r := o.run(t, "scan", "--url", d.url(), "--exclude", "bystander:*", "--format", "jsonl").exit(0)
	found, _ := r.stream()
	for _, f := range found {
		if f.Slot == nil || *f.Slot != slotOf(f.name(t)) {
			t.Errorf("%.60q: slot is not %d", f.name(t), slotOf(f.name(t)))
		}
	}
	s := o.runIn(t, r.stdout, "delete", "--url", d.url(), "--keys-file", "-", "--execute", "--format", "json").exit(0).summary()
	if s.removed() != int64(len(victims)) {
		s.from.error("%s: %d removed, want %d", kind, s.removed(), len(victims))
	}
	mustEqual(t, before, digestOf(t, d), victims...)
}

func TestDeleteFromStdin(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		for _, db := range []int{0, 5} {
			for _, n := range []string{"one", "two", "line\nbreak", "with space", "\xff", "kept"} {
				m.do(t, db, "SADD", n, "x", "y")
			}
		}
		before := digestOf(t, d)
		o := newOperator(t)
		// The database is that of the line; without one it is the URL's.
		in := `{"key":"one","db":5}` + "\n" + `{"key":"two"}` + "\n\n" + `{"key":"�","key_base64":"/w==","db":5,"type":"set","shard":"elsewhere"}` + "\n"
		s := o.runIn(t, in, "delete", "--url", d.url(), "--keys-file", "-", "--execute", "--format", "json").exit(0).summary()
		mustEqual(t, before, digestOf(t, d), keyID{5, "one"}, keyID{0, "two"}, keyID{5, "\xff"})
		if s.removed() != 3 {
			s.from.error("three keys were named")
		}
		// Names that end in NUL, as find -print0 writes them.
		before = digestOf(t, d)
		in = "line\nbreak\x00with space\x00\xff\x00not there\x00"
		s = o.runIn(t, in, "delete", "--url", d.url(), "--keys-file", "-", "--null", "--execute", "--format", "json").exit(0).summary()
		mustEqual(t, before, digestOf(t, d), keyID{0, "line\nbreak"}, keyID{0, "with space"}, keyID{0, "\xff"})
		if s.removed() != 3 || s.Outcomes["gone"] != 1 {
			s.from.error("three were there and one was not")
		}
		// The same in database 5.
		before = digestOf(t, d)
		o.runIn(t, "with space\x00", "delete", "--url", m.url(5), "--keys-file", "-", "--null", "--execute").exit(0)
		mustEqual(t, before, digestOf(t, d), keyID{5, "with space"})
		// A key that is named twice is one key.
		before = digestOf(t, d)
		s = o.runIn(t, `{"key":"kept","db":5}`+"\n"+`{"key":"kept","db":5}`+"\n", "delete", "--url", d.url(), "--keys-file", "-", "--execute", "--format", "json").
			exit(0).summary()
		if s.removed() != 1 {
			s.from.error("one key was named")
		}
		mustEqual(t, before, digestOf(t, d), keyID{5, "kept"})
	})
}

// A list of findings gets old. A key that has another type by now, or no
// longer meets the threshold, is left alone.
func TestDeleteRechecks(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		for _, kind := range aggregates {
			load(t, d, 0, kind, "big:"+kind, 20_000)
			load(t, d, 0, kind, "shrunk:"+kind, 20_000)
			load(t, d, 0, kind, "other:"+kind, 20_000)
		}
		o := newOperator(t)
		r := o.run(t, "scan", "--url", d.url(), "--min-elements", "10000", "--format", "jsonl").exit(0)
		o.file(t, "found.jsonl", r.stdout)
		var victims []keyID
		for _, kind := range aggregates {
			victims = append(victims, keyID{0, "big:" + kind})
			m.do(t, 0, "DEL", "shrunk:"+kind, "other:"+kind)
			load(t, d, 0, kind, "shrunk:"+kind, 9_999)
			m.do(t, 0, "SET", "other:"+kind, "a string now")
		}
		before := digestOf(t, d)
		s := o.run(t, "delete", "--url", d.url(), "--keys-file", "found.jsonl", "--min-elements", "10000", "--execute", "--format", "json").exit(0).summary()
		mustEqual(t, before, digestOf(t, d), victims...)
		if s.removed() != 4 || s.Outcomes["changed"] != 8 {
			s.from.error("want 4 removed and 8 changed")
		}
		// Without a threshold the type is still that of the line.
		before = digestOf(t, d)
		victims = nil
		for _, kind := range aggregates {
			victims = append(victims, keyID{0, "shrunk:" + kind})
		}
		s = o.run(t, "delete", "--url", d.url(), "--keys-file", "found.jsonl", "--execute", "--format", "json").exit(0).summary()
		mustEqual(t, before, digestOf(t, d), victims...)
		if s.removed() != 4 || s.Outcomes["changed"] != 4 || s.Outcomes["gone"] != 4 {
			s.from.error("want 4 removed, 4 changed and 4 gone")
		}
	})
}

// The lines carry all that delete needs, also after another tool rewrote them.
func TestDeleteLineForms(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		var lines strings.Builder
		var victims []keyID
		for i, n := range hostileNames() {
			m.do(t, 0, "SET", n, "x")
			// Escaped to ASCII, with fields in another order, and CR LF.
			one, err := json.Marshal(map[string]any{"key_base64": []byte(n), "key": "", "extra": []int{1}})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&lines, "%s\r\n", one)
			victims = append(victims, keyID{0, hostileNames()[i]})
		}
		bystand(t, d, 0, 20)
		before := digestOf(t, d)
		o := newOperator(t)
		s := o.runIn(t, lines.String(), "delete", "--url", d.url(), "--keys-file", "-", "--execute", "--format", "json").exit(0).summary()
		mustEqual(t, before, digestOf(t, d), victims...)
		if s.removed() != int64(len(victims)) {
			s.from.error("%d removed, want %d", s.removed(), len(victims))
		}
	})
}
