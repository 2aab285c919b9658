package integration

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// entry is what the model knows of one key.
type entry struct {
	kind    string
	items   map[string]float64 // fields, members and their scores
	n       int64              // entries of a list, bytes of a string
	expires bool
	ttl     time.Duration // as it was set: rules have thresholds far from it
}

// elements is what the length command says; a string has none.
func (e *entry) elements() int64 {
	switch e.kind {
	case "string":
		return 0
	case "list":
		return e.n
	}
	return int64(len(e.items))
}

// model is a keyspace, kept up by replaying what a server executed.
type model map[keyID]*entry

// change is what one command did.
type change struct {
	took    int64   // elements that it removed
	gone    []keyID // keys that it removed
	renamed bool
}

// reads are the commands that change no key.
var reads = map[string]bool{"ECHO": true, "PING": true, "INFO": true, "SELECT": true, "HELLO": true, "AUTH": true, "COMMAND": true,
	"CLIENT": true, "CLUSTER": true, "DBSIZE": true, "SCAN": true, "TYPE": true, "PTTL": true, "TTL": true, "EXISTS": true, "TIME": true,
	"STRLEN": true, "LLEN": true, "HLEN": true, "SCARD": true, "ZCARD": true, "OBJECT": true, "MEMORY": true, "EVAL": true, "EVALSHA": true,
	"WATCH": true, "UNWATCH": true, "MULTI": true, "EXEC": true, "DISCARD": true, "HSCAN": true, "SSCAN": true, "HKEYS": true,
	"ZRANGE": true, "GET": true, "HGET": true, "LRANGE": true, "DUMP": true, "HGETALL": true, "SMEMBERS": true, "CONFIG": true,
	"SLOWLOG": true}

// apply replays one command. It is exact for the commands that the tests and
// the binary send, and fails on any other.
func (m model) apply(db int, args []string) (c change, err error) {
	verb := strings.ToUpper(args[0])
	if reads[verb] {
		return c, nil
	}
	if len(args) < 2 {
		return c, fmt.Errorf("the model does not know %q", args)
	}
	id := keyID{db, args[1]}
	e := m[id]
	switch verb {
	case "DEL", "UNLINK":
		for _, name := range args[1:] {
			id := keyID{db, name}
			if e := m[id]; e != nil {
				c.took += e.elements()
				m.drop(id, &c)
			}
		}
		return c, nil
	case "RENAME", "RENAMENX":
		to := keyID{db, args[2]}
		if e == nil || verb == "RENAMENX" && m[to] != nil {
			return c, nil
		}
		delete(m, id)
		m[to], c.renamed = e, true
		return c, nil
	case "SET":
		m[id] = &entry{kind: "string", n: int64(len(args[2]))}
		return c, nil
	case "PERSIST":
		if e != nil {
			e.expires = false
		}
		return c, nil
	case "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT":
		return c, m.expire(id, verb, args[2], &c)
	}
	return c, m.write(id, verb, args[2:], &c)
}

func (m model) drop(id keyID, c *change) {
	delete(m, id)
	c.gone = append(c.gone, id)
}

func (m model) expire(id keyID, verb, arg string, c *change) error {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		return err
	}
	unit := time.Second
	if verb[0] == 'P' {
		unit = time.Millisecond
	}
	ttl := time.Duration(n) * unit
	if strings.HasSuffix(verb, "AT") {
		ttl = time.Until(time.Unix(0, 0).Add(ttl))
	}
	switch e := m[id]; {
	case e == nil:
	case ttl <= 0:
		c.took += e.elements()
		m.drop(id, c)
	default:
		e.expires, e.ttl = true, ttl
	}
	return nil
}

// written is the type that a command writes to.
var written = map[string]string{"APPEND": "string", "HSET": "hash", "HMSET": "hash", "HDEL": "hash", "SADD": "set", "SREM": "set",
	"RPUSH": "list", "LTRIM": "list", "ZADD": "zset", "ZREM": "zset", "ZREMRANGEBYRANK": "zset", "ZREMRANGEBYSCORE": "zset"}

// write replays a command that changes what a key holds.
func (m model) write(id keyID, verb string, args []string, c *change) error {
	kind := written[verb]
	e := m[id]
	switch {
	case kind == "":
		return fmt.Errorf("the model does not know %s", verb)
	case e != nil && e.kind != kind:
		return nil // WRONGTYPE
	case e == nil && (strings.Contains(verb, "REM") || verb == "HDEL" || verb == "LTRIM"):
		return nil
	case e == nil:
		e = &entry{kind: kind, items: map[string]float64{}}
		m[id] = e
	}
	had := e.elements()
	switch verb {
	case "APPEND":
		e.n += int64(len(args[0]))
	case "RPUSH":
		e.n += int64(len(args))
	case "LTRIM":
		e.n = trimmed(e.n, number(args[0]), number(args[1]))
	case "HSET", "HMSET":
		for i := 0; i+1 < len(args); i += 2 {
			e.items[args[i]] = 0
		}
	case "SADD":
		for _, a := range args {
			e.items[a] = 0
		}
	case "ZADD":
		for i := 0; i+1 < len(args); i += 2 {
			e.items[args[i+1]] = score(args[i])
		}
	case "HDEL", "SREM", "ZREM":
		for _, a := range args {
			delete(e.items, a)
		}
	case "ZREMRANGEBYSCORE":
		for k, s := range e.items {
			if s >= score(args[0]) && s <= score(args[1]) {
				delete(e.items, k)
			}
		}
	case "ZREMRANGEBYRANK":
		ranked := e.ranked()
		from, to := span(int64(len(ranked)), number(args[0]), number(args[1]))
		for _, k := range ranked[from:to] {
			delete(e.items, k)
		}
	}
	c.took += max(0, had-e.elements())
	if e.elements() == 0 && kind != "string" {
		m.drop(id, c)
	}
	return nil
}

func (e *entry) ranked() []string {
	out := make([]string, 0, len(e.items))
	for k := range e.items {
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := e.items[out[i]], e.items[out[j]]
		return a < b || a == b && out[i] < out[j]
	})
	return out
}

// span is where a range with negative indexes begins and ends, as the servers
// count it: the end is included there and not here.
func span(n, from, to int64) (int64, int64) {
	if from < 0 {
		from = max(0, n+from)
	}
	if to < 0 {
		to = n + to
	}
	to = min(to+1, n)
	if from >= to {
		return 0, 0
	}
	return from, to
}

func trimmed(n, from, to int64) int64 {
	a, b := span(n, from, to)
	return b - a
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%q is no number", s))
	}
	return n
}

func score(s string) float64 {
	switch s {
	case "-inf":
		return math.Inf(-1)
	case "+inf":
		return math.Inf(1)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(fmt.Sprintf("%q is no score", s))
	}
	return f
}

// mustBe fails unless the model says of these keys what their digest says: then
// nothing changed them but what was replayed.
func (m model) mustBe(t *testing.T, d digest, of func(name string) bool) {
	t.Helper()
	var wrong []string
	note := func(k keyID, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%v: %s", k, fmt.Sprintf(format, args...)))
	}
	for k, is := range d {
		if !of(k.name) {
			continue
		}
		switch e := m[k]; {
		case e == nil:
			note(k, "is there, a %s of %d", is.kind, is.elements)
		case e.kind != is.kind || e.kind != "string" && e.elements() != is.elements:
			note(k, "is a %s of %d, and should be a %s of %d", is.kind, is.elements, e.kind, e.elements())
		case e.expires == is.expires.IsZero():
			note(k, "expires: %v; should be %v", !is.expires.IsZero(), e.expires)
		}
	}
	for k, e := range m {
		if _, there := d[k]; !there && of(k.name) {
			note(k, "is gone, and should be a %s of %d", e.kind, e.elements())
		}
	}
	if len(wrong) > 0 {
		sort.Strings(wrong)
		t.Errorf("the servers' account does not explain %d keys:\n  %s", len(wrong), strings.Join(wrong[:min(len(wrong), 12)], "\n  "))
	}
}
