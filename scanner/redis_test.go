package scanner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// says is an error reply of a server, in its words.
type says string

func (s says) Error() string { return string(s) }
func (says) RedisError()     {}

// errLost stands for a connection that broke before the reply.
var errLost = errors.New("i/o timeout")

// reply is the reply to SCAN.
type reply struct {
	names []string
	next  uint64
}

// server answers commands as a test says, writes down what it was sent, and
// lets nobody dial.
type server struct {
	t      *testing.T
	pages  map[uint64]reply // by cursor
	answer func(args []string) any
	sent   strings.Builder
}

// keyspace answers every probe: a key "type:n" is of that type and has n
// elements or bytes, a hundred bytes to each, and no TTL.
func keyspace(args []string) any {
	typ, size, _ := strings.Cut(args[len(args)-1], ":")
	n, _ := strconv.ParseInt(size, 10, 64)
	switch args[0] {
	case "type":
		return typ
	case "memory":
		return 100 * n
	case "pttl":
		return NoTTL
	case "object":
		return "encoded"
	}
	return n
}

func (s *server) client() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Protocol: 2, MaxRetries: -1})
	rdb.AddHook(s)
	s.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (s *server) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		s.t.Error("dialled")
		return nil, errLost
	}
}

func (s *server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		s.t.Errorf("%v was not sent in a pipeline", cmd.Args())
		return errLost
	}
}

func (s *server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) (first error) {
		for _, cmd := range cmds {
			args := make([]string, len(cmd.Args()))
			for i, a := range cmd.Args() {
				args[i] = fmt.Sprint(a)
			}
			line := strconv.Quote(strings.Join(args, " "))
			s.sent.WriteString(line[1:len(line)-1] + "\n")
			if err := s.set(cmd, args); err != nil && first == nil {
				first = err
			}
		}
		s.sent.WriteString("\n")
		return first
	}
}

func (s *server) set(cmd redis.Cmder, args []string) error {
	var answer any
	if s.answer != nil {
		answer = s.answer(args)
	} else {
		answer = keyspace(args)
	}
	if _, scan := cmd.(*redis.ScanCmd); scan && !failed(answer) {
		cursor, _ := strconv.ParseUint(args[1], 10, 64)
		page, there := s.pages[cursor]
		if !there {
			s.t.Errorf("asked for cursor %s, which no page ended with", args[1])
		}
		answer = page
	}
	if answer == nil {
		answer = redis.Nil
	}
	if err, failed := answer.(error); failed {
		cmd.SetErr(err)
		return err
	}
	switch c := cmd.(type) {
	case *redis.IntCmd:
		c.SetVal(answer.(int64))
	case *redis.StatusCmd:
		c.SetVal(answer.(string))
	case *redis.StringCmd:
		c.SetVal(answer.(string))
	case *redis.ScanCmd:
		c.SetVal(answer.(reply).names, answer.(reply).next)
	default:
		s.t.Fatalf("no way to answer a %T", cmd)
	}
	return nil
}

func failed(answer any) bool {
	_, is := answer.(error)
	return is
}

// golden compares the transcript with a file: a line a command, an empty line
// after each round trip.
func (s *server) golden(name string) {
	s.t.Helper()
	path := "testdata/" + name + ".golden"
	if *update {
		if err := os.WriteFile(path, []byte(s.sent.String()), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if got := s.sent.String(); got != string(want) {
		s.t.Errorf("%s: sent\n%s\nwant\n%s", name, got, want)
	}
}

// gate lets everything pass and writes down what was asked of it.
type gate struct {
	batch, pipe int // 0: 100, and any number
	waits       int // commands in all
	left        int // Waits until err; 0: never
	err         error
	seen        []int // keys of each page that was observed
}

func (g *gate) Wait(ctx context.Context, commands, elements int, bytes int64) error {
	if elements != 0 || bytes != 0 {
		return fmt.Errorf("a scan that removes %d elements, %d bytes", elements, bytes)
	}
	g.waits += commands
	if g.left--; g.left == 0 {
		return g.err
	}
	return ctx.Err()
}

func (g *gate) Batch(string) int {
	if g.batch == 0 {
		return 100
	}
	return g.batch
}

func (g *gate) Pipeline(n int) int {
	if g.pipe == 0 {
		return n
	}
	return min(n, g.pipe)
}

func (g *gate) Again(context.Context, error) bool        { return false }
func (g *gate) Observe(_ string, n int, _ time.Duration) { g.seen = append(g.seen, n) }
