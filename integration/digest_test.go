package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// keyID is one key of a deployment. A name lives on one node of a cluster
// only, so the database and the raw bytes of the name are enough.
type keyID struct {
	db   int
	name string
}

func (k keyID) String() string { return fmt.Sprintf("db%d %.80q", k.db, k.name) }

// imprint is all that a client can see of one key.
type imprint struct {
	kind     string
	encoding string
	sum      string
	elements int64
	expires  time.Time // zero: no TTL
	addr     string
}

// digest is the whole keyspace of a deployment. It leaves nothing out: trash,
// locks and whatever else a run might have left behind are keys like others.
type digest map[keyID]imprint

// digestOf reads every key of every database of every master.
func digestOf(t *testing.T, d *deployment) digest {
	t.Helper()
	out := digest{}
	for _, m := range d.masters {
		for _, db := range m.databases(t) {
			names := m.names(t, db)
			for page := range slices.Chunk(names, 500) {
				m.imprints(t, db, page, out)
			}
		}
	}
	return out
}

// names lists one database. A SCAN names a key twice where tables resize.
func (s *server) names(t *testing.T, db int) []string {
	t.Helper()
	var all []string
	c, cursor := s.client(db), uint64(0)
	for {
		page, next, err := c.Scan(t.Context(), cursor, "", 2000).Result()
		if err != nil {
			t.Fatalf("SCAN %s/%d: %v", s.addr, db, err)
		}
		all = append(all, page...)
		if cursor = next; cursor == 0 {
			break
		}
	}
	sort.Strings(all)
	return slices.Compact(all)
}

func (s *server) imprints(t *testing.T, db int, names []string, out digest) {
	t.Helper()
	facts := s.pipeline(t, db, func(p redis.Pipeliner) {
		for _, n := range names {
			p.Do(t.Context(), "TYPE", n)
			p.Do(t.Context(), "PTTL", n)
			p.Do(t.Context(), "OBJECT", "ENCODING", n)
		}
	})
	now := time.Now()
	// A DUMP does not show how long a list is. (The PING keeps the pipeline
	// from being empty.)
	lengths := s.pipeline(t, db, func(p redis.Pipeliner) {
		p.Do(t.Context(), "PING")
		for i, n := range names {
			if fmt.Sprint(facts[3*i]) == "list" {
				p.Do(t.Context(), "LLEN", n)
			}
		}
	})[1:]
	values := s.pipeline(t, db, func(p redis.Pipeliner) {
		for i, n := range names {
			switch fmt.Sprint(facts[3*i]) {
			// The order in which a table is walked changes with each step of
			// its resizing, and with it the bytes of a DUMP.
			case "hash":
				p.Do(t.Context(), "HGETALL", n)
			case "set":
				p.Do(t.Context(), "SMEMBERS", n)
			case "zset":
				p.Do(t.Context(), "ZRANGE", n, 0, -1, "WITHSCORES")
			default:
				p.Do(t.Context(), "DUMP", n)
			}
		}
	})
	for i, n := range names {
		im := imprint{kind: fmt.Sprint(facts[3*i]), encoding: fmt.Sprint(facts[3*i+2]), addr: s.addr, elements: 1}
		if ms, _ := facts[3*i+1].(int64); ms >= 0 {
			im.expires = now.Add(time.Duration(ms) * time.Millisecond)
		}
		im.sum, im.elements = sumOf(im.kind, values[i])
		if im.kind == "list" {
			im.elements, _ = lengths[0].(int64)
			lengths = lengths[1:]
		}
		out[keyID{db, n}] = im
	}
}

// pipeline sends commands together; a key that is missing is a nil reply.
func (s *server) pipeline(t *testing.T, db int, fill func(redis.Pipeliner)) []any {
	t.Helper()
	p := s.client(db).Pipeline()
	fill(p)
	cmds, err := p.Exec(t.Context())
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%s/%d: %v", s.addr, db, err)
	}
	out := make([]any, len(cmds))
	for i, c := range cmds {
		v, err := c.(*redis.Cmd).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("%s/%d: %.100q: %v", s.addr, db, c.Name(), err)
		}
		out[i] = v
	}
	return out
}

func sumOf(kind string, value any) (string, int64) {
	h := sha256.New()
	parts, ok := value.([]any)
	if !ok {
		text := fmt.Sprint(value)
		h.Write([]byte(text))
		return hex.EncodeToString(h.Sum(nil)), 1
	}
	step := 1
	if kind != "set" {
		step = 2
	}
	items := make([]string, 0, len(parts)/step)
	for i := 0; i+step <= len(parts); i += step {
		var b strings.Builder
		for _, p := range parts[i : i+step] {
			text := fmt.Sprint(p)
			b.WriteString(strconv.Itoa(len(text)))
			b.WriteByte(':')
			b.WriteString(text)
		}
		items = append(items, b.String())
	}
	if kind != "zset" {
		sort.Strings(items)
	}
	for _, it := range items {
		h.Write([]byte(it))
	}
	return hex.EncodeToString(h.Sum(nil)), int64(len(items))
}

// mustEqual fails unless the keyspace is the one before, less the keys that
// were to go. It shows the first few differences.
func mustEqual(t *testing.T, before, after digest, removed ...keyID) {
	t.Helper()
	if lines := differences(before, after, removed...); len(lines) > 0 {
		t.Errorf("the keyspace is not what it should be (%d differences):\n  %s",
			len(lines), strings.Join(lines[:min(len(lines), 12)], "\n  "))
	}
}

// differences names what mustEqual objects to.
func differences(before, after digest, removed ...keyID) []string {
	gone := map[keyID]bool{}
	for _, k := range removed {
		gone[k] = true
	}
	var lines []string
	for k, was := range before {
		is, there := after[k]
		switch {
		case gone[k] && there:
			lines = append(lines, fmt.Sprintf("%v (%s) should be gone and is there", k, is.kind))
		case gone[k]:
		case !there:
			lines = append(lines, fmt.Sprintf("%v (%s) is gone", k, was.kind))
		case was.kind != is.kind || was.sum != is.sum || was.encoding != is.encoding || was.addr != is.addr:
			lines = append(lines, fmt.Sprintf("%v changed: %+v, was %+v", k, is, was))
		// PTTL and the clock are read one after the other, by a pipeline
		// that may have had to wait.
		case was.expires.IsZero() != is.expires.IsZero() || was.expires.Sub(is.expires).Abs() > 3*time.Second:
			lines = append(lines, fmt.Sprintf("%v expires at %v, was %v", k, is.expires, was.expires))
		}
	}
	for k, is := range after {
		if _, there := before[k]; !there {
			lines = append(lines, fmt.Sprintf("%v is new: %s of %d elements", k, is.kind, is.elements))
		}
	}
	sort.Strings(lines)
	return lines
}

// strangers are the keys that were not there before: what a killed run left.
func strangers(before, after digest) (out []keyID) {
	for k := range after {
		if _, there := before[k]; !there {
			out = append(out, k)
		}
	}
	return out
}
