package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// eachStreamServer runs on the servers that have streams, with scripts: there
// is no other way to trim what groups read.
func eachStreamServer(t *testing.T, fn func(t *testing.T, d *deployment)) {
	t.Helper()
	eachServerThat(t, serverBinary.hasStreams, "has no streams", func(t *testing.T, b serverBinary) { fn(t, standalone(t, b)) })
}

// group makes a group of a stream that has read up to the entry of a place,
// and acknowledged all of it but for the places in pending; 0: the first.
func group(t *testing.T, s *server, key, name string, read int, pending ...int) {
	t.Helper()
	s.do(t, 0, "XGROUP", "CREATE", key, name, "0")
	if read == 0 {
		return
	}
	rows := s.do(t, 0, "XREADGROUP", "GROUP", name, "me", "COUNT", read, "STREAMS", key, ">").([]any)[0].([]any)[1].([]any)
	ack := []any{"XACK", key, name}
	for i, row := range rows {
		if !slices.Contains(pending, i) {
			ack = append(ack, row.([]any)[0])
		}
	}
	if len(ack) > 3 {
		s.do(t, 0, ack...)
	}
}

// A trim of a stream stops at the first entry that a group has not
// acknowledged, be it pending or not delivered yet.
func TestTrimUnacknowledged(t *testing.T) {
	t.Parallel()
	const n, keep = 3000, 500
	eachStreamServer(t, func(t *testing.T, d *deployment) {
		m := d.masters[0]
		o := newOperator(t)
		for _, c := range []struct {
			name   string
			groups func(key string)
			first  int // the place of the first entry that stays; n-keep: nobody is in the way
		}{
			{"no group", func(string) {}, n - keep},
			{"all read", func(k string) { group(t, m, k, "g", n) }, n - keep},
			{"pending", func(k string) { group(t, m, k, "g", n, 700, 2000) }, 700},
			{"the first pending", func(k string) { group(t, m, k, "g", n, 0) }, 0},
			{"pending in what stays", func(k string) { group(t, m, k, "g", n, n-keep, n-1) }, n - keep},
			{"the last that goes is pending", func(k string) { group(t, m, k, "g", n, n-keep-1) }, n - keep - 1},
			{"not delivered", func(k string) { group(t, m, k, "g", 1234) }, 1234},
			{"delivered up to what stays", func(k string) { group(t, m, k, "g", n-keep) }, n - keep},
			{"created at 0", func(k string) { group(t, m, k, "g", 0) }, 0},
			{"created at the end", func(k string) { m.do(t, 0, "XGROUP", "CREATE", k, "g", "$") }, n - keep},
			{"two groups", func(k string) { group(t, m, k, "fast", n, 900); group(t, m, k, "slow", 800) }, 800},
			{"two groups, otherwise", func(k string) { group(t, m, k, "slow", 900); group(t, m, k, "fast", n, 800) }, 800},
			{"pending and deleted", func(k string) {
				group(t, m, k, "g", n, 0, 1000)
				m.do(t, 0, "XDEL", k, m.content(t, 0, k)[0])
			}, -1},
			{"odd name of a group", func(k string) { group(t, m, k, "a\r\n\x00{g}", 100) }, 100},
		} {
			for _, by := range []string{"number", "age"} {
				t.Run(c.name+" by "+by, func(t *testing.T) {
					d.flush(t)
					l := newLoader(t, m.addr, 0)
					now := int(m.clockOf(t, "unix_millis"))
					ids := make([]string, n)
					for i := range ids { // 500 are younger than an hour, by far
						ids[i] = fmt.Sprintf("%d-%d", now-100*3_600_000+i, i%7)
						if i >= n-keep {
							ids[i] = fmt.Sprintf("%d-%d", now-60_000+i, i)
						}
					}
					l.xadd("log", ids...)
					l.close()
					c.groups("log")
					bystand(t, d, 0, 20)
					all := m.content(t, 0, "log")
					first := c.first
					if first < 0 { // one entry was deleted, and it stays pending
						first = 0
					}
					flags := []string{"--keep", strconv.Itoa(keep), "--keep-end", "newest"}
					if by == "age" {
						flags = []string{"--older-than", "1h", "--type", "stream"}
					}
					base := args("clean", "--url", d.url(), "--match", "log", "--action", "trim", flags, "--format", "json")
					before := digestOf(t, d)
					o.run(t, base...).exit(0).summary().outcomes(map[string]int64{"would_act": 1})
					mustEqual(t, before, digestOf(t, d))
					s := o.run(t, args(base, "--execute")...).exit(0).summary()
					m.mustHold(t, "log", all[first:])
					what := map[bool]string{true: "trimmed", false: "changed"}[first > 0]
					s.outcomes(map[string]int64{what: 1})
					if *s.ElementsRemoved != int64(first) {
						s.from.error("elements_removed %d, want %d", *s.ElementsRemoved, first)
					}
					mid := digestOf(t, d)
					o.run(t, args(base, "--execute")...).exit(0)
					mustEqual(t, mid, digestOf(t, d))
					s = o.run(t, args(base, "--force-unacknowledged", "--execute")...).exit(0).summary()
					m.mustHold(t, "log", all[len(all)-keep:])
				})
			}
		}
	})
}

// Identifiers are two numbers of 64 bits each; what was deleted between them,
// and what is not of our time, is nothing special.
func TestTrimStreamIDs(t *testing.T) {
	t.Parallel()
	eachStreamServer(t, func(t *testing.T, d *deployment) {
		m := d.masters[0]
		l := newLoader(t, m.addr, 0)
		var ids []string
		for _, ms := range []string{"0", "1", "9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807",
			"9223372036854775808", "18446744073709551614", "18446744073709551615"} {
			for _, seq := range []string{"1", "2", "9007199254740992", "9007199254740993", "18446744073709551614", "18446744073709551615"} {
				ids = append(ids, ms+"-"+seq)
			}
		}
		for _, key := range []string{"number", "read", "pending", "age"} {
			l.xadd("ids:"+key, ids...)
		}
		l.xadd("ids:holes", ids...)
		for i := range 10 {
			l.cmd("XDEL", "ids:holes", ids[2+i*5])
		}
		l.close()
		// Delivered, and acknowledged but for one, up to a neighbour that a
		// number of 53 bits does not tell from the next.
		group(t, m, "ids:read", "g", 21)
		group(t, m, "ids:pending", "g", len(ids), 27)
		o := newOperator(t)
		run := func(key string, flags ...string) result {
			return o.run(t, args("clean", "--url", d.url(), "--match", "ids:"+key, "--type", "stream", "--action", "trim", flags, "--execute", "--format", "json")...)
		}
		holes := m.content(t, 0, "ids:holes")
		for key, want := range map[string][]string{"number": ids[len(ids)-3:], "read": ids[21:], "pending": ids[27:], "holes": holes[len(holes)-3:]} {
			run(key, "--keep", "3").exit(0)
			m.mustHold(t, "ids:"+key, want)
		}
		// An age that began before there were computers.
		before := digestOf(t, d)
		run("age", "--older-than", "36500d").exit(0).summary().outcomes(map[string]int64{"changed": 1})
		mustEqual(t, before, digestOf(t, d))
		run("age", "--older-than", "1h").exit(0)
		m.mustHold(t, "ids:age", ids[12:])
	})
}

// Groups read and acknowledge while a stream is trimmed, and our commands are
// sent again: no entry goes that one of them still has to do.
func TestTrimBesideGroups(t *testing.T) {
	t.Parallel()
	eachStreamServer(t, func(t *testing.T, d *deployment) {
		m := d.masters[0]
		rnd := seeded(t)
		l := newLoader(t, m.addr, 0)
		for i := range 4000 {
			l.xadd("log", fmt.Sprintf("%d-1", 1000+i))
		}
		l.close()
		all := m.content(t, 0, "log")
		acked := map[string]map[string]bool{"a": {}, "b": {}}
		pending := map[string][]string{}
		for name := range acked {
			group(t, m, "log", name, 0)
		}
		client := m.client(0)
		work := func(name string, n int) {
			reply, err := client.Do(t.Context(), "XREADGROUP", "GROUP", name, "me", "COUNT", n, "STREAMS", "log", ">").Slice()
			if err == nil && len(reply) > 0 {
				for _, row := range reply[0].([]any)[1].([]any) {
					pending[name] = append(pending[name], row.([]any)[0].(string))
				}
			}
			rnd.Shuffle(min(20, len(pending[name])), func(i, j int) {
				pending[name][i], pending[name][j] = pending[name][j], pending[name][i]
			})
			for range min(n, len(pending[name])) {
				id := pending[name][0]
				if client.Do(t.Context(), "XACK", "log", name, id).Err() == nil {
					acked[name][id], pending[name] = true, pending[name][1:]
				}
			}
		}
		var mu sync.Mutex
		var late [][]string
		p := startProxy(t, m, func(c *passing) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(c.verb(), "EVAL") && slices.Contains(c.args, "log") {
				late = append(late, c.args)
			}
			if len(late) == 0 {
				return
			}
			work("a", 1+rnd.IntN(12))
			work("b", 1+rnd.IntN(12))
			words := []any{}
			for _, word := range late[rnd.IntN(len(late))] {
				words = append(words, word)
			}
			_ = client.Do(t.Context(), words...).Err()
		}, nil)
		o := newOperator(t)
		work("a", 100)
		work("b", 100)
		trimmed := 0
		for range 30 {
			o.run(t, args("clean", through(t, o, d, []*proxy{p}), "--match", "log", "--action", "trim", "--keep", 10, "--keep-end", "newest", "--execute")...).exit(0)
			mu.Lock()
			there := map[string]bool{}
			for _, id := range m.content(t, 0, "log") {
				there[id] = true
			}
			lost, due := 0, 0
			for _, id := range all {
				done := acked["a"][id] && acked["b"][id]
				if !done && !there[id] {
					lost++
				}
				if !done {
					due++
				}
			}
			mu.Unlock()
			if lost > 0 {
				t.Fatalf("%d entries are gone that a group has still to do", lost)
			}
			trimmed = len(all) - len(there)
			if due == 0 {
				break
			}
		}
		t.Logf("%d of %d trimmed, a acknowledged %d, b %d, %d commands of ours kept for later", trimmed, len(all), len(acked["a"]), len(acked["b"]), len(late))
		if trimmed < 100 {
			t.Error("hardly anything was trimmed: the test proves nothing")
		}
	})
}
