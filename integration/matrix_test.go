package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// series are the servers that the project speaks of; one that was not run is
// shown as such.
var series = []string{"redis 2.8", "redis 3.2", "redis 4.0", "redis 5.0", "redis 6.2", "redis 7.0", "redis 7.4", "redis 8.0", "valkey 8.0"}

// TestMethodTable deletes a big key of each type in each form and writes the
// table of what was used, as the servers' own counts confirm it.
func TestMethodTable(t *testing.T) {
	rows := map[string][]string{}
	t.Cleanup(func() { writeTable(t, rows) })
	eachServer(t, func(t *testing.T, b serverBinary) {
		name := fmt.Sprintf("%s %d.%d", b.product, b.major, b.minor)
		for _, f := range forms {
			label := f.name
			if !b.hasUnlink() && f.name == "as it is" {
				label = "as it is (no UNLINK)"
			}
			if !f.offers(b) {
				continue
			}
			t.Run(f.name, func(t *testing.T) {
				d := standalone(t, b, f.opts...)
				url := d.url()
				if f.user {
					url = strings.Replace(url, "redis://", "redis://"+noUnlinkU+":"+noUnlinkP+"@", 1)
				}
				o := newOperator(t)
				cells := []string{name, b.String(), label}
				for _, kind := range append([]string{"string"}, aggregates...) {
					cells = append(cells, tableCell(t, d, o, url, kind, f))
				}
				rows[name] = append(rows[name], "| "+strings.Join(cells, " | ")+" |")
			})
		}
	})
}

func tableCell(t *testing.T, d *deployment, o *operator, url, kind string, f form) string {
	t.Helper()
	load(t, d, 0, kind, "big", map[bool]int{true: 2_000_000, false: 20_000}[kind == "string"])
	w := observe(t, d)
	r := o.run(t, args("clean", "--url", url, "--match", "big", f.flags, "--execute", "--format", "json")...).exit(0)
	s := r.summary()
	if n := d.size(t); n != 0 || s.removed() != 1 || len(s.Findings) != 1 {
		r.error("%s: %d keys left, %d removed", kind, n, s.removed())
		return "failed"
	}
	fd := s.Findings[0]
	var verbs []string
	for _, v := range []string{"unlink", "renamenx", "ltrim", "hdel", "srem", "spop", "zremrangebyscore", "zremrangebyrank", "xtrim", "del"} {
		// What the server can do is found out by sending these, too, for a
		// key that does not exist.
		if asked := v == "unlink" && fd.Outcome != "unlinked" || v == "renamenx" && fd.Outcome != "drained"; asked {
			continue
		}
		if n := w.calls(t, v); n > 0 {
			verbs = append(verbs, strings.ToUpper(v))
		}
	}
	return fmt.Sprintf("%s (%s)", fd.Outcome, strings.Join(verbs, ", "))
}

func writeTable(t *testing.T, rows map[string][]string) {
	if len(rows) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString("| series | server | form | string | hash | set | list | zset |\n|---|---|---|---|---|---|---|---|\n")
	known := map[string]bool{}
	for _, name := range series {
		known[name] = true
		if len(rows[name]) == 0 {
			fmt.Fprintf(&b, "| %s | not run | | | | | | |\n", name)
		}
		for _, row := range rows[name] {
			b.WriteString(row + "\n")
		}
	}
	for name, list := range rows {
		if !known[name] {
			b.WriteString(strings.Join(list, "\n") + "\n")
		}
	}
	t.Log("\n" + b.String())
	if *updateTable != "" {
		if err := os.WriteFile(*updateTable, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestNeighbourOfDelete reports what a neighbour feels while a big key goes:
// by DEL, as nobody should, and by this program. It judges nothing.
func TestNeighbourOfDelete(t *testing.T) {
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, noUnlinkOn(b)...)
		m := d.masters[0]
		for _, kind := range aggregates {
			n := map[string]int{"hash": size.hash, "set": size.set, "list": size.list, "zset": size.zset}[kind]
			load(t, d, 0, kind, "big", n)
			p := startProbe(t, m)
			m.do(t, 0, "DEL", "big")
			t.Logf("%s of %d, DEL:        %v", kind, n, p.end())
			load(t, d, 0, kind, "big", n)
			o := newOperator(t)
			p = startProbe(t, m)
			r := o.run(t, "clean", "--url", d.url(), "--match", "big", "--execute", "--format", "json")
			t.Logf("%s of %d, keyjanitor: %v (in %v)", kind, n, p.end(), r.took)
			r.exit(0)
		}
	})
}
