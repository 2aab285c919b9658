package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const urlShape = "write redis://HOST:PORT, rediss://HOST:PORT (TLS), redis+cluster://HOST1,HOST2 or unix:///PATH"

// ParseURL reads the address of a deployment as one text:
//
//	redis://[user[:password]@]host[:port][,host[:port]…][/db]
//	rediss://…                     the same over TLS
//	redis+cluster://…              mode cluster; rediss+cluster:// over TLS
//	unix://[user[:password]@]/path/to.sock[?db=N]
//
// The port is 6379 where none is given; IPv6 addresses stand in brackets.
// What stands before the last @ is user and password, so a password may hold
// @, :, / and ? as they are. In both, %XX with two hexadecimal digits is one
// byte and any other % is itself; a password that holds the text %41 is
// written %2541. The target's name is its first address.
//
// No error repeats any part of the text: it may be the password.
func ParseURL(raw string) (Target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return Target{}, errors.New("no scheme in the URL; " + urlShape)
	}
	t := Target{Mode: ModeAuto}
	switch strings.ToLower(scheme) {
	case "redis":
	case "rediss":
		t.TLS = &TLS{}
	case "redis+cluster":
		t.Mode = ModeCluster
	case "rediss+cluster":
		t.Mode, t.TLS = ModeCluster, &TLS{}
	case "unix":
		return parseSocketURL(rest)
	case "redis+sentinel", "redis+sharded", "rediss+sentinel", "rediss+sharded":
		return Target{}, fmt.Errorf("%s:// is not supported by this version; %s", strings.ToLower(scheme), urlShape)
	case "http", "https":
		return Target{}, errors.New("an HTTP URL is no Redis address; " + urlShape)
	default:
		return Target{}, errors.New("unknown scheme in the URL; " + urlShape)
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		t.Username, t.Password = userInfo(rest[:at])
		rest = rest[at+1:]
	}
	if strings.ContainsAny(rest, "?#") {
		return Target{}, errors.New("a URL holds no parameters; write the database as /N and use flags for the rest")
	}
	hosts, db, hasDB := strings.Cut(rest, "/")
	if hasDB && db != "" {
		if err := t.setDB(db); err != nil {
			return Target{}, err
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		t.Addresses = append(t.Addresses, withPort(host))
	}
	return t.fromURL()
}

func parseSocketURL(rest string) (Target, error) {
	t := Target{Mode: ModeAuto}
	if !strings.HasPrefix(rest, "/") { // a path may hold an @ of its own
		at := strings.LastIndex(rest, "@/")
		if at < 0 {
			return Target{}, errors.New("no absolute path in the URL; write unix:///PATH")
		}
		t.Username, t.Password = userInfo(rest[:at])
		rest = rest[at+1:]
	}
	path, query, hasQuery := strings.Cut(rest, "?")
	if hasQuery {
		db, ok := strings.CutPrefix(query, "db=")
		if !ok {
			return Target{}, errors.New("unknown parameter in the URL; the only one is ?db=N")
		}
		if err := t.setDB(db); err != nil {
			return Target{}, err
		}
	}
	if path == "/" {
		return Target{}, errors.New("no absolute path in the URL; write unix:///PATH")
	}
	t.Addresses = []string{path}
	return t.fromURL()
}

func (t Target) fromURL() (Target, error) {
	t.Name = t.Addresses[0]
	if problems := t.Problems(); len(problems) > 0 {
		return Target{}, errors.New("in the URL: " + problems[0].Message)
	}
	return t, nil
}

func (t *Target) setDB(text string) error {
	db, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("the database in the URL is no number from 0 on; write /N after the host, or ?db=N after a socket's path")
	}
	t.DBs = []int{int(db)}
	return nil
}

// withPort adds the port that Redis listens on by default.
func withPort(host string) string {
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if host != "" && (bracketed || !strings.Contains(host, ":")) {
		return host + ":6379"
	}
	return host
}

func userInfo(text string) (string, Secret) {
	user, password, _ := strings.Cut(text, ":")
	return percentDecoded(user), Secret(percentDecoded(password))
}

// percentDecoded replaces %XX by its byte and leaves every other % alone.
func percentDecoded(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
