package topology

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// binaries lists the servers to test with: KEYJANITOR_TEST_SERVERS, else what
// is on the PATH.
func binaries(t *testing.T) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers")
	}
	if list := os.Getenv("KEYJANITOR_TEST_SERVERS"); list != "" {
		return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ':' || r == ' ' })
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no redis-server on the PATH")
		}
		t.Skip("no redis-server on the PATH")
	}
	return []string{path}
}

// eachServer runs a test with every binary.
func eachServer(t *testing.T, test func(t *testing.T, binary string)) {
	for _, b := range binaries(t) {
		t.Run(strings.Trim(strings.ReplaceAll(b, "/", "_"), "_"), func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// process is a server that a test started.
type process struct {
	t      *testing.T
	binary string
	dir    string
	lines  []string
	port   int
	cmd    *exec.Cmd
	exited chan struct{}
}

// start runs a server on a free loopback port with these configuration lines.
func start(t *testing.T, binary string, lines ...string) *process {
	t.Helper()
	p := &process{t: t, binary: binary, dir: t.TempDir(), lines: lines}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			t.Logf("log of %s:\n%s", p.addr(), log)
		}
	})
	for range 3 { // somebody else may take the port first
		p.port = freePort(t)
		if p.launch() {
			return p
		}
	}
	t.Fatalf("%s does not start", binary)
	return nil
}

func (p *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// run starts the server anew, on the port it had.
func (p *process) run() {
	p.t.Helper()
	if !p.launch() {
		p.t.Fatalf("%s does not start again", p.addr())
	}
}

// launch reports whether the server runs and answers.
func (p *process) launch() bool {
	p.t.Helper()
	file := filepath.Join(p.dir, "server.conf")
	lines := append([]string{fmt.Sprintf("port %d", p.port), "bind 127.0.0.1", "save \"\"", "dir " + p.dir,
		"logfile " + filepath.Join(p.dir, "log")}, p.lines...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.exited = exec.Command(p.binary, file), make(chan struct{})
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		answers := p.answers()
		select {
		case <-p.exited:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if answers {
			return true
		}
	}
	return false
}

// answers asks for anything, be it NOAUTH: it comes only when the server has
// opened all its sockets.
func (p *process) answers() bool {
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "PING\r\n")
	n, _ := conn.Read(make([]byte, 64))
	return n > 0
}

func (p *process) stop() {
	if p.cmd != nil {
		p.cmd.Process.Kill()
		<-p.exited
	}
}

// freePort finds a port whose cluster bus port, 10000 above, is free too.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		a, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10000))
		a.Close()
		if err != nil {
			continue
		}
		b.Close()
		return port
	}
	t.Fatal("no free port")
	return 0
}

// admin is a client of the test's own, outside of what is tested.
func (p *process) admin(o redis.Options) *redis.Client {
	o.Addr, o.Protocol, o.DisableIdentity, o.MaxRetries = p.addr(), 2, true, -1
	c := redis.NewClient(&o)
	p.t.Cleanup(func() { c.Close() })
	return c
}

// do sends commands, each a line of words.
func (p *process) do(lines ...string) any {
	p.t.Helper()
	var reply any
	for _, line := range lines {
		var args []any
		for _, w := range strings.Fields(line) {
			args = append(args, w)
		}
		var err error
		if reply, err = p.admin(redis.Options{}).Do(context.Background(), args...).Result(); err != nil {
			p.t.Fatalf("%s: %s: %v", p.addr(), line, err)
		}
	}
	return reply
}

// info reads one section.
func (p *process) info(section string) map[string]string {
	p.t.Helper()
	text, _ := p.do("INFO " + section).(string)
	return parseInfo(text)
}

// needs skips a test on servers older than it needs.
func (p *process) needs(major, minor int) {
	p.t.Helper()
	var s Server
	s.setFromInfo(p.info("server"))
	if !s.AtLeast(major, minor, 0) {
		p.t.Skipf("%v is older than %d.%d", s, major, minor)
	}
}

func (p *process) target() config.Target {
	return config.Target{Name: "t", Addresses: []string{p.addr()}, Mode: config.ModeAuto}
}

// mustOpen opens a target and closes it with the test.
func mustOpen(t *testing.T, target config.Target, o Options) *Topology {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	top, err := Open(ctx, target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { top.Close() })
	return top
}

// owner is the master that a slot is given to.
func owner(slot, masters int) int { return slot * masters / slotCount }

// cluster starts n masters that share the slots evenly and waits until each
// sees the cluster as whole.
func cluster(t *testing.T, binary string, n int, lines ...string) []*process {
	t.Helper()
	lines = append([]string{"cluster-enabled yes", "cluster-node-timeout 2000"}, lines...)
	nodes := make([]*process, n)
	for i := range nodes {
		nodes[i] = start(t, binary, lines...)
		var add strings.Builder
		add.WriteString("CLUSTER ADDSLOTS")
		for slot := range slotCount {
			if owner(slot, n) == i {
				fmt.Fprintf(&add, " %d", slot)
			}
		}
		nodes[i].do(add.String())
		if i > 0 {
			nodes[i].do(fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1),
				fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d", nodes[0].port))
		}
	}
	for _, p := range nodes {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			text, _ := p.do("CLUSTER INFO").(string)
			f := parseInfo(text)
			if f["cluster_state"] == "ok" && f["cluster_known_nodes"] == fmt.Sprint(n) && f["cluster_size"] == fmt.Sprint(n) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("cluster does not form: %v", f)
			}
		}
	}
	return nodes
}
