package deleter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Drainer empties one key of the trash, step by step. Nothing but a drain
// writes to a key of the trash, so a step may be executed twice or late:
// it only ever removes what is to be removed anyway.
type Drainer interface {
	// Kind names what the next step does. Steps of one kind take about the
	// same time for each element.
	Kind() string
	// Next takes a step with about n elements. What a step that failed tells
	// is true all the same.
	Next(ctx context.Context, n int) (Step, error)
}

// Step is what a step of a drain did.
type Step struct {
	Removed int64 // elements, as the server says
	Handled int64 // elements that the server had to do with, removed or not
	Done    bool  // the key no longer exists
}

// removing is a step that does nothing but remove elements.
func removing(n int64, done bool) Step { return Step{Removed: n, Handled: n, Done: done} }

// Opened is a key of the trash that was opened to be drained.
type Opened struct {
	Drainer
	Type     string
	Commands int   // that a step sends
	Largest  int   // elements that one step may take, by their bytes
	Each     int64 // bytes an element has on average; 0 if unknown
}

// Bytes that one step may free (50 µs a MiB were measured: 0.4 ms), and that
// one reply may carry where names can only be had with their values.
const (
	stepBytes  = 8 << 20
	replyBytes = 1 << 20
)

// hugeValue is from how many bytes a field on the names of a hash are asked
// for by HKEYS, and not with their values by HSCAN.
const hugeValue = 64 << 10

// Open looks at a key of the trash and returns what drains it; nil if the
// key is gone.
//
// Sends: TYPE, the length command and MEMORY USAGE where there; O(1) each, or
// O(n) for the bytes of at most 1000 elements; HKEYS, O(n), for the names of at
// most 1000 huge values.
func (s *Redis) Open(ctx context.Context, trash string) (*Opened, error) {
	typ, err := s.rdb.Type(ctx, trash).Result()
	if err != nil || typ == "none" {
		return nil, err
	}
	t := &Opened{Type: typ, Commands: 2, Largest: 1 << 30}
	length := lengths[typ]
	if length == "" {
		t.Drainer = &whole{s, trash}
		return t, nil
	}
	count := redis.NewIntCmd(ctx, length, trash)
	if err := s.rdb.Process(ctx, count); err != nil {
		return nil, err
	}
	n := count.Val()
	if s.can.MemoryUsage && n > 0 {
		bytes, err := s.weigh(ctx, trash, n)
		if err != nil {
			return nil, err
		}
		t.Each = bytes / n
		limit := int64(stepBytes)
		if typ == "hash" && !s.can.NoValues || typ == "set" {
			limit = replyBytes
		}
		t.Largest = int(max(1, limit/max(1, t.Each)))
	}
	switch typ {
	case "list":
		t.Drainer = &list{s: s, key: trash}
	case "zset":
		t.Drainer, t.Commands = &zset{s: s, key: trash}, 4
	case "hash", "set":
		m := &members{s: s, key: trash, typ: typ, most: min(t.Largest, replyBytes)}
		if t.Each == 0 { // the server does not tell: the first page shows
			m.most = 1
		}
		if typ == "hash" && !s.can.NoValues && n <= SmallElements && t.Each > hugeValue {
			// A bucket may hold several values, however few are asked for.
			keys, err := s.rdb.HKeys(ctx, trash).Result()
			if err != nil {
				return nil, err
			}
			m.listed, m.ended = keys, true
		}
		t.Drainer = m
	case "stream":
		t.Drainer = &stream{s: s, key: trash, length: n}
	default:
		return nil, keyError("to drain a " + typ + " is not supported by this version")
	}
	return t, nil
}

// weigh estimates the bytes of a key of n elements: by five of them, or, where
// they are few and so may be huge, by all.
func (s *Redis) weigh(ctx context.Context, key string, n int64) (int64, error) {
	var samples []int
	if n <= SmallElements {
		samples = []int{0}
	}
	bytes, err := s.rdb.MemoryUsage(ctx, key, samples...).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return bytes, err
}

// whole removes what has no elements.
type whole struct {
	s   *Redis
	key string
}

func (w *whole) Kind() string { return "drop" }

// Next sends UNLINK where the server has it, else DEL.
func (w *whole) Next(ctx context.Context, _ int) (Step, error) {
	err := w.s.drop(ctx, w.key)
	return Step{Done: err == nil}, err
}

// drop removes a key that is known to be small.
func (s *Redis) drop(ctx context.Context, key string) error {
	if s.can.Unlink {
		return s.rdb.Unlink(ctx, key).Err()
	}
	return s.rdb.Del(ctx, key).Err()
}

// list is drained from its head.
type list struct {
	s   *Redis
	key string
}

func (l *list) Kind() string { return "drain list" }

// Next sends LLEN, LTRIM n −1, O(n), and LLEN.
func (l *list) Next(ctx context.Context, n int) (Step, error) {
	pipe := l.s.rdb.Pipeline()
	before := pipe.LLen(ctx, l.key) // another run may drain it, too
	trim := pipe.LTrim(ctx, l.key, int64(n), -1)
	left := pipe.LLen(ctx, l.key)
	_, _ = pipe.Exec(ctx)
	if err := cmp.Or(before.Err(), trim.Err()); err != nil {
		return Step{}, err
	}
	if err := left.Err(); err != nil { // it was trimmed all the same
		return removing(min(before.Val(), int64(n)), false), err
	}
	return removing(before.Val()-left.Val(), left.Val() == 0), nil
}

// zset is drained from its lowest score.
type zset struct {
	s   *Redis
	key string
	// What the next step removes: up to this score, or, where members that
	// share a score would make that more than a step, by rank.
	upTo    string
	planned int // for this size of a step
}

func (z *zset) Kind() string { return "drain zset" }

// Next removes what the step before planned and plans the next: it looks up
// the scores at four fifths of a batch and at the whole of it. Where they
// differ, all members up to the former are between the two numbers.
//
// Sends: ZREMRANGEBYSCORE or ZREMRANGEBYRANK, O(log(N)+n), twice ZRANGE of
// one member, O(log(N)), and ZCARD; one round trip.
func (z *zset) Next(ctx context.Context, n int) (Step, error) {
	low := int64(max(1, n*4/5))
	pipe := z.s.rdb.Pipeline()
	var removed *redis.IntCmd
	switch {
	case z.upTo != "" && z.planned <= n:
		removed = pipe.ZRemRangeByScore(ctx, z.key, "-inf", z.upTo)
	case z.planned > 0: // ties, or steps have become smaller meanwhile
		removed = pipe.ZRemRangeByRank(ctx, z.key, 0, int64(n)-1)
	}
	at := func(rank int64) *redis.StringSliceCmd {
		cmd := redis.NewStringSliceCmd(ctx, "zrange", z.key, rank, rank, "withscores")
		_ = pipe.Process(ctx, cmd)
		return cmd
	}
	near, far := at(low-1), at(int64(n))
	left := pipe.ZCard(ctx, z.key)
	_, _ = pipe.Exec(ctx)
	var count int64
	if removed != nil {
		if err := removed.Err(); err != nil {
			return Step{}, err
		}
		count = removed.Val()
	}
	z.upTo, z.planned = "", n
	if err := cmp.Or(near.Err(), far.Err(), left.Err()); err != nil {
		z.planned = 0 // the next step only looks
		return removing(count, false), err
	}
	switch {
	case len(far.Val()) < 2: // no more than n are left
		z.upTo = "+inf"
	case near.Val()[1] != far.Val()[1]:
		z.upTo = near.Val()[1]
	}
	return removing(count, left.Val() == 0), nil
}

// members drains hashes and sets: it lists a page of names and removes them.
type members struct {
	s      *Redis
	key    string
	typ    string
	most   int // names that the next page may have, by what the last one weighed
	cursor uint64
	listed []string // names seen and not yet removed
	ended  bool     // the cursor came back to 0
	pass   int64    // removed since the cursor last started at 0
	futile int      // passes in a row that removed nothing
}

func (m *members) Kind() string { return "drain " + m.typ }

// Next removes up to n of the names listed and, where no more are, lists the
// next page in the same round trip: first, so that a page of more than 16 KiB
// comes while the server still removes. The cursor is carried on through the
// whole collection: started at 0 each time, it would walk ever more emptied
// buckets (5,000,000 fields on 7.0: 89% left after a minute). When it comes
// back to 0 the length decides: a small rest is dropped, a larger one
// (written to while an earlier pass ran, or hidden) is walked again.
//
// Sends: HSCAN (NOVALUES where there) or SSCAN with COUNT n, HDEL or SREM of n
// names, at the end of a pass HLEN or SCARD; each O(n).
func (m *members) Next(ctx context.Context, n int) (Step, error) {
	pipe := m.s.rdb.Pipeline()
	k := len(m.listed)
	if k > n+n/4 {
		k = n // a little more than was asked for is not worth a round trip of its own
	}
	var removed, left *redis.IntCmd
	var page *redis.ScanCmd
	last := k == len(m.listed)
	if last && !m.ended {
		page = m.list(ctx, pipe, n)
	}
	if k > 0 {
		removed = m.remove(ctx, pipe, m.listed[:k])
	}
	if last && m.ended {
		left = intCmd(ctx, pipe, lengths[m.typ], m.key)
	}
	_, _ = pipe.Exec(ctx)

	var count int64
	if removed != nil {
		if err := removed.Err(); err != nil {
			return Step{}, err
		}
		count = removed.Val()
		m.listed = m.listed[k:]
		m.pass += count
	}
	switch {
	case page != nil:
		names, next, err := page.Result()
		if err != nil {
			return removing(count, false), err
		}
		bytes := weight(names)
		if m.typ == "hash" && !m.s.can.NoValues {
			names = everySecond(names)
		}
		if len(names) > 0 {
			m.most = min(2*m.most, max(1, replyBytes/max(1, bytes/len(names))))
		}
		m.listed, m.cursor, m.ended = names, next, next == 0
	case left != nil:
		done, err := m.endPass(ctx, left)
		if done {
			count += left.Val()
		}
		return removing(count, done), err
	}
	return removing(count, false), nil
}

// endPass decides, at the end of a pass, by what is left.
func (m *members) endPass(ctx context.Context, left *redis.IntCmd) (done bool, err error) {
	n, err := left.Result()
	switch {
	case err != nil:
		return false, err
	case n == 0:
		return true, nil
	case n <= SmallElements:
		// 7.4 counts fields that expired and that no HSCAN lists any more.
		err := m.s.drop(ctx, m.key)
		return err == nil, err
	}
	if m.futile++; m.pass > 0 {
		m.futile = 0
	}
	if m.futile == 3 {
		return false, keyError(fmt.Sprintf("%d elements can neither be listed nor removed", n))
	}
	m.ended, m.pass = false, 0
	return false, nil
}

func (m *members) remove(ctx context.Context, pipe redis.Pipeliner, names []string) *redis.IntCmd {
	args := make([]any, 0, len(names)+2)
	if m.typ == "hash" {
		args = append(args, "hdel", m.key)
	} else {
		args = append(args, "srem", m.key)
	}
	for i := range names {
		args = append(args, &names[i]) // a pointer needs no copy
	}
	cmd := redis.NewIntCmd(ctx, args...)
	_ = pipe.Process(ctx, cmd)
	return cmd
}

func weight(page []string) (bytes int) {
	for _, s := range page {
		bytes += len(s)
	}
	return bytes
}

func (m *members) list(ctx context.Context, pipe redis.Pipeliner, n int) *redis.ScanCmd {
	n = min(n, m.most)
	switch {
	case m.typ == "set":
		return pipe.SScan(ctx, m.key, m.cursor, "", int64(n))
	case m.s.can.NoValues:
		return pipe.HScanNoValues(ctx, m.key, m.cursor, "", int64(n))
	}
	return pipe.HScan(ctx, m.key, m.cursor, "", int64(n))
}

// everySecond leaves the names of a list of names and values.
func everySecond(pairs []string) []string {
	names := make([]string, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		names = append(names, pairs[i])
	}
	return names
}
