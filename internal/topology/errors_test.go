package topology

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// reply is an error as a server sends it.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

func TestJudge(t *testing.T) {
	for text, want := range map[reply]verdict{
		"ERR no such key": yes,
		"NOPERM this user has no permissions to access one of the keys used as arguments": yes, // 6.2, 7.0
		"NOPERM No permissions to access a key":                                           yes, // 7.4, Valkey 8

		"ERR unknown command 'unlink'":                                                      no, // 3.2
		"ERR unknown command `UNLINK`, with args beginning with: `k`, ":                     no, // 4.0 to 6.2
		"ERR unknown command 'unlink', with args beginning with: 'k' ":                      no, // 7.x
		"NOPERM this user has no permissions to run the 'unlink' command or its subcommand": no, // 6.2
		"NOPERM this user has no permissions to run the 'unlink' command":                   no, // 7.0
		"NOPERM this user has no permissions to run the 'config|get' command":               no, // 7.0
		"NOPERM User jan has no permissions to run the 'unlink' command":                    no, // 7.4, Valkey 8
		"ERR syntax error": no, // SCAN TYPE before 6.0
		"ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)": no,
		"ERR unknown subcommand 'no-touch'. Try CLIENT HELP.":                                    no,
		"section (server) is not supported":                                                      no, // miniredis

		"LOADING Redis is loading the dataset in memory":                                   later,
		"BUSY Redis is busy running a script.":                                             later,
		"EXECABORT Transaction discarded because of: BUSY Redis is busy running a script.": later, // from 7.0 on
		"EXECABORT Transaction discarded because of: NOPERM User jan has no permissions":   no,
		"READONLY You can't write against a read only replica.":                            later,
		"NOREPLICAS Not enough good slaves to write.":                                      later, // up to 4.0
		"MISCONF Redis is configured to save RDB snapshots":                                later,
		"OOM command not allowed when used memory > 'maxmemory'.":                          later,
		"CLUSTERDOWN The cluster is down":                                                  later,
		"MOVED 12706 ::1:21222":                                                            later,
	} {
		if got := judge(text); got != want {
			t.Errorf("judge(%q) = %v, want %v", text, got, want)
		}
	}
	if judge(nil) != yes || judge(redis.Nil) != yes {
		t.Error("an answer and an absent key are both a yes")
	}
}

func TestAuthErrorKeepsThePasswordToItself(t *testing.T) {
	d := &dialer{username: "jan", password: "hunter2"}
	var err error = d.authError("h:1", reply("ERR unknown command `AUTH`, with args beginning with: `jan`, `hunter2`, "))
	err = fmt.Errorf("wrapped: %w", err)
	if !errors.Is(err, ErrAuth) {
		t.Error("not an ErrAuth")
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if s := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(s, "hunter2") {
			t.Errorf("the password shows in %s", s)
		}
	}
	if got, want := d.authError("h:1", reply("WRONGPASS no")).Error(), `h:1 refuses user "jan": WRONGPASS no`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAuthErrorHints(t *testing.T) {
	for _, tc := range []struct {
		d    dialer
		text reply
		want string
	}{
		{dialer{username: "jan", password: "x"}, "ERR wrong number of arguments for 'auth' command", "before Redis 6"},
		{dialer{password: "x"}, "ERR Client sent AUTH, but no password is set", "has no password"},
		{dialer{}, "NOAUTH Authentication required.", "without a password"},
	} {
		if got := tc.d.authError("h:1", tc.text).Error(); !strings.Contains(got, tc.want) {
			t.Errorf("%s: no word of %q", got, tc.want)
		}
	}
}

func TestIOHintKeepsTheCause(t *testing.T) {
	if err := ioHint(io.EOF); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "TLS") {
		t.Error(err)
	}
	if other := errors.New("other"); ioHint(other) != other {
		t.Error("an unrelated error was dressed up")
	}
}
