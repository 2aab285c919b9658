package integration

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// witness is what the servers of a deployment say about the commands of one
// run: it clears their slow logs and statistics before and reads them after.
type witness struct {
	d     *deployment
	noise *noise
}

// observe starts to record. Between observe and the questions the test sends
// nothing itself but PING, INFO and SLOWLOG.
func observe(t *testing.T, d *deployment) *witness {
	t.Helper()
	w := &witness{d: d, noise: listenToNoise(t)}
	for _, m := range d.masters {
		m.do(t, 0, "SLOWLOG", "RESET")
		m.do(t, 0, "CONFIG", "RESETSTAT")
	}
	return w
}

// logged is one entry of a slow log.
type logged struct {
	addr string
	at   time.Time
	took time.Duration
	args []string
}

func (l logged) verb() string { return strings.ToUpper(l.args[0]) }

func (l logged) String() string {
	text := fmt.Sprintf("%q", l.args[:min(len(l.args), 4)])
	return fmt.Sprintf("%s %v %.160s", l.addr, l.took, text)
}

// ours are the commands of the test itself and of the server that a slow log
// may hold.
var ours = []string{"PING", "INFO", "SLOWLOG", "CONFIG", "SELECT"}

// journal is the slow logs' content, oldest first.
func (w *witness) journal(t *testing.T) (out []logged) {
	t.Helper()
	for _, m := range w.d.masters {
		rows, _ := m.do(t, 0, "SLOWLOG", "GET", 1_000_000).([]any)
		for _, row := range slices.Backward(rows) {
			f := row.([]any)
			l := logged{addr: m.addr, at: time.Unix(f[1].(int64), 0), took: time.Duration(f[2].(int64)) * time.Microsecond}
			for _, a := range f[3].([]any) {
				l.args = append(l.args, fmt.Sprint(a))
			}
			out = append(out, l)
		}
	}
	return out
}

// nothingSlow fails if the slow log holds a command of ours over 20 ms. A
// machine that stood still for that long in that second excuses a command
// whose work is bounded by its arguments, and nothing else does; bounded names
// more of those, of a test that knows what its scripts do.
func (w *witness) nothingSlow(t *testing.T, bounded ...string) {
	t.Helper()
	for _, l := range w.journal(t) {
		if slices.Contains(ours, l.verb()) || l.took < 20*time.Millisecond {
			continue
		}
		if held := w.noise.around(l.at); held > l.took/2 && !slices.Contains([]string{"DEL", "UNLINK", "EVAL", "EVALSHA"}, l.verb()) ||
			held > l.took/2 && slices.Contains(bounded, l.verb()) {
			t.Logf("excused: %v; the test's own clock stood still for %v in that second", l, held)
			continue
		}
		t.Errorf("in the slow log: %v", l)
	}
}

// calls is how often a command was executed, over all masters.
func (w *witness) calls(t *testing.T, verb string) (n int64) {
	t.Helper()
	for _, m := range w.d.masters {
		for k, v := range m.info(t, "commandstats") {
			name := strings.TrimPrefix(k, "cmdstat_")
			if name == verb || strings.HasPrefix(name, verb+"|") {
				var c int64
				_, _ = fmt.Sscanf(v, "calls=%d", &c)
				n += c
			}
		}
	}
	return n
}

// forbidden are commands that no run may send: they are long by nature, or
// they destroy more than one key, or they change the server.
var forbidden = []string{"keys", "flushall", "flushdb", "config", "rename", "smembers", "hgetall", "sunion", "sort",
	"debug", "monitor", "swapdb", "shutdown", "save", "bgsave", "script", "dump", "migrate"}

// nothingForbidden fails if the statistics show one of them, but for those
// that a test expects once a server, to read.
func (w *witness) nothingForbidden(t *testing.T, reads ...string) {
	t.Helper()
	for _, verb := range forbidden {
		n := w.calls(t, verb)
		if slices.Contains(reads, verb) {
			n -= int64(len(w.d.masters))
		}
		if verb == "config" {
			// Our own CONFIG RESETSTAT is counted after it has cleared.
			n -= int64(len(w.d.masters))
		}
		if verb == "script" && w.onlyLoads(t) {
			continue
		}
		if n > 0 {
			t.Errorf("the servers counted %d calls of %s", n, strings.ToUpper(verb))
		}
	}
}

// onlyLoads says that SCRIPT was used for LOAD and EXISTS alone; servers
// before 7.0 do not tell subcommands apart and are given the benefit.
func (w *witness) onlyLoads(t *testing.T) bool {
	t.Helper()
	for _, sub := range []string{"kill", "flush", "debug"} {
		if w.calls(t, "script|"+sub) > 0 {
			return false
		}
	}
	return true
}

// wroteNothing fails if a command that writes was sent, but for those that ask
// what the server can do: they name a key that does not exist, and a run that
// could act asks for a few more of them.
func (w *witness) wroteNothing(t *testing.T, asked ...string) {
	t.Helper()
	for _, verb := range []string{"set", "setnx", "setex", "psetex", "del", "unlink", "renamenx", "rename", "persist",
		"expire", "pexpire", "pexpireat", "hdel", "srem", "spop", "ltrim", "lpop", "rpop", "zrem", "zremrangebyrank",
		"zremrangebyscore", "zpopmin", "zpopmax", "xtrim", "xdel", "hset", "touch", "restore"} {
		n := w.calls(t, verb)
		if slices.Contains(asked, verb) {
			n -= 4 * int64(len(w.d.masters))
		}
		if n > 0 {
			t.Errorf("the servers counted %d calls of %s in a run that only looks", n, strings.ToUpper(verb))
		}
	}
}

// noise measures how long this process is not let run. Two cores serve
// everything here; a stall of the machine is nobody's command.
type noise struct {
	mu    sync.Mutex
	worst map[int64]time.Duration // by second
}

func listenToNoise(t *testing.T) *noise {
	n := &noise{worst: map[int64]time.Duration{}}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		last := time.Now()
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			now := time.Now()
			over := now.Sub(last) - time.Millisecond
			n.mu.Lock()
			n.worst[now.Unix()] = max(n.worst[now.Unix()], over)
			n.mu.Unlock()
			last = now
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return n
}

func (n *noise) around(at time.Time) (worst time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := at.Unix() - 1; s <= at.Unix()+1; s++ {
		worst = max(worst, n.worst[s])
	}
	return worst
}

// most is the longest of all.
func (n *noise) most() (worst time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.worst {
		worst = max(worst, d)
	}
	return worst
}

// probe is a neighbour: a client that sends PING every millisecond and notes
// how long each answer took. It is reported and never judged tightly.
type probe struct {
	stop, done chan struct{}
	took       []time.Duration
}

func startProbe(t *testing.T, s *server) *probe {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer conn.Close()
		r := bufio.NewReader(conn)
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(time.Millisecond):
			}
			_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
			t0 := time.Now()
			if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
				return
			}
			if _, err := r.ReadString('\n'); err != nil {
				return
			}
			p.took = append(p.took, time.Since(t0))
		}
	}()
	return p
}

// latency is what a neighbour felt.
type latency struct {
	n                  int
	median, p999, most time.Duration
}

func (l latency) String() string {
	return fmt.Sprintf("PING n=%s median %v p99.9 %v max %v", strconv.Itoa(l.n), l.median, l.p999, l.most)
}

func (p *probe) end() latency {
	close(p.stop)
	<-p.done
	if len(p.took) == 0 {
		return latency{}
	}
	slices.Sort(p.took)
	n := len(p.took)
	return latency{n: n, median: p.took[n/2].Round(time.Microsecond),
		p999: p.took[min(n-1, n*999/1000)].Round(time.Microsecond), most: p.took[n-1].Round(time.Microsecond)}
}
