package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A plan is carried out as it was written: on exactly its keys, whatever they
// are called, each judged again.
func TestPlan(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		for _, c := range []struct {
			name   string
			kind   string
			flags  []string
			change func(key string) []any // after it a key no longer meets the rule
		}{
			{"delete", "set", []string{"--min-elements", "20"}, func(k string) []any { return []any{"SREM", k, "member:1"} }},
			{"drain", "hash", []string{"--method", "drain", "--no-ttl"}, func(k string) []any { return []any{"EXPIRE", k, 1000} }},
			{"trim", "list", []string{"--action", "trim", "--keep", "10", "--keep-end", "tail"}, func(k string) []any { return []any{"LTRIM", k, -10, -1} }},
			{"trim by score", "zset", []string{"--action", "trim", "--older-than", "1h", "--score", "unix_seconds", "--min-elements", "20"},
				func(k string) []any { return []any{"ZREM", k, "member:1"} }},
			{"expire", "string", []string{"--action", "expire", "--ttl", "1h", "--jitter", "10%"}, func(k string) []any { return []any{"EXPIRE", k, 60} }},
		} {
			t.Run(c.name, func(t *testing.T) {
				d.flush(t)
				o := newOperator(t)
				for _, n := range hostileNames() {
					load(t, d, 0, c.kind, "old:"+n, 20)
				}
				bystand(t, d, 0, 30)
				before := digestOf(t, d)
				all, _ := before.withPrefix("old:")
				orders := int64(len(all))
				base := args("clean", "--url", d.url(), "--prefix", "old:", c.flags, "--format", "json")
				// A plan is written instead of acting, not besides.
				o.run(t, args(base, "--plan", "plan.jsonl", "--execute")...).exit(2)
				s := o.run(t, args(base, "--plan", "plan.jsonl")...).exit(0).summary()
				s.outcomes(map[string]int64{"would_act": orders})
				mustEqual(t, before, digestOf(t, d))

				// Keys that came after it, that left, and that changed.
				load(t, d, 0, c.kind, "old:later", 20)
				m.do(t, 0, "DEL", all[0].name)
				m.do(t, 0, c.change(all[1].name)...)
				m.do(t, 0, "DEL", all[2].name)
				load(t, d, 0, map[bool]string{true: "hash", false: "list"}[c.kind != "hash"], all[2].name, 20)
				mid := digestOf(t, d)
				apply := args("clean", "--url", d.url(), "--apply", "plan.jsonl", "--format", "json")
				s = o.run(t, apply...).exit(0).summary()
				changed := int64(2)
				s.outcomes(map[string]int64{"would_act": orders - 1 - changed, "changed": changed, "gone": 1})
				mustEqual(t, mid, digestOf(t, d))
				// What to do is in the plan, and nowhere else.
				for _, more := range [][]string{{"--prefix", "new:"}, {"--min-elements", "1"}, {"--keep", "3"}, {"--action", "delete"}, {"--plan", "other.jsonl"}} {
					o.run(t, args(apply, more, "--execute")...).exit(2)
				}
				mustEqual(t, mid, digestOf(t, d))

				s = o.run(t, args(apply, "--execute")...).exit(0).summary()
				after := digestOf(t, d)
				touched := map[keyID]bool{}
				for _, k := range all[3:] {
					touched[k] = true
					is, there := after[k]
					switch {
					case c.kind == "set" || c.kind == "hash" || c.kind == "zset":
						if there {
							t.Errorf("%v is there", k)
						}
					case c.kind == "list" && is.elements != 10:
						t.Errorf("%v has %d elements", k, is.elements)
					case c.kind == "string" && is.expires.IsZero():
						t.Errorf("%v has no TTL", k)
					}
				}
				for k, was := range mid {
					if is := after[k]; !touched[k] && (is.sum != was.sum || is.expires.IsZero() != was.expires.IsZero()) {
						t.Errorf("%v is not in the plan, or changed, and was touched", k)
					}
				}
				if s.Outcomes["changed"] != changed || s.Outcomes["gone"] != 1 || s.Outcomes["failed"] != 0 {
					s.from.error("2 changed and 1 is gone")
				}
			})
		}
	})
}

// A plan that is not whole, not as it was written, or for another target is
// refused before anything happens.
func TestPlanRefused(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d, other := standalone(t, b), standalone(t, b)
		for _, s := range []*deployment{d, other} {
			l := newLoader(t, s.masters[0].addr, 0)
			for i := range 50 {
				l.fill("set", fmt.Sprintf("old:%d", i), 5)
			}
			l.close()
			bystand(t, s, 0, 20)
		}
		before, there := digestOf(t, d), digestOf(t, other)
		o := newOperator(t)
		o.run(t, "clean", "--url", d.url(), "--prefix", "old:", "--plan", "plan.jsonl").exit(0)
		whole := string(o.read(t, "plan.jsonl"))
		lines := strings.SplitAfter(whole, "\n")
		lines = lines[:len(lines)-1]
		head, orders, end := lines[0], lines[1:len(lines)-1], lines[len(lines)-1]
		if len(orders) != 50 {
			t.Fatalf("%d orders, want 50", len(orders))
		}
		// Edited by somebody who can count, and has the digest right.
		with := func(field, value string) string {
			var h map[string]json.RawMessage
			if err := json.Unmarshal([]byte(head), &h); err != nil {
				t.Fatal(err)
			}
			h[field] = json.RawMessage(value)
			text, _ := json.Marshal(h)
			body := string(text) + "\n" + strings.Join(orders, "")
			return body + fmt.Sprintf("{\"summary\":{\"orders\":50,\"sha256\":\"%x\"}}\n", sha256.Sum256([]byte(body)))
		}
		o.file(t, "same.jsonl", with("plan", "1"))
		o.run(t, "clean", "--url", d.url(), "--apply", "same.jsonl").exit(0)
		for name, text := range map[string]string{
			"empty":                    "",
			"cut off in a line":        whole[:len(whole)-3],
			"cut off after a line":     head + strings.Join(orders, ""),
			"cut off in the middle":    head + strings.Join(orders[:20], ""),
			"an order less":            head + strings.Join(orders[1:], "") + end,
			"an order more":            head + strings.Join(orders, "") + `{"key":"bystander:1","db":0}` + "\n" + end,
			"no head":                  strings.Join(lines[1:], ""),
			"another version":          with("plan", "2"),
			"another target":           with("target", `"elsewhere"`),
			"an unknown condition":     with("select", `{"prefix":["old:"],"min_elephants":5}`),
			"no action":                with("action", `{}`),
			"two actions":              with("action", `{"delete":{"method":"auto"},"expire":{"ttl":"1h"}}`),
			"an unknown action":        with("action", `{"flush":{}}`),
			"an action with no number": with("action", `{"trim":{"keep_end":"tail"}}`),
			"an impossible trim":       with("action", `{"trim":{"keep":-1,"keep_end":"tail"}}`),
			"another key":              head + strings.Replace(strings.Join(orders, ""), `"old:1"`, `"old:x"`, 1) + end,
			"another limit":            strings.Replace(whole, `"prefix":["old:"]`, `"prefix":["o"]`, 1),
			"an order that is none":    head + strings.Join(orders[:49], "") + "{}\n" + end,
			"an order that is no JSON": head + strings.Join(orders[:49], "") + "old:1\n" + end,
			"a report":                 `{"target":"x","mode":"report"}` + "\n",
		} {
			o.file(t, "broken.jsonl", text)
			r := o.run(t, "clean", "--url", d.url(), "--apply", "broken.jsonl", "--execute", "--format", "json")
			if r.code != 2 {
				r.error("%s: exit status %d, want 2", name, r.code)
			}
			mustEqual(t, before, digestOf(t, d))
		}
		o.run(t, "clean", "--url", d.url(), "--apply", "absent.jsonl", "--execute").exit(2)
		// The keys are there, too; the plan is not for them.
		o.run(t, "clean", "--url", other.url(), "--apply", "plan.jsonl", "--execute").exit(2).says(d.masters[0].addr)
		mustEqual(t, there, digestOf(t, other))
		for _, action := range [][]string{{"defuse", "--ttl-under", "1m"}, {"prune-index", "--older-than", "1h", "--value", "unix_seconds"}} {
			o.run(t, args("clean", "--url", d.url(), "--prefix", "old:", "--action", action, "--plan", "other.jsonl")...).exit(2)
		}
		if _, err := os.Stat(filepath.Join(o.dir, "other.jsonl")); err == nil {
			t.Error("a plan was written that can't be carried out")
		}
		// Nothing was used up.
		o.run(t, "clean", "--url", d.url(), "--apply", "plan.jsonl", "--execute").exit(0)
		old, _ := before.withPrefix("old:")
		mustEqual(t, before, digestOf(t, d), old...)
	})
}

// A plan names the database of each key.
func TestPlanPlaces(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		for _, db := range []int{0, 3, 9} {
			load(t, d, db, "set", "old:same", 5+db)
			load(t, d, db, "set", "kept", 5)
		}
		before := digestOf(t, d)
		o := newOperator(t)
		o.run(t, "clean", "--url", d.url(), "--prefix", "old:", "--min-elements", "8", "--plan", "plan.jsonl").exit(0)
		load(t, d, 0, "set", "old:same", 20) // it meets the rule by now, and is not in the plan
		before = digestOf(t, d)
		o.run(t, "clean", "--url", d.url(), "--apply", "plan.jsonl", "--execute").exit(0)
		mustEqual(t, before, digestOf(t, d), keyID{3, "old:same"}, keyID{9, "old:same"})
	})
}
