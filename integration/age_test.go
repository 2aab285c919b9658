package integration

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// units are what a score can be, and how many of them a second has.
var units = map[string]float64{"unix_seconds": 1, "unix_millis": 1000}

// clockOf is the server's time in a unit.
func (s *server) clockOf(t *testing.T, unit string) float64 {
	t.Helper()
	now := s.do(t, 0, "TIME").([]any)
	seconds, _ := strconv.ParseFloat(now[0].(string), 64)
	return seconds * units[unit]
}

func scoreText(f float64) string { return strconv.FormatFloat(f, 'g', 17, 64) }

// A sorted set loses exactly what scores below the cutoff, whatever scores
// there are.
func TestTrimByScore(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		rnd := seeded(t)
		for unit, per := range units {
			t.Run(unit, func(t *testing.T) {
				d.flush(t)
				now := m.clockOf(t, unit)
				day := 86_400 * per
				cutoff, clear := now-day, 600*per // nothing scores near the cutoff, which moves
				above := func() float64 { return cutoff + clear + rnd.Float64()*2*day }
				below := func() float64 { return cutoff - clear - rnd.Float64()*day }
				sets := map[string]func(i int) float64{
					"mixed":     func(i int) float64 { return []func() float64{above, below}[i%2]() },
					"all old":   func(int) float64 { return below() },
					"all young": func(int) float64 { return above() },
					"ties":      func(i int) float64 { return []float64{cutoff - clear, now}[i%2] },
					"tied runs": func(i int) float64 { return cutoff - clear - float64(i/700) },
					"whole":     func(i int) float64 { return math.Trunc(cutoff) + float64(2*i-4999)/2*clear },
					"infinite":  func(i int) float64 { return []float64{math.Inf(-1), math.Inf(1)}[i%2] },
					// 2^53+1 is none of the numbers that a score can be; its neighbours are.
					"large":    func(i int) float64 { return float64(int64(1<<53)+int64(i-2500)) * []float64{-1, 1}[i%2] },
					"fraction": func(i int) float64 { return []float64{now, 0.1}[i%2] + float64(i)*1e-9 },
				}
				l := newLoader(t, m.addr, 0)
				for name, f := range sets {
					for i := range 5000 {
						l.cmd("ZADD", "age:"+name, scoreText(f(i)), fmt.Sprintf("member:%d", i))
					}
				}
				// Of one entry, on either side.
				l.cmd("ZADD", "age:one old", scoreText(below()), "x")
				l.cmd("ZADD", "age:one young", scoreText(now), "x")
				for _, kind := range []string{"hash", "list", "set", "string"} {
					l.fill(kind, "age:other:"+kind, 100)
				}
				l.close()
				before := digestOf(t, d)
				want := map[string][]string{}
				trimmed, removed := int64(0), int64(0)
				for k, is := range before {
					if is.kind != "zset" {
						continue
					}
					all := m.content(t, 0, k.name)
					rows, _ := m.do(t, 0, "ZRANGEBYSCORE", k.name, scoreText(cutoff), "+inf").([]any)
					want[k.name] = all[len(all)-len(rows):]
					if n := len(all) - len(rows); n > 0 {
						removed += int64(n)
						trimmed++
					}
				}
				o := newOperator(t)
				base := args("clean", "--url", d.url(), "--prefix", "age:", "--action", "trim", "--older-than", "24h", "--score", unit, "--format", "json")
				s := o.run(t, base...).exit(0).summary()
				mustEqual(t, before, digestOf(t, d))
				s.outcomes(map[string]int64{"would_act": trimmed, "changed": int64(len(want)) - trimmed})
				s = o.run(t, args(base, "--execute")...).exit(0).summary()
				s.outcomes(map[string]int64{"trimmed": trimmed, "changed": int64(len(want)) - trimmed})
				if *s.ElementsRemoved != removed {
					s.from.error("elements_removed %d, want %d", *s.ElementsRemoved, removed)
				}
				var gone []keyID
				for name, list := range want {
					m.mustHold(t, name, list)
					if len(list) == 0 {
						gone = append(gone, keyID{0, name})
					}
				}
				after := digestOf(t, d)
				for _, k := range gone {
					if _, there := after[k]; there {
						t.Errorf("%v is empty and there", k)
					}
				}
				for k, is := range before {
					if is.kind != "zset" && after[k].sum != is.sum {
						t.Errorf("%v was touched", k)
					}
				}
				s = o.run(t, args(base, "--execute")...).exit(0).summary()
				s.outcomes(map[string]int64{"changed": int64(len(want) - len(gone))})
				mustEqual(t, after, digestOf(t, d))
			})
		}
	})
}

// Scores of another unit are no reason to empty a sorted set.
func TestTrimWrongUnit(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		l := newLoader(t, m.addr, 0)
		for unit := range units {
			now := m.clockOf(t, unit)
			for i := range 2000 {
				l.cmd("ZADD", "delay:"+unit, scoreText(now-float64(i)), fmt.Sprint(i))
			}
		}
		l.close()
		before := digestOf(t, d)
		o := newOperator(t)
		for unit, other := range map[string]string{"unix_millis": "unix_seconds", "unix_seconds": "unix_millis"} {
			r := o.run(t, "clean", "--url", d.url(), "--match", "delay:"+other, "--action", "trim", "--older-than", "1h", "--score", unit, "--execute", "--format", "json")
			if unit == "unix_millis" {
				r.exit(3).summary().outcomes(map[string]int64{"failed": 1})
				if !strings.Contains(r.stdout, "unix_seconds?") {
					r.error("does not say what the scores look like")
				}
			} else {
				r.exit(0).summary().outcomes(map[string]int64{"changed": 1})
			}
			mustEqual(t, before, digestOf(t, d))
		}
	})
}

// What gets a later score during the trim stays, also where the command that
// removes it is on its way, and is sent again.
func TestTrimScoreMoves(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		for _, form := range []string{"zset", "ties"} {
			t.Run(form, func(t *testing.T) {
				d := standalone(t, b, w.opts...)
				m := d.masters[0]
				l := newLoader(t, m.addr, 0)
				for i := range 2500 {
					at := 1000
					if form == "zset" {
						at += i
					}
					l.cmd("ZADD", "delay", strconv.Itoa(at), fmt.Sprint(i))
				}
				l.close()
				now := m.clockOf(t, "unix_seconds")
				var moved []string
				var late [][]string
				other := newWire(t, m.addr)
				p := startProxy(t, m, func(c *passing) {
					n := len(moved)
					switch c.verb() {
					case "EVALSHA", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK":
						// The last that may go in this step, and the first of the next.
						for _, rank := range []string{"0", "99", "150"} {
							if rows, _ := m.client(0).Do(t.Context(), "ZRANGE", "delay", rank, rank).StringSlice(); len(rows) > 0 && n < 30 {
								moved = append(moved, rows[0])
								_, _ = other.send([]string{"ZADD", "delay", scoreText(now), rows[0]})
							}
						}
						// By rank only under WATCH, in a MULTI that nobody can execute again.
						if slices.Contains(c.args, "delay") && c.verb() != "ZREMRANGEBYRANK" {
							late = append(late, c.args)
							_, _ = other.send(late[len(late)/2])
						}
					}
				}, nil)
				o := newOperator(t)
				base := args("clean", through(t, o, d, []*proxy{p}), "--match", "delay", "--action", "trim", "--older-than", "1h",
					"--score", "unix_seconds", "--execute", "--format", "json")
				for range 5 { // by WATCH somebody is always in the way, until he gives up
					if o.run(t, base...).exit(0, 3).code == 0 {
						break
					}
				}
				for _, c := range late {
					_, _ = other.send(c)
				}
				slices.Sort(moved)
				got := m.content(t, 0, "delay")
				slices.Sort(got)
				if moved = slices.Compact(moved); !slices.Equal(got, moved) {
					t.Errorf("%d members were moved up and %d are there", len(moved), len(got))
				}
			})
		}
	})
}

// A sorted set of one score is drained and trimmed in steps like any other.
func TestTrimTies(t *testing.T) {
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, append(w.opts, logAll)...)
		m := d.masters[0]
		n := size.zset
		if size.name == "full" {
			n = 5_000_000
		}
		o := newOperator(t)
		for name, verb := range map[string][]string{
			"drained":           {"--method", "drain"},
			"trimmed by score":  {"--action", "trim", "--older-than", "24h", "--score", "unix_seconds"},
			"trimmed by number": {"--action", "trim", "--keep", "100", "--keep-end", "highest"},
		} {
			d.flush(t)
			load(t, d, 0, "ties", "delay:ties", n) // a time of the year 2023
			m.do(t, 0, "ZADD", "delay:ties", scoreText(m.clockOf(t, "unix_seconds")), "now")
			obs := observe(t, d)
			p := startProbe(t, m)
			r := o.run(t, args("clean", "--url", d.url(), "--match", "delay:ties", verb, "--execute", "--format", "json")...)
			felt := p.end()
			r.exit(0)
			obs.nothingSlow(t, "EVAL", "EVALSHA") // each removes one batch
			var worst logged
			for _, l := range obs.journal(t) {
				if l.took > worst.took && !slices.Contains(ours, l.verb()) {
					worst = l
				}
			}
			t.Logf("%d members %s in %v, longest command %v; neighbour: %v", n, name, r.took.Round(time.Millisecond), worst, felt)
			s := r.summary()
			outcome, left := "trimmed", map[string]int64{"drained": 0, "trimmed by score": 1, "trimmed by number": 100}[name]
			if name == "drained" {
				outcome = name
			}
			s.outcomes(map[string]int64{outcome: 1})
			if got := m.doInt(t, 0, "ZCARD", "delay:ties"); got != left || *s.ElementsRemoved != int64(n)+1-left {
				s.from.error("%d left, want %d; %d removed", got, left, *s.ElementsRemoved)
			}
		}
	})
}
