package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// noRename are the ways in which nothing can be set aside.
var noRename = []struct {
	name   string
	opt    option
	user   bool
	offers func(serverBinary) bool
}{
	{"RENAMENX renamed away", `rename-command RENAMENX ""`, false, func(serverBinary) bool { return true }},
	{"RENAMENX refused by ACL", "user " + noUnlinkU + " on >" + noUnlinkP + " ~* +@all -renamenx", true, serverBinary.hasACL},
}

// Where nothing can be set aside a key is drained under its own name, if the
// operator consents, and else is left alone. It does not run beside others, for
// it reads the slow log.
func TestInPlace(t *testing.T) {
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		for _, form := range noRename {
			if !form.offers(b) {
				continue
			}
			t.Run(form.name, func(t *testing.T) {
				d := standalone(t, b, append(w.opts, form.opt, slow20ms)...)
				url := d.url()
				if form.user {
					url = strings.Replace(url, "redis://", "redis://"+noUnlinkU+":"+noUnlinkP+"@", 1)
				}
				bystand(t, d, 0, 100)
				var gone []keyID
				elements := int64(0)
				for _, kind := range aggregates {
					for _, n := range []int{1001, 20_000} {
						k := keyID{0, fmt.Sprintf("big:%s:%d", kind, n)}
						load(t, d, 0, kind, k.name, n)
						gone = append(gone, k)
						elements += int64(n)
					}
				}
				before := digestOf(t, d)
				o := newOperator(t)
				base := args("clean", "--url", url, "--prefix", "big:", "--method", "drain", "--format", "json")
				s := o.run(t, args(base, "--execute")...).exit(3).summary()
				s.outcomes(map[string]int64{"failed": 8})
				if r := s.Findings[0].Reason; !strings.Contains(r, "+renamenx") || !strings.Contains(r, "--in-place") {
					s.from.error("does not say what is missing: %q", r)
				}
				mustEqual(t, before, digestOf(t, d))
				o.run(t, args(base, "--in-place", "--keep-for", "1h", "--execute")...).exit(2)
				s = o.run(t, args(base, "--in-place")...).exit(0).summary()
				s.outcomes(map[string]int64{"would_act": 8})
				mustEqual(t, before, digestOf(t, d))

				obs := observe(t, d)
				s = o.run(t, args(base, "--in-place", "--execute")...).exit(0).summary()
				obs.nothingSlow(t)
				obs.nothingForbidden(t)
				s.outcomes(map[string]int64{"drained": 8})
				if *s.ElementsRemoved != elements {
					s.from.error("elements_removed %d, want %d", *s.ElementsRemoved, elements)
				}
				mustEqual(t, before, digestOf(t, d), gone...)
				if text := o.state(t); !strings.Contains(text, "big:hash:20000") || !strings.Contains(text, "in_place") {
					t.Error("the audit does not say what was done")
				}
			})
		}
	})
}

// A writer that puts something in meanwhile ends the drain, whenever it comes,
// and what it wrote is there.
func TestInPlaceWriter(t *testing.T) {
	t.Parallel()
	writes := map[string][]string{"hash": {"HSET", "big", "new", "x"}, "set": {"SADD", "big", "new"},
		"list": {"RPUSH", "big", "new"}, "zset": {"ZADD", "big", "9e9", "new"}}
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, append(w.opts, noRename[0].opt)...)
		m := d.masters[0]
		for _, kind := range aggregates {
			for _, at := range []string{"WATCH", "MULTI", "EXEC"} {
				t.Run(kind+" at "+at, func(t *testing.T) {
					d.flush(t)
					load(t, d, 0, kind, "big", 12_000)
					other := newWire(t, m.addr)
					n := 0
					p := startProxy(t, m, func(c *passing) {
						if c.verb() != at || !slices.Contains(append(c.near, c.args...), "big") {
							return
						}
						if n++; n == 3 { // two steps are done
							if _, err := other.send(writes[kind]); err != nil {
								t.Error(err)
							}
						}
					}, nil)
					o := newOperator(t)
					s := o.run(t, args("clean", through(t, o, d, []*proxy{p}), "--match", "big", "--method", "drain", "--in-place", "--execute", "--format", "json")...).exit(0).summary()
					s.outcomes(map[string]int64{"changed": 1})
					if !strings.Contains(s.Findings[0].Reason, "written to") {
						s.from.error("does not say why: %q", s.Findings[0].Reason)
					}
					left := m.doInt(t, 0, map[string]string{"hash": "HLEN", "set": "SCARD", "list": "LLEN", "zset": "ZCARD"}[kind], "big")
					if *s.ElementsRemoved+left != 12_001 || left < 2 {
						s.from.error("%d removed of 12,001, %d left", *s.ElementsRemoved, left)
					}
					there := m.do(t, 0, map[string][]any{"hash": {"HEXISTS", "big", "new"}, "set": {"SISMEMBER", "big", "new"},
						"list": {"LINDEX", "big", -1}, "zset": {"ZSCORE", "big", "new"}}[kind]...)
					if there == int64(0) || there == nil || kind == "list" && there != "new" {
						t.Errorf("what was written is not there: %v", there)
					}
				})
			}
		}
	})
}

// A stream, whose groups are more than its entries, is not drained in place.
func TestInPlaceStream(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasStreams, "has no streams", func(t *testing.T, b serverBinary) {
		d := standalone(t, b, noRename[0].opt)
		l := newLoader(t, d.masters[0].addr, 0)
		l.entries("stream", "log", 5000)
		l.close()
		before := digestOf(t, d)
		s := newOperator(t).run(t, "clean", "--url", d.url(), "--match", "log", "--method", "drain", "--in-place", "--execute", "--format", "json").exit(3).summary()
		s.outcomes(map[string]int64{"failed": 1})
		mustEqual(t, before, digestOf(t, d))
	})
}
