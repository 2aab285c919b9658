package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// writers are applications that write all the while: they add, remove, rename,
// recreate, read and expire keys of their own set, the moving ones. Some write
// on their own, and some are let in by a proxy.
type writers struct {
	d     *deployment
	names []string            // of the moving keys
	tag   map[string][]string // those that share a hash tag, and so a slot
	rule  rule                // that the run is told

	mu    sync.Mutex
	rnd   *rand.Rand
	kinds map[string]string // as it was last created; others may have changed it
	wires map[string]*wire  // by server, for those who are let in
	mine  map[string]bool   // their addresses
	since time.Time         // from which TTLs are counted
	dying int
	sent  int
	let   int // of those, by a proxy
	err   error
}

// isMoving tells the writers' keys from those that nobody writes to, by name:
// "a:mv:{7}:1" and "a:st:{7}:1". Those that are about to expire are "a:dy:…".
func isMoving(name string) bool { return strings.Contains(name, ":mv:") && !isTrash(name) }
func isStill(name string) bool  { return strings.Contains(name, ":st:") && !isTrash(name) }

const (
	tags     = 30 // of keys, over all slots of a cluster
	bigBase  = 1100
	bigFlip  = 100 // so many less, and a key is below manyElements
	tinyBase = 30
	tinyFlip = 15 // so many less, and a key is below fewElements
)

// names makes so many names of a family, in three groups.
func namesOf(family string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%c:%s:{%d}:%d", 'a'+byte(i%3), family, i/3%tags, i%7))
	}
	return out
}

func newWriters(t *testing.T, d *deployment, rnd *rand.Rand, moving int, r rule) *writers {
	t.Helper()
	w := &writers{d: d, rnd: rnd, rule: r, tag: map[string][]string{}, kinds: map[string]string{},
		wires: map[string]*wire{}, mine: map[string]bool{}, names: namesOf("mv", moving), since: time.Now()}
	for _, n := range w.names {
		w.tag[tagOf(n)] = append(w.tag[tagOf(n)], n)
	}
	for _, m := range d.masters {
		w.wires[m.addr] = w.wire(t, m)
	}
	return w
}

// wire connects a writer whose commands the account will know.
func (w *writers) wire(t *testing.T, s *server) *wire {
	c := newWire(t, s.addr)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mine[c.addr()] = true
	return c
}

func tagOf(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

// load creates the moving keys and the still ones.
func (w *writers) load(t *testing.T, still int) {
	t.Helper()
	for _, name := range append(namesOf("st", still), w.names...) {
		if _, err := w.wires[w.d.owner(name).addr].send(w.create(name)...); err != nil {
			t.Fatal(err)
		}
	}
}

// create makes a key of a random type and length, some with a TTL.
func (w *writers) create(name string) [][]string {
	kind := kinds[w.rnd.IntN(len(kinds))]
	w.kinds[name] = kind
	from, to := 0, 1+w.rnd.IntN(10)
	switch many := w.rnd.IntN(4); {
	case many == 0 || w.rule.minElements == manyElements && many < 3:
		to = bigBase - w.rnd.IntN(2)*bigFlip
	case many < 3:
		to = tinyBase
	}
	cmds := [][]string{{"DEL", name}, grow(kind, name, from, to)}
	switch w.rnd.IntN(4) {
	case 0:
		cmds = append(cmds, w.expireIn(name, shortTTL))
	case 1:
		cmds = append(cmds, w.expireIn(name, longTTL))
	}
	return cmds
}

func (w *writers) expireIn(name string, d time.Duration) []string {
	return []string{"PEXPIREAT", name, strconv.FormatInt(w.since.Add(d).UnixMilli(), 10)}
}

// grow adds the members from one number up to another; a long string is one
// of many.
func grow(kind, name string, from, to int) []string {
	cmd := []string{map[string]string{"hash": "HMSET", "set": "SADD", "list": "RPUSH", "zset": "ZADD"}[kind], name}
	for i := from; i < to; i++ {
		m := "m" + strconv.Itoa(i)
		switch kind {
		case "hash":
			cmd = append(cmd, m, "v")
		case "zset":
			cmd = append(cmd, strconv.Itoa(i/3), m)
		default:
			cmd = append(cmd, m)
		}
	}
	if kind == "string" {
		long := shortString
		if to-from > tinyFlip {
			long = longString
		}
		return []string{"SET", name, strings.Repeat("x", long)}
	}
	return cmd
}

// shrink takes the first members away again.
func shrink(kind, name string, n int) []string {
	switch kind {
	case "list":
		return []string{"LTRIM", name, strconv.Itoa(n), "-1"}
	case "zset":
		return []string{"ZREMRANGEBYRANK", name, "0", strconv.Itoa(n - 1)}
	case "string":
		return []string{"SET", name, strings.Repeat("x", shortString)}
	}
	cmd := []string{map[string]string{"hash": "HDEL", "set": "SREM"}[kind], name}
	for i := range n {
		cmd = append(cmd, "m"+strconv.Itoa(i))
	}
	return cmd
}

// write is one thing that an application does to a key.
func (w *writers) write(name string) [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	kind := w.kinds[name]
	flip := tinyFlip
	if w.rule.minElements == manyElements || w.rnd.IntN(3) == 0 {
		flip = bigFlip
	}
	switch w.rnd.IntN(14) {
	case 0, 1:
		return [][]string{shrink(kind, name, flip)}
	case 2, 3:
		return [][]string{grow(kind, name, 0, flip)}
	case 4:
		return [][]string{{"DEL", name}}
	case 5, 6:
		return w.create(name)
	case 7:
		return [][]string{w.expireIn(name, shortTTL)}
	case 8:
		return [][]string{w.expireIn(name, longTTL)}
	case 9, 10:
		return [][]string{{"PERSIST", name}}
	case 11: // its time is over: this frees the key at once
		return [][]string{{"PEXPIREAT", name, "1"}}
	case 12:
		others := w.tag[tagOf(name)]
		to := others[w.rnd.IntN(len(others))]
		if to == name { // an error before 3.2
			return [][]string{{"LRANGE", name, "0", "3"}, {"HGET", name, "m1"}}
		}
		w.kinds[to] = kind
		return [][]string{{"RENAME", name, to}}
	}
	// A key that expires any moment, and that nobody touches again: the
	// account does not tell when it went.
	w.dying++
	dies := fmt.Sprintf("%c:dy:{%s}:%d", 'a'+byte(w.dying%3), tagOf(name), w.dying)
	return [][]string{grow(kind, dies, 0, tinyBase), {"PEXPIRE", dies, strconv.Itoa(1 + w.rnd.IntN(60))}}
}

// spoil does to a key what takes it out of the rule, if it was in it.
func (w *writers) spoil(name string) [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	kind, r := w.kinds[name], w.rule
	flip := tinyFlip
	if r.minElements == manyElements {
		flip = bigFlip
	}
	var ways [][][]string
	if r.minElements > 0 || r.minBytes > 0 {
		ways = append(ways, [][]string{shrink(kind, name, flip)})
	}
	if r.noTTL || r.ttlOver > 0 {
		ways = append(ways, [][]string{w.expireIn(name, shortTTL)})
	}
	if r.ttlUnder > 0 {
		ways = append(ways, [][]string{w.expireIn(name, longTTL)})
	}
	if r.ttlUnder > 0 || r.ttlOver > 0 {
		ways = append(ways, [][]string{{"PERSIST", name}})
	}
	if len(r.types) > 0 {
		for _, other := range kinds {
			if !slices.Contains(r.types, other) {
				w.kinds[name] = other
				ways = append(ways, [][]string{{"DEL", name}, grow(other, name, 0, tinyBase)})
			}
		}
	}
	if len(ways) == 0 {
		return [][]string{{"DEL", name}}
	}
	return ways[w.rnd.IntN(len(ways))]
}

// letIn is what a proxy calls between two commands of the binary. The nearer
// the act, the more often somebody writes, and most of all to the very keys
// that are being dealt with.
func (w *writers) letIn(c *passing) {
	often := map[string]int{"EVALSHA": 40, "EVAL": 40, "WATCH": 10, "MULTI": 40, "EXEC": 25, "UNLINK": 30, "DEL": 30, "RENAMENX": 40,
		"TYPE": 5, "PTTL": 5, "PERSIST": 10, "SCAN": 50}[c.verb()]
	w.mu.Lock()
	writes, spoils := w.rnd.IntN(100) < max(2, often), w.rnd.IntN(2) == 0
	name := w.names[w.rnd.IntN(len(w.names))]
	near := slices.DeleteFunc(slices.Clone(c.near), func(n string) bool { return !isMoving(n) })
	if len(near) > 0 && w.rnd.IntN(5) > 0 {
		name = near[w.rnd.IntN(len(near))]
	}
	switch c.verb() {
	case "UNLINK", "DEL", "RENAMENX": // it was looked at, and is about to go
		if isMoving(c.args[1]) {
			name = c.args[1]
		}
	}
	w.mu.Unlock()
	if !writes {
		return
	}
	cmds := w.write
	if spoils {
		cmds = w.spoil
	}
	all := cmds(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.let++
	if _, err := w.wires[w.d.owner(name).addr].send(all...); err != nil && w.err == nil {
		w.err = err
	}
}

// atWork starts writers that go on by themselves until the run is over, or
// until each has done so much that the account gets too long.
func (w *writers) atWork(t *testing.T, r *running, writes int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range 2 {
		wires := map[string]*wire{}
		for _, m := range w.d.masters {
			wires[m.addr] = w.wire(t, m)
		}
		wg.Go(func() {
			for i := 0; i < writes && !r.ended(); i++ {
				w.mu.Lock()
				name := w.names[w.rnd.IntN(len(w.names))]
				w.mu.Unlock()
				if _, err := wires[w.d.owner(name).addr].send(w.write(name)...); err != nil {
					t.Errorf("a writer: %v", err)
					return
				}
			}
		})
	}
	return &wg
}
