package integration

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestTrash(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		trashAndBack(t, standalone(t, b))
	})
}

// trashAndBack sets keys of every kind and every name aside and takes the
// mistake back: value, name and remaining TTL are what they were.
func trashAndBack(t *testing.T, d *deployment) {
	for i, name := range hostileNames() {
		load(t, d, 0, kinds[i%len(kinds)], name, 30)
		if i%3 == 0 {
			d.owner(name).do(t, 0, "EXPIRE", name, strconv.Itoa(5000+i))
		}
	}
	before := digestOf(t, d)
	all := int64(len(before))
	o := newOperator(t)
	clean := []string{"clean", "--url", d.url(), "--all-keys", "--keep-for", "1h", "--format", "json"}
	o.run(t, clean...).exit(0).summary().outcomes(map[string]int64{"would_act": all})
	mustEqual(t, before, digestOf(t, d))

	o.run(t, args(clean, "--execute")...).exit(0).summary().outcomes(map[string]int64{"trashed": all})
	after := digestOf(t, d)
	for k, is := range after {
		if !strings.HasPrefix(k.name, "keyjanitor:trash:{") || !is.expires.IsZero() {
			t.Errorf("%v is no key of the trash that waits for good: %+v", k, is)
		}
	}
	if int64(len(after)) != all {
		t.Errorf("%d keys in the trash, want %d", len(after), all)
	}

	// Neither another run nor one of the same kind touches what is not due.
	o.run(t, args(clean, "--execute")...).exit(0).summary().outcomes(nil)
	o.run(t, "trash", "purge", "--url", d.url(), "--due", "--execute", "--format", "json").exit(0).summary().outcomes(nil)
	mustEqual(t, after, digestOf(t, d))

	trash := func(verb string, more ...string) summary {
		return o.run(t, args("trash", verb, "--url", d.url(), "--format", "json", more)...).exit(0).summary()
	}
	if s := trash("list", "--all"); s.KeysMatched != all {
		s.from.error("%d keys listed, want %d", s.KeysMatched, all)
	} else {
		for _, f := range s.Findings {
			if _, known := before[f.id(t)]; !known {
				t.Errorf("%v is listed and was never there", f.id(t))
			}
		}
	}
	trash("restore", "--all").outcomes(map[string]int64{"would_act": all})
	mustEqual(t, after, digestOf(t, d))
	trash("restore", "--all", "--execute")
	mustEqual(t, before, digestOf(t, d))
}

// Restoring never overwrites, and what is purged is gone.
func TestTrashTakenName(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		load(t, d, 0, "hash", "wrong", 2000)
		o := newOperator(t)
		o.run(t, "delete", "--url", d.url(), "--key", "wrong", "--keep-for", "1h", "--execute").exit(0)
		d.masters[0].do(t, 0, "SET", "wrong", "a new one")
		restore := []string{"trash", "restore", "--url", d.url(), "--key", "wrong", "--execute", "--format", "json"}
		before := digestOf(t, d)
		s := o.run(t, restore...).exit(3).summary()
		s.outcomes(map[string]int64{"failed": 1})
		mustEqual(t, before, digestOf(t, d))

		o.run(t, args(restore, "--swap")...).exit(0)
		if n := d.masters[0].doInt(t, 0, "HLEN", "wrong"); n != 2000 {
			t.Errorf("the hash came back with %d fields", n)
		}
		o.run(t, args(restore, "--as", "the new one")...).exit(0)
		if v := d.masters[0].do(t, 0, "GET", "the new one"); v != "a new one" {
			t.Errorf("what was swapped out came back as %v", v)
		}

		o.run(t, "delete", "--url", d.url(), "--key", "wrong", "--keep-for", "1h", "--execute").exit(0)
		w := observe(t, d)
		s = o.run(t, "trash", "purge", "--url", d.url(), "--all", "--execute", "--format", "json").exit(0).summary()
		s.outcomes(map[string]int64{"drained": 1})
		if *s.ElementsRemoved != 2000 || d.size(t) != 1 {
			s.from.error("%d removed, %d keys left", *s.ElementsRemoved, d.size(t))
		}
		w.nothingSlow(t)
	})
}

// What was kept for a job is finished by its next run once it is due.
func TestTrashDue(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		load(t, d, 0, "set", "old:1", 3000)
		o := newOperator(t)
		file := o.file(t, "jobs.yaml", "targets:\n  t: {addresses: [\""+d.masters[0].addr+"\"]}\njobs:\n"+
			"  - {name: sweep, target: t, select: {prefix: \"old:\"}, action: {delete: {keep_for: 1s}}, mode: execute}\n"+
			"  - {name: other, target: t, select: {prefix: \"none:\"}, action: {delete: {}}, mode: execute}\n")
		run := func(job string) summary {
			return o.run(t, "run", "--config", file, "--job", job, "--format", "json").exit(0).runs()[job]
		}
		run("sweep").outcomes(map[string]int64{"trashed": 1})
		eventually(t, 20*time.Second, "the job finishes what is due", func() bool {
			run("other").outcomes(nil) // it is not its own
			s := run("sweep")
			if s.Outcomes["finished"] == 0 {
				return false
			}
			if *s.ElementsRemoved != 3000 {
				s.from.error("%d elements removed", *s.ElementsRemoved)
			}
			return true
		})
		if n := d.size(t); n > 1 { // the lock may be about to expire
			t.Errorf("%d keys left", n)
		}
	})
}

// A stream is removed whatever its groups hold, and no server dies of it.
func TestStreams(t *testing.T) {
	t.Parallel()
	eachServerThat(t, func(b serverBinary) bool { return b.major >= 5 }, "has no streams", func(t *testing.T, b serverBinary) {
		d := standalone(t, b, slow20ms)
		m := d.masters[0]
		m.pipeline(t, 0, func(p redis.Pipeliner) {
			for name, n := range map[string]int{"big": 20_000, "small": 5, "bare": 5} {
				for i := range n {
					p.Do(t.Context(), "XADD", name, strconv.Itoa(i+1)+"-1", "f", "v")
				}
				p.Do(t.Context(), "XGROUP", "CREATE", name, "idle", "0")
				p.Do(t.Context(), "XGROUP", "CREATE", name, "busy", "0")
			}
		})
		m.do(t, 0, "XREADGROUP", "GROUP", "busy", "me", "COUNT", "10000", "STREAMS", "big", ">")
		m.do(t, 0, "XGROUP", "DESTROY", "bare", "idle")
		m.do(t, 0, "XGROUP", "DESTROY", "bare", "busy")
		load(t, d, 0, "list", "neighbour", 100)
		before := digestOf(t, d)
		o := newOperator(t)
		w := observe(t, d)
		s := o.run(t, "clean", "--url", d.url(), "--type", "stream", "--all-keys", "--execute", "--format", "json").exit(0).summary()
		if s.removed() != 3 || *s.ElementsRemoved != 20_010 {
			s.from.error("%d streams and %d entries removed", s.removed(), *s.ElementsRemoved)
		}
		w.nothingSlow(t)
		mustEqual(t, before, digestOf(t, d), keyID{0, "big"}, keyID{0, "small"}, keyID{0, "bare"})
	})
}

// What a slip of the hand in the trash may not cost: another key whose name
// differs by a blank, the value of a protected name, a value that was in use,
// or one swap after another.
func TestTrashSlips(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		o := newOperator(t)
		set := func(name, value string) { m.do(t, 0, "SET", name, value) }
		keep := func(long string, names ...string) {
			cmd := []string{"delete", "--url", d.url(), "--keep-for", long, "--execute"}
			for _, n := range names {
				cmd = append(cmd, "--key="+n)
			}
			o.run(t, cmd...).exit(0)
		}
		verb := func(verb string, more ...string) result {
			return o.run(t, args("trash", verb, "--execute", "--format", "json", more)...)
		}

		set("foo", "without")
		set("foo ", "with a blank")
		keep("1h", "foo", "foo ")
		verb("purge", "--url", d.url(), "--key", "foo ").exit(0)
		verb("restore", "--url", d.url(), "--all").exit(0)
		if v := m.do(t, 0, "GET", "foo"); v != "without" || d.size(t) != 1 {
			t.Errorf("foo is %v, %d keys", v, d.size(t))
		}

		set("session:1", "old")
		keep("1h", "session:1")
		set("session:1", "now")
		conf := o.file(t, "protect.yaml", "targets:\n  t: {addresses: [\""+m.addr+"\"]}\nprotect: [\"session:*\"]\n")
		verb("restore", "--config", conf, "--key", "session:1", "--swap").exit(3).summary().outcomes(map[string]int64{"failed": 1})
		if v := m.do(t, 0, "GET", "session:1"); v != "now" {
			t.Errorf("a protected name was swapped: %v", v)
		}
		verb("purge", "--url", d.url(), "--all").exit(0)

		// What is swapped out is not due at once, however late its other was.
		set("x", "old")
		keep("1ms", "x")
		set("x", "in use")
		verb("restore", "--url", d.url(), "--key", "x", "--swap").exit(0).summary().outcomes(nil)
		o.run(t, "clean", "--url", d.url(), "--prefix", "nothing:", "--execute").exit(0)
		verb("restore", "--url", d.url(), "--key", "x", "--as", "y").exit(0)
		if v := m.do(t, 0, "GET", "y"); v != "in use" {
			t.Errorf("what was swapped out is %v", v)
		}

		// Of several of one name one comes back, once.
		for _, v := range []string{"1", "2", "3"} {
			set("many", v)
			keep("1h", "many")
		}
		set("many", "now")
		s := verb("restore", "--url", d.url(), "--key", "many", "--swap").exit(3).summary()
		s.outcomes(map[string]int64{"failed": 2})
		if v := m.do(t, 0, "GET", "many"); v == "now" || s.Outcomes["restored"] != 1 {
			s.from.error("many is %v", v)
		}
	})
}
