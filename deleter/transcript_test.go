package deleter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// says is an error reply of a server, in its words.
type says string

func (r says) Error() string { return string(r) }
func (says) RedisError()     {}

// errLost stands for a connection that broke before the reply.
var errLost = errors.New("i/o timeout")

// page is the reply to HSCAN and SSCAN.
type page struct {
	names []string
	next  uint64
}

// server answers commands as a test says, writes down what it was sent, and
// lets nobody dial.
type server struct {
	t      *testing.T
	answer func(args []string) any
	sent   strings.Builder
}

// newStore returns a store whose server gives these answers.
func newStore(t *testing.T, can Abilities, answer func(args []string) any) (*Redis, *server) {
	t.Helper()
	s := &server{t: t, answer: answer}
	rdb := redis.NewClient(&redis.Options{Protocol: 2, MaxRetries: -1})
	rdb.AddHook(s)
	t.Cleanup(func() { _ = rdb.Close() })
	return NewRedis(rdb, can), s
}

// inTurn gives answers one after another, whatever is asked.
func inTurn(t *testing.T, answers ...any) func([]string) any {
	return func(args []string) any {
		if len(answers) == 0 {
			t.Errorf("no answer left to %q", args)
			return errLost
		}
		a := answers[0]
		answers = answers[1:]
		return a
	}
}

func (s *server) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		s.t.Error("dialled")
		return nil, errLost
	}
}

func (s *server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		return s.roundTrip([]redis.Cmder{cmd})
	}
}

func (s *server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return s.roundTrip(cmds) }
}

func (s *server) roundTrip(cmds []redis.Cmder) (first error) {
	for _, cmd := range cmds {
		args := make([]string, len(cmd.Args()))
		for i, a := range cmd.Args() {
			if p, is := a.(*string); is {
				a = *p
			}
			args[i] = fmt.Sprint(a)
		}
		s.write(args)
		if err := s.set(cmd, s.answer(args)); err != nil && first == nil {
			first = err
		}
	}
	s.sent.WriteString("\n")
	return first
}

// write adds a command to the transcript; the script stands there by its name.
func (s *server) write(args []string) {
	for i, a := range args {
		switch {
		case a == verdict:
			a = "<verdict>"
		case a == verdictScript.Hash():
			a = "<verdict's digest>"
		case a == sweep:
			a = "<sweep>"
		case a == sweepScript.Hash():
			a = "<sweep's digest>"
		case a == "" || strconv.Quote(a) != `"`+a+`"` || strings.Contains(a, " "):
			a = strconv.Quote(a)
		}
		if i > 0 {
			s.sent.WriteString(" ")
		}
		s.sent.WriteString(a)
	}
	s.sent.WriteString("\n")
}

func (s *server) set(cmd redis.Cmder, answer any) error {
	if answer == nil {
		answer = redis.Nil
	}
	if err, failed := answer.(error); failed {
		cmd.SetErr(err)
		return err
	}
	switch c := cmd.(type) {
	case *redis.Cmd:
		c.SetVal(answer)
	case *redis.IntSliceCmd:
		c.SetVal(answer.([]int64))
	case *redis.IntCmd:
		c.SetVal(answer.(int64))
	case *redis.BoolCmd:
		c.SetVal(answer == int64(1))
	case *redis.StatusCmd:
		c.SetVal(answer.(string))
	case *redis.StringCmd:
		c.SetVal(answer.(string))
	case *redis.StringSliceCmd:
		c.SetVal(answer.([]string))
	case *redis.SliceCmd:
		c.SetVal(answer.([]any))
	case *redis.ScanCmd:
		c.SetVal(answer.(page).names, answer.(page).next)
	case *redis.XInfoGroupsCmd:
		c.SetVal(answer.([]redis.XInfoGroup))
	case *redis.XPendingExtCmd:
		c.SetVal(answer.([]redis.XPendingExt))
	default:
		s.t.Fatalf("no way to answer a %T", cmd)
	}
	return nil
}

// commands are those that were sent, without their arguments.
func (s *server) commands() []string {
	var out []string
	for line := range strings.Lines(s.sent.String()) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func (s *server) wantCommands(want ...string) {
	s.t.Helper()
	if got := s.commands(); !slices.Equal(got, want) {
		s.t.Errorf("sent %q, want %q", got, want)
	}
}

// golden compares the transcript with a file: a line a command, an empty line
// after each round trip.
func (s *server) golden(name string) {
	s.t.Helper()
	path := filepath.Join("testdata", name+".golden")
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
