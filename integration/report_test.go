package integration

import (
	"encoding/json"
	"strings"
	"testing"
)

// The report of a real scan is read back whole, joined with another server's,
// compared with a later one, and shown as a page; a run's metrics name no key.
func TestReports(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		one, two := standalone(t, b), standalone(t, b)
		load(t, one, 0, "hash", "mii:0", 20_000)
		load(t, one, 0, "list", "\xff<b>:1", 12_000)
		load(t, two, 1, "set", "online:users", 11_000)
		o := newOperator(t)
		scan := func(d *deployment, name string) {
			o.run(t, args("scan", "--url", d.url(), atLeast(10_000), "--format", "json", "--output", name, "--metrics-file", "m.prom")...).exit(0)
		}
		scan(one, "one.json")
		scan(two, "two.json")
		if got := o.run(t, "report", "show", "--format", "json", "one.json").exit(0).stdout; got != string(o.read(t, "one.json")) {
			t.Errorf("read back:\n%s\nwant\n%s", got, o.read(t, "one.json"))
		}
		r := o.run(t, "report", "merge", "one.json", "two.json").exit(0)
		s := r.decode([]byte(r.stdout))
		s.complete(true)
		if len(s.Shards) != 2 || s.KeysMatched != 3 || len(s.Findings) != 3 || s.Findings[0].name(t) != "mii:0" {
			r.error("not the whole")
		}
		o.run(t, "report", "merge", "one.json", "one.json").exit(2).says("count twice")

		load(t, one, 0, "hash", "mii:1", 15_000)
		one.masters[0].do(t, 0, "DEL", "\xff<b>:1")
		scan(one, "later.json")
		r = o.run(t, "report", "diff", "--format", "json", "one.json", "later.json").exit(0)
		var d struct {
			Findings struct{ New, Gone, Grown, Shrunk []finding }
		}
		if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
			r.fatal("%v", err)
		}
		f := d.Findings
		if len(f.New) != 1 || f.New[0].name(t) != "mii:1" || len(f.Gone) != 1 || f.Gone[0].name(t) != "\xff<b>:1" || len(f.Grown)+len(f.Shrunk) != 0 {
			r.error("not what changed")
		}

		r = o.run(t, args("scan", "--url", one.url(), atLeast(10_000), "--format", "html")...).exit(0)
		if page := r.stdout; !strings.HasPrefix(page, "<!DOCTYPE html>") || !strings.Contains(page, "mii:1") || strings.Contains(page, "<script") {
			r.error("no such page")
		}
		if text := string(o.read(t, "m.prom")); !strings.Contains(text, "keyjanitor_keys_matched") || strings.Contains(text, "mii") {
			t.Errorf("metrics:\n%s", text)
		}
	})
}
