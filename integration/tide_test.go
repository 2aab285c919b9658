package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// tide is what goes on at one key while it is trimmed: others push and pop at
// both of its ends, and what we send is sent again, at once or later, as by a
// network that does not know what was executed. It holds after each of our
// commands that none left fewer than the retention because of us.
type tide struct {
	t    *testing.T
	s    *server
	e    end
	key  string
	keep int

	mu     sync.Mutex
	rnd    *rand.Rand
	calm   bool // nobody is about any more
	length int  // when the others last left; -1: not known
	pushed []string
	popped map[string]bool
	hi, lo int        // the next score or number at either end
	late   [][]string // commands of ours that will be executed again
	again  int        // how many were
	cuts   int
}

// newTide fills a key.
func newTide(t *testing.T, s *server, e end, key string, keep, n int, rnd *rand.Rand) *tide {
	l := newLoader(t, s.addr, 0)
	l.entries(e.kind, key, n)
	l.close()
	d := &tide{t: t, s: s, e: e, key: key, keep: keep, rnd: rnd, length: -1, popped: map[string]bool{}, hi: 10 * n}
	d.pushed = s.content(t, 0, key)
	if d.atStart() {
		slices.Reverse(d.pushed)
	}
	return d
}

// atStart says that the kept end is the one that a listing begins with.
func (d *tide) atStart() bool { return d.e.name == "head" || d.e.name == "lowest" }

// ask sends a command of the others. A key that is gone is nothing special.
func (d *tide) ask(args ...any) any {
	v, err := d.s.client(0).Do(d.t.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		d.t.Errorf("%.200q: %v", fmt.Sprint(args...), err)
	}
	return v
}

// trims says whether a command of ours removes from the key.
func (d *tide) trims(c []string) bool {
	switch strings.ToUpper(c[0]) {
	case "LTRIM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "XTRIM", "EVAL", "EVALSHA":
		return slices.Contains(c, d.key)
	}
	return false
}

// measure looks at the length and judges it.
func (d *tide) measure(after string) {
	n, _ := d.ask(map[string]string{"list": "LLEN", "zset": "ZCARD", "stream": "XLEN"}[d.e.kind], d.key).(int64)
	if d.length >= 0 && int(n) < min(d.length, d.keep) {
		d.t.Errorf("%s: of %d entries %d are left of %d that are kept", after, d.length, n, d.keep)
	}
	d.length = int(n)
}

// between is called before each of our commands.
func (d *tide) between(c *passing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calm {
		return
	}
	d.measure("before " + c.verb())
	if d.trims(c.args) {
		if d.rnd.IntN(5) == 0 {
			d.repeat(c.args)
		}
		d.late = append(d.late, c.args)
	}
	if len(d.late) > 0 && d.rnd.IntN(20) == 0 {
		d.repeat(d.late[d.rnd.IntN(len(d.late))])
	}
	if d.rnd.IntN(12) == 0 {
		for range d.rnd.IntN(6) {
			d.move()
		}
		d.length = -1
		d.measure("")
	}
}

// repeat executes a command of ours again. A script that the server does not
// know yet, or a refusal, changes nothing.
func (d *tide) repeat(c []string) {
	words := make([]any, len(c))
	for i, w := range c {
		words[i] = w
	}
	_ = d.s.client(0).Do(d.t.Context(), words...).Err()
	d.again++
	d.measure(fmt.Sprintf("again %.80q", c))
}

// move is one act of the others.
func (d *tide) move() {
	switch n := 1 + d.rnd.IntN(20); d.rnd.IntN(6) {
	case 0, 1, 2:
		for range n {
			d.push(true)
		}
	case 3:
		for range n {
			d.push(false)
		}
	case 4:
		d.pop(d.rnd.IntN(2) == 0)
	case 5:
		d.rise()
	}
}

func (d *tide) push(keptEnd bool) {
	atEnd := keptEnd != d.atStart()
	n := 0
	if atEnd {
		d.hi++
		n = d.hi
	} else {
		d.lo--
		n = d.lo
	}
	name := fmt.Sprintf("entry:%d", n)
	switch d.e.kind {
	case "list":
		d.ask(map[bool]string{true: "RPUSH", false: "LPUSH"}[atEnd], d.key, name)
	case "zset":
		d.ask("ZADD", d.key, n, name)
	case "stream":
		if !keptEnd {
			return // streams grow at one end
		}
		name, _ = d.ask("XADD", d.key, "*", "f", "v").(string)
	}
	if keptEnd {
		d.pushed = append(d.pushed, name)
	}
}

// pop takes one entry from an end, and remembers which.
func (d *tide) pop(last bool) {
	name := d.first(last)
	if name == "" {
		return
	}
	switch d.e.kind {
	case "list":
		d.ask(map[bool]string{true: "RPOP", false: "LPOP"}[last], d.key)
	case "zset":
		d.ask("ZREM", d.key, name)
	case "stream":
		d.ask("XDEL", d.key, name)
	}
	d.popped[name] = true
}

// first is the entry at an end.
func (d *tide) first(last bool) string {
	at := map[bool]int{true: -1}[last]
	var rows []any
	switch d.e.kind {
	case "list":
		rows, _ = d.ask("LRANGE", d.key, at, at).([]any)
	case "zset":
		rows, _ = d.ask("ZRANGE", d.key, at, at).([]any)
	case "stream":
		verb := []any{"XRANGE", d.key, "-", "+", "COUNT", 1}
		if last {
			verb = []any{"XREVRANGE", d.key, "+", "-", "COUNT", 1}
		}
		if found, _ := d.ask(verb...).([]any); len(found) > 0 {
			rows, _ = found[0].([]any)
		}
	}
	if len(rows) == 0 {
		return ""
	}
	return rows[0].(string)
}

// rise gives the member that would go next a score at the kept end.
func (d *tide) rise() {
	if d.e.kind != "zset" {
		return
	}
	name := d.first(d.atStart())
	if name == "" {
		return
	}
	d.hi++
	d.lo--
	d.ask("ZADD", d.key, map[bool]int{true: d.lo, false: d.hi}[d.atStart()], name)
	d.pushed = append(slices.DeleteFunc(d.pushed, func(p string) bool { return p == name }), name)
}

// cut loses the reply to a trim now and then.
func (d *tide) cut(c *passing) fate {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.calm && (d.trims(c.args) || c.verb() == "EXEC") && d.rnd.IntN(50) == 0 {
		d.cuts++
		return unanswered
	}
	return passes
}

// settle ends it: of the last that were pushed at the kept end all that no
// consumer took are there, in their order.
func (d *tide) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.late[max(0, len(d.late)-20):] { // very late
		d.repeat(c)
	}
	d.calm = true
	want := slices.DeleteFunc(slices.Clone(d.pushed[max(0, len(d.pushed)-d.keep):]), func(p string) bool { return d.popped[p] })
	got := d.s.content(d.t, 0, d.key)
	if d.atStart() {
		slices.Reverse(got)
	}
	if len(got) < len(want) || !slices.Equal(got[len(got)-len(want):], want) {
		d.t.Errorf("%s: of the last %d entries %d were not taken by others, and are not all there: %d are", d.key, d.keep, len(want), len(got))
	}
}

// Retention is never undercut, however producers and consumers move meanwhile
// and however often or late a command is executed.
func TestTrimTide(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		rnd := seeded(t)
		for i, e := range endsOf(b) {
			if e.kind == "stream" && !w.scripts {
				continue
			}
			t.Run(e.name, func(t *testing.T) {
				keeps := []int{1, 100}
				switch { // where it has to be quick one of the two, another by each way
				case size.name != "small":
				case w.scripts == (i%2 == 0):
					keeps = keeps[:1]
				default:
					keeps = keeps[1:]
				}
				for round, keep := range keeps {
					tide := newTide(t, m, e, fmt.Sprintf("tide:%s:%d", e.name, round), keep, keep+4000, rnd)
					p := startProxy(t, m, tide.between, tide.cut)
					o := newOperator(t)
					base := args("clean", through(t, o, d, []*proxy{p}), "--match", tide.key, "--action", "trim",
						"--keep", keep, "--keep-end", e.name, "--execute", "--format", "json")
					var codes []int
					for range 4 {
						r := o.run(t, base...).exit(0, 1, 3)
						if codes = append(codes, r.code); r.code == 0 {
							break
						}
					}
					tide.settle()
					before := m.content(t, 0, tide.key)
					o.run(t, base...).exit(0)
					m.mustHold(t, tide.key, e.kept(before, keep))
					t.Logf("keep %d: exits %v, %d commands, %d executed again, %d replies lost, %d pushed, %d popped, %d left",
						keep, codes, len(p.passed()), tide.again, tide.cuts, len(tide.pushed), len(tide.popped), len(before))
					if tide.again == 0 {
						t.Error("nothing was executed again: the test proves nothing")
					}
				}
			})
		}
	})
}

// The same with others who wait for nobody.
func TestTrimBesideOthers(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b serverBinary, w way) {
		d := standalone(t, b, w.opts...)
		m := d.masters[0]
		rnd := seeded(t)
		for _, e := range endsOf(b) {
			if e.kind == "stream" && !w.scripts {
				continue
			}
			const keep = 500
			tide := newTide(t, m, e, "beside:"+e.name, keep, 20_000, rnd)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Microsecond): // slower than we are, or it would not end
						tide.move()
					}
				}
			}()
			o := newOperator(t)
			base := args("clean", "--url", d.url(), "--match", tide.key, "--action", "trim", "--keep", keep, "--keep-end", e.name,
				"--execute", "--format", "json")
			r := o.run(t, base...)
			close(stop)
			<-done
			// By WATCH somebody who writes all the time may be in the way.
			r.exit(0, 3)
			tide.settle()
			t.Logf("%s: exit %d, %d pushed, %d popped", e.name, r.code, len(tide.pushed), len(tide.popped))
			before := m.content(t, 0, tide.key)
			o.run(t, base...).exit(0)
			m.mustHold(t, tide.key, e.kept(before, keep))
		}
	})
}
