package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// seen is an index of last-seen times for a test: who was seen when, in
// seconds before now.
type seen struct {
	d    *deployment
	key  string
	kind string
	unit string
	ago  map[string]float64
}

// index loads an index: old entries were seen thirty days ago and before,
// young ones within a day. Each client has the keys client:NAME and queue:NAME.
func index(t *testing.T, d *deployment, key, kind, unit string, old, young []string) *seen {
	t.Helper()
	x := &seen{d: d, key: key, kind: kind, unit: unit, ago: map[string]float64{}}
	for i, name := range old {
		x.ago[name] = 30*86_400 + float64(i)
	}
	for i, name := range young {
		x.ago[name] = float64(60 + i)
	}
	now := d.owner(key).clockOf(t, unit)
	l := newLoader(t, d.owner(key).addr, 0)
	for name, ago := range x.ago {
		x.put(l, name, now-ago*units[unit])
	}
	l.close()
	loaders := map[*server]*loader{}
	for name := range x.ago {
		for _, n := range x.keys(name) {
			s := d.owner(n)
			if n == key {
				continue
			}
			if loaders[s] == nil {
				loaders[s] = newLoader(t, s.addr, 0)
			}
			loaders[s].fill(map[bool]string{true: "hash", false: "list"}[strings.HasPrefix(n, "client:")], n, 3)
		}
	}
	for _, l := range loaders {
		l.close()
	}
	return x
}

func (x *seen) put(l *loader, name string, at float64) { l.cmd(x.set(name, at)...) }

// set is the command that notes that somebody was seen.
func (x *seen) set(name string, at float64) []string {
	if x.kind == "zset" {
		return []string{"ZADD", x.key, fmt.Sprintf("%.0f", at), name}
	}
	return []string{"HSET", x.key, name, fmt.Sprintf("%.0f", at)}
}

func (x *seen) keys(name string) []string { return []string{"client:" + name, "queue:" + name} }

// entries are those that the index has now.
func (x *seen) entries(t *testing.T) []string {
	t.Helper()
	var out []string
	s := x.d.owner(x.key)
	switch x.kind {
	case "zset":
		out = s.content(t, 0, x.key)
	default:
		rows, _ := s.do(t, 0, "HKEYS", x.key).([]any)
		for _, r := range rows {
			out = append(out, r.(string))
		}
	}
	slices.Sort(out)
	return out
}

// prunes is the command line that prunes it.
func (x *seen) prunes(more ...any) []string {
	return args("clean", "--url", x.d.url(), "--match", x.key, "--action", "prune-index", "--older-than", "14d", "--value", x.unit,
		"--also", "client:%entry%", "--also", "queue:%entry%", "--format", "json", args(more...))
}

// pruned fails unless the index has lost these, and their keys are gone, and
// nothing else is.
func (x *seen) pruned(t *testing.T, before digest, old []string) {
	t.Helper()
	var want []string
	for name := range x.ago {
		if !slices.Contains(old, name) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if got := x.entries(t); !slices.Equal(got, want) {
		t.Errorf("%s has %d entries, want %d", x.key, len(got), len(want))
	}
	var gone []keyID
	for _, name := range old {
		for _, n := range x.keys(name) {
			if _, there := before[keyID{0, n}]; there {
				gone = append(gone, keyID{0, n})
			}
		}
	}
	after := digestOf(t, x.d)
	is, was := after[keyID{0, x.key}], before[keyID{0, x.key}]
	if len(want) > 0 {
		// It is shorter, and else what it was.
		is.sum, is.elements, is.encoding = was.sum, was.elements, was.encoding
		after[keyID{0, x.key}] = is
	} else {
		gone = append(gone, keyID{0, x.key})
	}
	mustEqual(t, before, after, gone...)
}

func numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// Old entries go with the keys that they stand for: whatever the index is,
// and whatever the entries are called.
func TestPruneIndex(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		for _, kind := range []string{"hash", "zset"} {
			for unit := range units {
				t.Run(kind+" of "+unit, func(t *testing.T) { pruneScene(t, d, kind, unit) })
			}
		}
	})
}

func pruneScene(t *testing.T, d *deployment, kind, unit string) {
	d.flush(t)
	bystand(t, d, 0, 300)
	old := append(numbered("old:", 700), hostileNames()...)
	x := index(t, d, "clients:seen", kind, unit, old, numbered("young:", 300))
	s := d.owner(x.key)
	// Entries that tell no time; nobody knows how old they are.
	other := map[string]string{"no number": "yesterday", "empty": "", "nan": "nan"}
	if kind == "zset" {
		other = map[string]string{"for ever": "+inf"}
	}
	for name, value := range other {
		x.ago[name] = 0
		if kind == "zset" {
			s.do(t, 0, "ZADD", x.key, value, name)
		} else {
			s.do(t, 0, "HSET", x.key, name, value)
		}
	}
	// Keys that are missing, of another type, or large.
	for i := range 10 {
		d.on(0, "client:old:"+fmt.Sprint(i)).Del(t.Context(), "client:old:"+fmt.Sprint(i))
	}
	d.on(0, "queue:old:20").Del(t.Context(), "queue:old:20")
	load(t, d, 0, "zset", "queue:old:20", 12_000)
	before := digestOf(t, d)
	o := newOperator(t)
	sum := o.run(t, x.prunes()...).exit(0).summary()
	sum.outcomes(map[string]int64{"would_act": 1})
	if !strings.Contains(sum.Findings[0].Reason, fmt.Sprint(len(old))) {
		sum.from.error("does not say how many entries are older")
	}
	mustEqual(t, before, digestOf(t, d))
	w := observe(t, d)
	sum = o.run(t, x.prunes("--execute")...).exit(0).summary()
	w.nothingForbidden(t)
	x.pruned(t, before, old)
	if sum.Outcomes["trimmed"] != 1 || sum.removed() != int64(2*len(old)-10) || sum.Outcomes["gone"] != 10 || sum.Outcomes["failed"] != 0 {
		sum.from.error("want 1 trimmed, %d removed and 10 gone", 2*len(old)-10)
	}
	if text := o.state(t); !strings.Contains(text, "clients:seen") || !strings.Contains(text, "queue:old:20") || !strings.Contains(text, "prune_index") {
		t.Error("the audit does not say what was done")
	}
	after := digestOf(t, d)
	o.run(t, x.prunes("--execute")...).exit(0).summary().outcomes(map[string]int64{"changed": 1})
	mustEqual(t, after, digestOf(t, d))
}

// Times in another unit are no reason to drop an entry.
func TestPruneWrongUnit(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		for _, kind := range []string{"hash", "zset"} {
			for unit, other := range map[string]string{"unix_seconds": "unix_millis", "unix_millis": "unix_seconds"} {
				d.flush(t)
				x := index(t, d, "clients:seen", kind, unit, nil, numbered("young:", 50))
				before := digestOf(t, d)
				x.unit = other
				newOperator(t).run(t, x.prunes("--execute")...).exit(0).summary().outcomes(map[string]int64{"changed": 1})
				mustEqual(t, before, digestOf(t, d))
			}
		}
	})
}

// Who is seen again while the index is pruned stays, with all keys: each of
// our commands may find that somebody came back just before it.
func TestPruneSeenAgain(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		for _, kind := range []string{"hash", "zset"} {
			t.Run(kind, func(t *testing.T) {
				d.flush(t)
				old := numbered("old:", 600)
				x := index(t, d, "clients:seen", kind, "unix_seconds", old, numbered("young:", 100))
				before := digestOf(t, d)
				now := m.clockOf(t, "unix_seconds")
				other := newWire(t, m.addr)
				var mu sync.Mutex
				back := map[string]bool{}
				n := 0
				p := startProxy(t, m, func(c *passing) {
					mu.Lock()
					defer mu.Unlock()
					// Right before entries are moved: EVAL, or EXEC of a MULTI.
					if c.verb() != "EVAL" && c.verb() != "EXEC" || !slices.Contains(append(c.near, c.args...), x.key) {
						return
					}
					if n++; n%2 == 0 {
						return
					}
					for i := range 5 {
						name := old[(n*53+i*97)%len(old)]
						if there, _ := other.send([]string{"EXISTS", "client:" + name}); there[0] != ":1\r\n" {
							continue // it was gone when it came back
						}
						_, _ = other.send(x.set(name, now))
						back[name] = true
					}
				}, nil)
				o := newOperator(t)
				line := x.prunes("--execute")
				line = args(line[:1], through(t, o, d, []*proxy{p}), line[3:])
				for range 4 { // by WATCH somebody is always in the way
					if o.run(t, line...).exit(0, 3).code == 0 {
						break
					}
				}
				o.run(t, x.prunes("--execute")...).exit(0)
				gone := slices.DeleteFunc(slices.Clone(old), func(name string) bool { return back[name] })
				x.pruned(t, before, gone)
				if len(back) == 0 {
					t.Error("nobody came back: the test proves nothing")
				}
			})
		}
	})
}

// What is protected stays, also where an entry names it; and no entry names
// the index itself.
func TestPruneProtected(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		for _, kind := range []string{"hash", "zset"} {
			d.flush(t)
			old := numbered("old:", 30)
			x := index(t, d, "client:seen", kind, "unix_seconds", append(old, "seen"), numbered("young:", 10))
			delete(x.ago, "seen")
			o := newOperator(t)
			conf := o.config(t, d, "protect: [\"queue:old:1*\"]\n", job{name: "unseen", prefix: x.key,
				more: []string{"action: {prune_index: {older_than: 14d, value: unix_seconds, also: [\"client:%entry%\", \"queue:%entry%\"]}}", "mode: execute"}})
			s := o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(0).runs()["unseen"]
			after := digestOf(t, d)
			for _, name := range old {
				kept := strings.HasPrefix(name, "old:1")
				if _, there := after[keyID{0, "queue:" + name}]; there != kept {
					t.Errorf("queue:%s is there: %v, protected: %v", name, there, kept)
				}
				if _, there := after[keyID{0, "client:" + name}]; there {
					t.Errorf("client:%s is there", name)
				}
			}
			if s.Outcomes["protected"] < 11 {
				s.from.error("%d protected, want 11 and the index", s.Outcomes["protected"])
			}
			if got := x.entries(t); len(got) != 10 {
				t.Errorf("the index has %d entries, want 10", len(got))
			}
		}
	})
}

// A limit ends the run; what it left pending the next run finishes.
func TestPruneLimit(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		for _, kind := range []string{"hash", "zset"} {
			d.flush(t)
			bystand(t, d, 0, 5000) // so many that index and pending key are on pages of their own
			old := numbered("old:", 300)
			x := index(t, d, "clients:seen", kind, "unix_seconds", old, numbered("young:", 50))
			before := digestOf(t, d)
			keys := int64(len(before))
			o := newOperator(t)
			for _, limit := range []int64{100, 200} {
				s := o.run(t, x.prunes("--max-keys", limit, "--execute")...).exit(4).summary()
				if s.removed() != limit {
					s.from.error("%d keys removed under a limit of %d", s.removed(), limit)
				}
				keys -= limit
			}
			// Entries that are pending have their keys, or some of them.
			if got := d.size(t); got != keys && got != keys+1 {
				t.Errorf("%d keys are left, want %d and what is pending", got, keys)
			}
			o.run(t, x.prunes("--execute")...).exit(0)
			x.pruned(t, before, old)
		}
	})
}

// A pending entry that is back in the index keeps its keys.
func TestPruneBack(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		for _, kind := range []string{"hash", "zset"} {
			d.flush(t)
			old := numbered("old:", 100)
			x := index(t, d, "clients:seen", kind, "unix_seconds", old, numbered("young:", 50))
			before := digestOf(t, d)
			o := newOperator(t)
			o.run(t, x.prunes("--max-keys", 20, "--execute")...).exit(4)
			mid := digestOf(t, d)
			var back []string
			for _, name := range old {
				_, client := mid[keyID{0, "client:" + name}]
				_, queue := mid[keyID{0, "queue:" + name}]
				if client && queue && len(back) < 30 {
					back = append(back, name)
					m.do(t, 0, args2any(x.set(name, m.clockOf(t, x.unit)))...)
				}
			}
			o.run(t, x.prunes("--execute")...).exit(0)
			gone := slices.DeleteFunc(slices.Clone(old), func(name string) bool { return slices.Contains(back, name) })
			x.pruned(t, before, gone)
			if len(back) < 30 {
				t.Errorf("%d entries came back, want 30", len(back))
			}
		}
	})
}

func args2any(list []string) (out []any) {
	for _, a := range list {
		out = append(out, a)
	}
	return out
}

// TestPruneKilled kills a run at random moments: the one after it makes of
// what is left what an undisturbed run would have made.
func TestPruneKilled(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		pruneKilled(t, d, size.killRounds)
	})
}

func pruneKilled(t *testing.T, d *deployment, rounds int) {
	rnd := seeded(t)
	caught := 0
	for round := range rounds {
		d.flush(t)
		bystand(t, d, 0, 1000)
		old := numbered("old:", 1000)
		x := index(t, d, "clients:seen", []string{"hash", "zset"}[round%2], "unix_seconds", old, numbered("young:", 100))
		before := digestOf(t, d)
		o := newOperator(t)
		r := o.start(t, x.prunes("--commands-per-second", 4000, "--execute")...)
		// Between the first entry that is moved and the last key that goes.
		eventually(t, 20*time.Second, "entries are moved", func() bool { return r.ended() || len(x.entries(t)) < len(x.ago) })
		time.Sleep(time.Duration(rnd.Int64N(int64(600 * time.Millisecond))))
		r.signal(syscall.SIGKILL)
		<-r.done
		mid := digestOf(t, d)
		// Nobody is forgotten: who has keys is in the index or pending.
		named := map[string]bool{}
		for _, name := range x.entries(t) {
			named[name] = true
		}
		pending := strangers(before, mid)
		for _, k := range pending {
			rows, _ := d.owner(k.name).do(t, 0, "HKEYS", k.name).([]any)
			for _, r := range rows {
				named[r.(string)] = true
			}
		}
		for name := range x.ago {
			for _, n := range x.keys(name) {
				if _, there := mid[keyID{0, n}]; there && !named[name] {
					t.Errorf("round %d: %s is there, and nothing tells of it", round, n)
				}
			}
		}
		if len(pending) > 0 {
			caught++
		}
		if round%2 == 1 {
			o.forget(t)
		}
		o.run(t, x.prunes("--execute")...).exit(0)
		x.pruned(t, before, old)
		t.Logf("round %d: %s with %d entries, %d of %d keys left, %d pending keys", round, x.kind, len(x.entries(t)), len(mid), len(before), len(pending))
	}
	if caught == 0 {
		t.Error("no round left anything pending: the test proves nothing")
	}
}

// In a cluster the keys of entries are on all nodes.
func TestPruneCluster(t *testing.T) {
	eachServerThat(t, serverBinary.hasCluster, "has no cluster", func(t *testing.T, b serverBinary) {
		d := startCluster(t, b)
		pruneScene(t, d, "zset", "unix_millis")
		d.flush(t)
		// The indexes are on all nodes, too.
		for _, key := range []string{"seen:a", "seen:b", "seen:{x}"} {
			old := numbered(key+":old:", 200)
			x := index(t, d, key, "hash", "unix_seconds", old, numbered(key+":young:", 20))
			before := digestOf(t, d)
			newOperator(t).run(t, x.prunes("--execute")...).exit(0)
			x.pruned(t, before, old)
		}
		pruneKilled(t, d, 2)
		replicasFollow(t, d)
	})
}
