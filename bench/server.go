package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// noUnlink is the line of a server's configuration that takes UNLINK away.
const noUnlink = `rename-command UNLINK ""`

// slowLine is from where on the server notes a command in its slow log.
const slowLine = time.Millisecond

// serverBinary is a program that the bench runs on.
type serverBinary struct{ path, version string }

// since tells whether a server is of a version or a later one. Valkey's begin
// at 8.
func (b serverBinary) since(major int) bool {
	var is int
	if _, v, found := strings.Cut(b.version, " v="); found {
		_, _ = fmt.Sscanf(v, "%d.", &is)
	}
	return is >= major
}

// findServers returns the binaries of a list, or the redis-server of the PATH.
func findServers(ctx context.Context, list string) ([]serverBinary, error) {
	paths := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(":, \t\r\n", r) })
	if len(paths) == 0 {
		path, err := exec.LookPath("redis-server")
		if err != nil {
			return nil, fmt.Errorf("find a server (Debian: apt-get install redis-server): %w", err)
		}
		paths = []string{path}
	}
	var out []serverBinary
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		text, err := exec.CommandContext(ctx, path, "--version").Output()
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", path, err)
		}
		out = append(out, serverBinary{path, strings.TrimSpace(string(text))})
	}
	return out, nil
}

// server is one process that the bench started.
type server struct {
	bin  serverBinary
	addr string
	rdb  *redis.Client
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// startServer starts a server that saves nothing and returns when it answers.
func startServer(ctx context.Context, bin serverBinary, parent string, options ...string) (*server, error) {
	for attempt := 1; ; attempt++ {
		s, err := tryServer(ctx, bin, parent, options)
		// Another process may have taken the port between the look and the bind.
		if err == nil || attempt == 3 || ctx.Err() != nil {
			return s, err
		}
	}
}

func tryServer(ctx context.Context, bin serverBinary, parent string, options []string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "server-")
	if err != nil {
		return nil, err
	}
	lines := append([]string{
		"port " + strconv.Itoa(port), "bind 127.0.0.1", "dir " + dir, `save ""`, "appendonly no",
		"slowlog-log-slower-than " + strconv.FormatInt(slowLine.Microseconds(), 10), "slowlog-max-len 100000",
	}, options...)
	if !bin.since(4) { // it has no UNLINK to take away
		lines = slices.DeleteFunc(lines, func(l string) bool { return l == noUnlink })
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
	s := &server{bin: bin, addr: "127.0.0.1:" + strconv.Itoa(port), cmd: exec.Command(bin.path, conf), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	dieWithUs(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	s.rdb = client(s.addr)
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := s.rdb.Ping(ctx).Err()
		if err == nil {
			return s, nil
		}
		select {
		case <-s.done:
			text, _ := os.ReadFile(log.Name())
			err = fmt.Errorf("%s ended at once:\n%s", bin.path, text)
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		s.stop()
		return nil, fmt.Errorf("start server: %w", err)
	}
}

// stop ends this process, and no other.
func (s *server) stop() {
	_ = s.rdb.Close()
	_ = s.cmd.Process.Kill()
	<-s.done
}

// client returns a client with one connection that sends nothing twice.
func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1, PipelinePoolSize: -1,
		DialerRetries: 1, ReadTimeout: time.Minute, WriteTimeout: time.Minute, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// longest is the longest command since the slow log was last reset; 0 if
// none reached slowLine.
func (s *server) longest(ctx context.Context) (time.Duration, error) {
	logs, err := s.rdb.SlowLogGet(ctx, 100_000).Result()
	if err != nil {
		return 0, fmt.Errorf("read slow log: %w", err)
	}
	var most time.Duration
	for _, l := range logs {
		most = max(most, l.Duration)
	}
	return most, nil
}

func (s *server) resetSlowLog(ctx context.Context) error {
	return s.rdb.Do(ctx, "SLOWLOG", "RESET").Err()
}

// cpu is the processor time that the server has used so far.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	text, err := s.rdb.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, fmt.Errorf("read the server's CPU time: %w", err)
	}
	var sum float64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("read the server's CPU time: %w", err)
			}
			sum += v
		}
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// turns are one contender's, run by run.
type turns struct {
	times []time.Duration // by the contender's clock or ours
	cpu   []time.Duration // of the server meanwhile
}

// take gives a contender one turn.
func (t *turns) take(ctx context.Context, s *server, do func() (time.Duration, error)) error {
	before, err := s.cpu(ctx)
	if err != nil {
		return err
	}
	took, err := do()
	if err != nil {
		return err
	}
	after, err := s.cpu(ctx)
	t.times, t.cpu = append(t.times, took), append(t.cpu, after-before)
	return err
}

// lazyDel says whether the server's DEL is an UNLINK by its own default, as
// in Valkey 8.
func (s *server) lazyDel(ctx context.Context) bool {
	v, err := s.rdb.ConfigGet(ctx, "lazyfree-lazy-user-del").Result()
	return err == nil && v["lazyfree-lazy-user-del"] == "yes"
}

// absent fails if one of the keys is still there, or anything in its place.
func (s *server) absent(ctx context.Context) error {
	n, err := s.rdb.DBSize(ctx).Result()
	if err == nil && n != 0 {
		err = errors.New("the server is not empty, though all was to be removed")
	}
	return err
}
