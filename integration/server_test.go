package integration

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// startLimit is how long a server may take until it answers PING; on a
// loaded machine with two cores a start of 2 s was seen.
const startLimit = 20 * time.Second

// server is one server process of this test.
type server struct {
	bin  serverBinary
	addr string
	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	t    *testing.T

	mu      sync.Mutex
	clients map[int]*redis.Client
}

// option is a line of the server's configuration file.
type option string

const (
	noUnlink  option = `rename-command UNLINK ""`
	slow20ms  option = "slowlog-log-slower-than 20000"
	logAll    option = "slowlog-log-slower-than 0" // with it the slow log is a journal of every command
	noUnlinkU        = "janitor"
	noUnlinkP        = "sweep-9"
)

// userWithoutUnlink is an ACL user who may do everything but UNLINK.
const userWithoutUnlink option = "user " + noUnlinkU + " on >" + noUnlinkP + " ~* +@all -unlink"

// needPass sets a password for everyone.
func needPass(p string) option { return option("requirepass " + p) }

// startServer starts one server and returns when it answers.
func startServer(t *testing.T, b serverBinary, opts ...option) *server {
	t.Helper()
	for attempt := 1; ; attempt++ {
		s, err := tryServer(t, b, false, opts)
		if err == nil {
			return s
		}
		// Another process may have taken the port between the look and the bind.
		if attempt == 3 {
			t.Fatal(err)
		}
		t.Logf("starting %s again: %v", b, err)
	}
}

func tryServer(t *testing.T, b serverBinary, cluster bool, opts []option) (*server, error) {
	port := freePort(t)
	dir, err := os.MkdirTemp(t.TempDir(), "server-")
	if err != nil {
		return nil, err
	}
	lines := []string{
		"port " + strconv.Itoa(port), "bind 127.0.0.1", "dir " + dir,
		`save ""`, "appendonly no", "databases 16", "tcp-backlog 64", "maxclients 500",
		"slowlog-max-len 1000000", "repl-diskless-sync-delay 0", string(slow20ms),
	}
	if cluster {
		lines = append(lines, "cluster-enabled yes", "cluster-config-file nodes.conf",
			"cluster-node-timeout 15000", "cluster-require-full-coverage no")
	}
	for _, o := range opts {
		lines = append(lines, string(o))
	}
	conf := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &server{bin: b, addr: "127.0.0.1:" + strconv.Itoa(port), dir: dir, t: t,
		done: make(chan struct{}), clients: map[int]*redis.Client{}}
	s.cmd = exec.Command(b.path, conf)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	dieWithTests(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s at %s:\n%s", b, s.addr, s.tail())
		}
		s.stop()
	})
	deadline := time.Now().Add(startLimit)
	for !s.answers() {
		select {
		case <-s.done:
			return nil, fmt.Errorf("%s ended at once:\n%s", b, s.tail())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("%s did not answer within %v:\n%s", b, startLimit, s.tail())
		}
	}
	return s, nil
}

// answers says whether the process serves; a refusal for want of a password
// is an answer.
func (s *server) answers() bool {
	c, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	buf := make([]byte, 64)
	n, _ := c.Read(buf)
	return strings.HasPrefix(string(buf[:n]), "+PONG") || strings.HasPrefix(string(buf[:n]), "-NOAUTH")
}

// stop ends this process, and no other.
func (s *server) stop() {
	s.mu.Lock()
	for _, c := range s.clients {
		_ = c.Close()
	}
	clear(s.clients)
	s.mu.Unlock()
	_ = s.cmd.Process.Kill()
	<-s.done
}

// tail is the end of the server's own log.
func (s *server) tail() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "server.log"))
	if err != nil {
		return err.Error()
	}
	if len(text) > 4000 {
		text = text[len(text)-4000:]
	}
	return string(text)
}

// client is the test's own connection to one database. Its timeouts bound
// every exchange.
func (s *server) client(db int) *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[db]
	if c == nil {
		c = redis.NewClient(&redis.Options{
			Addr: s.addr, DB: db, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 4,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute, PipelinePoolSize: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		s.clients[db] = c
	}
	return c
}

// do sends one command of the test's own and fails the test if it is refused.
func (s *server) do(t *testing.T, db int, args ...any) any {
	t.Helper()
	v, err := s.client(db).Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%s: %.200q: %v", s.addr, fmt.Sprint(args...), err)
	}
	return v
}

func (s *server) doInt(t *testing.T, db int, args ...any) int64 {
	t.Helper()
	n, ok := s.do(t, db, args...).(int64)
	if !ok {
		t.Fatalf("%s: %.200q: not a number", s.addr, fmt.Sprint(args...))
	}
	return n
}

// info is one section of INFO as a map.
func (s *server) info(t *testing.T, section string) map[string]string {
	t.Helper()
	text, _ := s.do(t, 0, "INFO", section).(string)
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[k] = v
		}
	}
	return out
}

// url is what an operator would type, with an optional database.
func (s *server) url(db ...int) string {
	u := "redis://" + s.addr
	if len(db) > 0 {
		u += "/" + strconv.Itoa(db[0])
	}
	return u
}

var (
	portMu    sync.Mutex
	portsUsed = map[int]bool{}
)

// freePort finds a port that is free together with the one 10,000 above it,
// where a cluster node listens for its peers. Both lie below 32768, where
// outgoing connections begin, so that none of those takes one in between.
func freePort(t *testing.T) int {
	t.Helper()
	portMu.Lock()
	defer portMu.Unlock()
	for range 2000 {
		p := 11_000 + rand.IntN(11_000)
		if portsUsed[p] || !canListen(p) || !canListen(p+10_000) {
			continue
		}
		portsUsed[p] = true
		return p
	}
	t.Fatal("no free port found")
	return 0
}

func canListen(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// eventually polls until the condition holds; it is the only way in which
// these tests wait.
func eventually(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
