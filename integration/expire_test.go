package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// lives is the TTL of a key in seconds; -1 without one.
func (s *server) lives(t *testing.T, key string) float64 {
	t.Helper()
	ms := s.doInt(t, 0, "PTTL", key)
	if ms < 0 {
		return float64(ms)
	}
	return float64(ms) / 1000
}

// Keys that live longer get a TTL, spread by their names; none is lengthened,
// a second run changes nothing, and a job does as the command line does.
func TestExpire(t *testing.T) {
	t.Parallel()
	const ttl, most = 3600.0, 5400.0
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		fill := func() digest {
			d.flush(t)
			l := newLoader(t, m.addr, 0)
			for i := range 300 {
				l.fill(kinds[i%len(kinds)], fmt.Sprintf("cache:none:%d", i), 1+i%20)
				for name, at := range map[string]int{"longer": 86_400, "within": 4500, "shorter": 60} {
					key := fmt.Sprintf("cache:%s:%d", name, i)
					l.cmd("SET", key, "x")
					l.cmd("EXPIRE", key, fmt.Sprint(at+i))
				}
			}
			l.close()
			for _, n := range hostileNames() {
				m.do(t, 0, "RPUSH", "cache:none:name:"+n, "x")
			}
			bystand(t, d, 0, 50)
			return digestOf(t, d)
		}
		due := int64(600 + len(hostileNames()))
		check := func(before, after digest) map[string]float64 {
			t.Helper()
			out := map[string]float64{}
			for k, was := range before {
				is, there := after[k]
				lives := time.Until(is.expires).Seconds()
				gets := strings.HasPrefix(k.name, "cache:none:") || strings.HasPrefix(k.name, "cache:longer:")
				switch {
				case !there || is.sum != was.sum:
					t.Errorf("%v is not what it was", k)
				case gets && (is.expires.IsZero() || lives < ttl-60 || lives > most+3):
					t.Errorf("%v lives for %.0f s", k, lives)
				case !gets && was.expires.Sub(is.expires).Abs() > 3*time.Second:
					t.Errorf("%v lives until %v, was %v", k, is.expires, was.expires)
				}
				if gets {
					out[k.name] = lives
				}
			}
			return out
		}
		o := newOperator(t)
		before := fill()
		base := args("clean", "--url", d.url(), "--prefix", "cache:", "--action", "expire", "--ttl", "1h", "--jitter", "50%", "--format", "json")
		o.run(t, base...).exit(0).summary().outcomes(map[string]int64{"would_act": due})
		mustEqual(t, before, digestOf(t, d))
		obs := observe(t, d)
		s := o.run(t, args(base, "--execute")...).exit(0).summary()
		obs.nothingForbidden(t, "config") // CONFIG GET: how does the server free what expires?
		s.outcomes(map[string]int64{"expired": due})
		if s.ElementsRemoved == nil || *s.ElementsRemoved != 0 {
			s.from.error("a TTL removes nothing")
		}
		after := digestOf(t, d)
		lives := check(before, after)
		thirds := [3]int{}
		for _, l := range lives {
			thirds[min(2, max(0, int((l-ttl)/600)))]++
		}
		for i, n := range thirds {
			if n < len(lives)/6 {
				t.Errorf("%d of %d keys expire in the third %d of the spread", n, len(lives), i)
			}
		}
		o.run(t, args(base, "--execute")...).exit(0).summary().outcomes(nil)
		mustEqual(t, after, digestOf(t, d))
		if text := o.state(t); !strings.Contains(text, "cache:none:1") || !strings.Contains(text, "expire") {
			t.Error("the audit does not say what was done")
		}

		before = fill()
		conf := o.config(t, d, "", job{name: "forgotten", prefix: "cache:", more: []string{"action: {expire: {ttl: 1h, jitter: 50%}}", "mode: execute"}})
		job := o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(0).runs()["forgotten"]
		job.outcomes(map[string]int64{"expired": due})
		for name, l := range check(before, digestOf(t, d)) {
			// Counted from when each was set, a few seconds apart.
			if diff := l - lives[name]; diff < -60 || diff > 60 {
				t.Errorf("%.60q lives %.0f s by the job and %.0f s by hand", name, l, lives[name])
			}
		}
	})
}

// What a server would free in its main thread gets no TTL, and is named.
func TestExpireLarge(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		const user, pass = "janitor", "sweep-9"
		lazy, eager := option("lazyfree-lazy-expire yes"), option("lazyfree-lazy-expire no")
		for _, c := range []struct {
			name   string
			opts   []option
			offers bool
			user   bool
			large  bool // gets a TTL
		}{
			{"eager", []option{eager}, b.hasUnlink(), false, false},
			{"as it is", nil, !b.hasUnlink(), false, false},
			{"lazy", []option{lazy}, b.hasUnlink(), false, true},
			{"CONFIG refused", []option{lazy, "user " + user + " on >" + pass + " ~* +@all -config"}, b.hasACL(), true, false},
			{"CONFIG renamed away", []option{lazy, `rename-command CONFIG ""`}, b.hasUnlink(), false, false},
		} {
			if !c.offers {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				d := standalone(t, b, c.opts...)
				m := d.masters[0]
				for _, kind := range aggregates {
					load(t, d, 0, kind, "cache:large:"+kind, 5000)
					load(t, d, 0, kind, "cache:small:"+kind, 500)
				}
				load(t, d, 0, "string", "cache:small:string", 5_000_000)
				streams := int64(0)
				if b.hasStreams() {
					l := newLoader(t, m.addr, 0)
					l.entries("stream", "cache:stream", 10)
					l.close()
					streams = 1
				}
				url := d.url()
				if c.user {
					url = strings.Replace(url, "redis://", "redis://"+user+":"+pass+"@", 1)
				}
				small, large := int64(5), int64(4)
				broken := b.hasStreams() && b.product == "redis" && !b.since(6, 2)
				o := newOperator(t)
				before := digestOf(t, d)
				want := map[string]int64{"expired": small + streams}
				code := 0
				if c.large {
					want["expired"] += large
				} else {
					want["failed"] = large
					code = 3
				}
				if broken {
					want["expired"] -= streams
					want["failed"] += streams
					code = 3
				}
				base := args("clean", "--url", url, "--prefix", "cache:", "--action", "expire", "--ttl", "1h", "--format", "json")
				s := o.run(t, args(base, "--execute")...).exit(code).summary()
				s.outcomes(want)
				for _, f := range s.Findings {
					name := f.name(t)
					refused := strings.Contains(name, ":large:") && !c.large || name == "cache:stream" && broken
					if (f.Outcome == "failed") != refused {
						s.from.error("%s: outcome %s", name, f.Outcome)
					}
					if refused && name != "cache:stream" && !strings.Contains(f.Reason, "lazyfree-lazy-expire") {
						s.from.error("%s: the reason is not told: %q", name, f.Reason)
					}
					if refused && name == "cache:stream" && !strings.Contains(f.Reason, "crash") {
						s.from.error("%s: the reason is not told: %q", name, f.Reason)
					}
					if refused != (m.lives(t, name) == -1) {
						t.Errorf("%s lives for %v s", name, m.lives(t, name))
					}
				}
				after := digestOf(t, d)
				for k, was := range before {
					if after[k].sum != was.sum {
						t.Errorf("%v is not what it was", k)
					}
				}
			})
		}
	})
}
