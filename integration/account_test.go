package integration

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// executed is one command as a server's MONITOR shows it: in the one order in
// which the server executed them all, what scripts and EXEC did included.
type executed struct {
	by   string // the peer's address; "lua" for what a script did
	db   int
	args []string
}

func (e executed) verb() string { return strings.ToUpper(e.args[0]) }

func (e executed) String() string {
	return fmt.Sprintf("[%d %s] %.200q", e.db, e.by, e.args[:min(len(e.args), 6)])
}

// monitor takes down every command of one server.
type monitor struct {
	s     *server
	conn  net.Conn
	lines []executed
	err   error
	done  chan struct{}
}

const endOfAccount = "the account ends here"

func startMonitor(t *testing.T, s *server) *monitor {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := bufio.NewReaderSize(conn, 1<<20)
	_, err = conn.Write([]byte("MONITOR\r\n"))
	if ok, err2 := r.ReadString('\n'); err != nil || err2 != nil || ok != "+OK\r\n" {
		t.Fatalf("MONITOR on %s: %q %v %v", s.addr, ok, err, err2)
	}
	m := &monitor{s: s, conn: conn, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				m.err = err
				return
			}
			e, err := parseExecuted(line)
			if err != nil {
				m.err = err
				return
			}
			if e.verb() == "ECHO" && e.args[1] == endOfAccount {
				return
			}
			m.lines = append(m.lines, e)
		}
	}()
	return m
}

// end returns all that was executed up to now.
func (m *monitor) end(t *testing.T) []executed {
	t.Helper()
	m.s.do(t, 0, "ECHO", endOfAccount)
	select {
	case <-m.done:
	case <-time.After(time.Minute):
		_ = m.conn.Close()
		<-m.done
	}
	if m.err != nil {
		t.Fatalf("MONITOR on %s: %v", m.s.addr, m.err)
	}
	_ = m.conn.Close()
	return m.lines
}

// parseExecuted reads `+1700000000.123456 [0 127.0.0.1:1234] "GET" "x\x00"`.
// The quoting is Go's, as far as servers use it.
func parseExecuted(line string) (e executed, err error) {
	_, rest, ok1 := strings.Cut(line, " [")
	source, rest, ok2 := strings.Cut(rest, "] ")
	db, by, ok3 := strings.Cut(source, " ")
	if !ok1 || !ok2 || !ok3 {
		return e, fmt.Errorf("no line of MONITOR: %.200q", line)
	}
	e.by = by
	if e.db, err = strconv.Atoi(db); err != nil {
		return e, fmt.Errorf("no line of MONITOR: %.200q", line)
	}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimPrefix(rest, " ") {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return e, fmt.Errorf("no word of MONITOR: %.200q", rest)
		}
		word, _ := strconv.Unquote(quoted)
		e.args = append(e.args, word)
		rest = rest[len(quoted):]
	}
	if len(e.args) == 0 {
		return e, fmt.Errorf("no line of MONITOR: %.200q", line)
	}
	return e, nil
}
