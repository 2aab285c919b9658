package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy stands between the binary and one server. It takes one command at a
// time: however many were sent together, the next is forwarded only when the
// reply to the one before is there. So whoever is let in comes between any two
// of them, and a cut falls exactly behind one.
type proxy struct {
	s      *server
	addr   string
	before func(*passing)      // called before a command is forwarded; nil: nobody is let in
	fate   func(*passing) fate // nil: everything passes

	wg    sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool
	ours  map[string]bool // its own ends of the connections to the server
	sent  []string        // the names of the commands that came, in order
}

// passing is a command on its way.
type passing struct {
	s    *server
	args []string
	n    int      // commands that passed this proxy before it
	near []string // names that this connection watches, else those it dealt with lately
	then func()   // called before the connection is cut
}

func (p *passing) verb() string { return strings.ToUpper(p.args[0]) }

// commandName is a command as an ACL rule names it: "unlink", "memory|usage".
func commandName(args []string) string {
	name := strings.ToLower(args[0])
	switch name {
	case "client", "cluster", "command", "config", "memory", "object", "script", "xgroup", "xinfo":
		if len(args) > 1 {
			name += "|" + strings.ToLower(args[1])
		}
	}
	return name
}

// fate is what becomes of a command that reached a proxy.
type fate int

const (
	passes     fate = iota
	unanswered      // executed, and the connection is cut instead of a reply
	lost            // the connection is cut, and the server never sees it
)

func startProxy(t *testing.T, s *server, before func(*passing), meets func(*passing) fate) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{s: s, addr: l.Addr().String(), before: before, fate: meets, conns: map[net.Conn]bool{}, ours: map[string]bool{}}
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.relay(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// relay serves one connection until either side ends it.
func (p *proxy) relay(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.s.addr, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.ours[server.LocalAddr().String()] = true
	p.mu.Unlock()
	defer func() {
		_, _ = client.Close(), server.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
	asks, answers := bufio.NewReader(client), bufio.NewReader(server)
	var near nearby
	for {
		var cmd, reply bytes.Buffer
		var words []string
		if readValue(asks, &cmd, func(s string) { words = append(words, s) }) != nil || len(words) == 0 {
			return
		}
		near.take(words)
		c := &passing{s: p.s, args: words, near: near.names(), then: func() {}}
		meets := p.judge(c)
		if meets == lost {
			c.then()
			return
		}
		if _, err := server.Write(cmd.Bytes()); err != nil || readValue(answers, &reply, func(string) {}) != nil {
			return
		}
		if meets == unanswered {
			c.then()
			return
		}
		if _, err := client.Write(reply.Bytes()); err != nil {
			return
		}
	}
}

func (p *proxy) judge(c *passing) fate {
	if p.before != nil {
		p.before(c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.n = len(p.sent)
	p.sent = append(p.sent, commandName(c.args))
	if p.fate == nil {
		return passes
	}
	return p.fate(c)
}

// isOurs says whether a server's peer is a connection of this proxy.
func (p *proxy) isOurs(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ours[addr]
}

// passed names the commands that came, in order.
func (p *proxy) passed() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}

// nearby is what a connection is about.
type nearby struct{ watched, looked []string }

func (n *nearby) take(cmd []string) {
	const most = 8
	switch strings.ToUpper(cmd[0]) {
	case "WATCH":
		n.watched = cmd[1:]
	case "EVAL", "EVALSHA":
		n.looked = append(n.looked, cmd[min(3, len(cmd)-1)])
	case "TYPE", "PTTL", "HLEN", "SCARD", "LLEN", "ZCARD", "STRLEN":
		n.looked = append(n.looked, cmd[len(cmd)-1])
	}
	n.looked = n.looked[max(0, len(n.looked)-most):]
}

func (n *nearby) names() []string {
	if len(n.watched) > 0 {
		return n.watched
	}
	return n.looked
}

// readValue reads one value of RESP2, a command or a reply, whole, and gives
// each string in it to bulk.
func readValue(r *bufio.Reader, raw *bytes.Buffer, bulk func(string)) error {
	line, err := r.ReadBytes('\n')
	raw.Write(line)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	switch {
	case line[0] == '$' && n >= 0:
		from := raw.Len()
		if _, err := io.CopyN(raw, r, int64(n)+2); err != nil {
			return err
		}
		bulk(string(raw.Bytes()[from : from+n]))
	case line[0] == '*':
		for range n {
			if err := readValue(r, raw, bulk); err != nil {
				return err
			}
		}
	}
	return nil
}

// startProxies puts a proxy before every master.
func startProxies(t *testing.T, d *deployment, before func(*passing), meets func(*passing) fate) (out []*proxy) {
	t.Helper()
	for _, m := range d.masters {
		out = append(out, startProxy(t, m, before, meets))
	}
	return out
}

// through is how the binary is told to reach a deployment by its proxies
// only: each address, given or announced by a node, is mapped to one.
func through(t *testing.T, o *operator, d *deployment, proxies []*proxy) []string {
	t.Helper()
	pairs := make([]string, len(proxies))
	for i, p := range proxies {
		pairs[i] = fmt.Sprintf("%q: %q", p.s.addr, p.addr)
	}
	conf := o.file(t, "proxies.yaml", fmt.Sprintf("targets:\n  here: {addresses: [%q], address_map: {%s}}\n",
		d.masters[0].addr, strings.Join(pairs, ", ")))
	return []string{"--config", conf, "--target", "here"}
}

// wire is a connection of the test's own to one server, for commands whose
// replies don't matter. One goroutine at a time may use it.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
}

func newWire(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn: conn, r: bufio.NewReader(conn)}
}

func (w *wire) addr() string { return w.conn.LocalAddr().String() }

// send sends commands together and returns their replies, raw.
func (w *wire) send(cmds ...[]string) ([]string, error) {
	var out bytes.Buffer
	for _, cmd := range cmds {
		fmt.Fprintf(&out, "*%d\r\n", len(cmd))
		for _, a := range cmd {
			fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	_ = w.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := w.conn.Write(out.Bytes()); err != nil {
		return nil, err
	}
	replies := make([]string, len(cmds))
	for i := range cmds {
		var raw bytes.Buffer
		if err := readValue(w.r, &raw, func(string) {}); err != nil {
			return nil, err
		}
		replies[i] = raw.String()
	}
	return replies, nil
}

// The proxy is tested, too: one that lets nobody in, or cuts nothing, would
// let the tests behind it pass.
func TestHarnessProxy(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		between := newWire(t, m.addr)
		p := startProxy(t, m, func(c *passing) {
			if c.verb() == "INCR" {
				_, _ = between.send([]string{"INCRBY", c.args[1], "100"})
			}
		}, func(c *passing) fate {
			switch c.n {
			case 7:
				return unanswered
			case 9:
				return lost
			}
			return passes
		})
		w := newWire(t, p.addr)
		incr := []string{"INCR", "n"}
		got, err := w.send([]string{"MULTI"}, incr, incr, []string{"EXEC"}, incr, []string{"LRANGE", "none", "0", "-1"}, []string{"GET", "none"})
		want := "[+OK\r\n +QUEUED\r\n +QUEUED\r\n *2\r\n:201\r\n:202\r\n :303\r\n *0\r\n $-1\r\n]"
		if err != nil || fmt.Sprint(got) != want {
			t.Fatalf("%q, %v; want %q", fmt.Sprint(got), err, want)
		}
		for i, after := range []int64{404, 605} { // the second time INCR itself is lost
			if replies, err := w.send(incr, incr); err == nil {
				t.Errorf("a cut connection answers %q", replies)
			}
			eventually(t, 10*time.Second, "the proxy has dropped the connection", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return len(p.conns) == 0
			})
			if n := m.do(t, 0, "GET", "n"); n != fmt.Sprint(after) {
				t.Errorf("cut %d: n is %v, want %d", i, n, after)
			}
			w = newWire(t, p.addr)
			if i == 0 {
				if _, err := w.send(incr); err != nil { // number 8 passes
					t.Error(err)
				}
			}
		}
	})
}
