package topology

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrIdentity: the address answers, but it is another process or node
	// than the one that was opened. Cursors are void and no fact read
	// before holds.
	ErrIdentity = errors.New("not the server that was opened")
	// ErrRole: the node is no longer what it was, or a replica where a
	// primary is needed.
	ErrRole = errors.New("wrong role")
	// ErrAuth: the server refuses the login, or what the user may not do is
	// needed to go on.
	ErrAuth = errors.New("not allowed")
)

// AuthError is what ErrAuth looks like: which server refused whom, in the
// server's words. It never holds a password.
type AuthError struct {
	Addr  string
	User  string // `user "jan"` or "the default user"
	Words string // the server's
	Hint  string
}

func (e *AuthError) Error() string {
	s := fmt.Sprintf("%s refuses %s: %s", e.Addr, e.User, e.Words)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Is makes errors.Is(err, ErrAuth) true.
func (e *AuthError) Is(target error) bool { return target == ErrAuth }

// authError turns a server's refusal into an AuthError. The error itself is
// dropped on purpose: servers quote the arguments of a command they do not
// know, and the argument of AUTH is the password.
func (d *dialer) authError(addr string, err error) *AuthError {
	e := &AuthError{Addr: addr, User: d.user(), Words: words(err)}
	switch {
	case d.username != "" && redis.HasErrorPrefix(err, "wrong number of arguments for 'auth'"):
		e.Hint = "servers before Redis 6 know no user names: leave the user name out"
	case d.password != "" && (redis.HasErrorPrefix(err, "Client sent AUTH, but no password") ||
		redis.HasErrorPrefix(err, "AUTH <password> called without")):
		e.Hint = "the server has no password: leave it out"
	}
	return e
}

// words is a server's reply without what it quotes of our own arguments.
func words(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", with args beginning with")
	return text
}

// ioHint explains a connection that the server closed at once. The library
// begins every connection with HELLO, which every Redis since 2.8 answers in
// some way.
func ioHint(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w (the server closes the connection before it answers: it may want TLS, "+
			"be a proxy that does not know HELLO, or take no more clients)", err)
	}
	return err
}

// isDialError reports whether there never was a connection.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isReply reports whether a server said it, rather than the network.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// verdict is what a reply says about having a command.
type verdict int

const (
	yes   verdict = iota // it ran, or what kept it from running comes after the permission check
	no                   // absent, renamed, or not for this user
	later                // there and allowed, but the server runs nothing at present
)

// judge reads the reply to a probe that named a key which does not exist. The
// order in which servers check is what makes it work: existence of the
// command, number of arguments, the user's permission for the command, for
// the key, and only then the cluster, memory, disk, replicas and loading.
// It must not be given an error of the network.
func judge(err error) verdict {
	if err == nil || errors.Is(err, redis.Nil) {
		return yes
	}
	for _, p := range []string{
		"no such key",
		// The command is allowed, a made-up key name is not.
		"NOPERM this user has no permissions to access one of the keys", // 6.0 to 7.0
		"NOPERM No permissions to access a key",                         // 7.2
	} {
		if redis.HasErrorPrefix(err, p) {
			return yes
		}
	}
	// From 7.0 on EXEC says what its commands were not told.
	text := strings.TrimPrefix(err.Error(), "EXECABORT Transaction discarded because of: ")
	for _, p := range []string{
		"LOADING ", "BUSY ", "MASTERDOWN ", "CLUSTERDOWN ", "MOVED ", "ASK ", "TRYAGAIN ",
		"OOM ", "MISCONF ", "NOREPLICAS ", "READONLY ",
	} {
		if strings.HasPrefix(text, p) {
			return later
		}
	}
	return no
}
