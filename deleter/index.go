package deleter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Prune is the method of an index that loses old entries.
const Prune Method = "prune_index"

// Index is a hash (entry → time it was last seen) or a sorted set (scored by
// that time) whose old entries go.
type Index struct {
	Key     string
	Type    string // hash or zset
	Pending string // a hash in the same slot, for entries whose keys are still to be removed
	Before  int64  // what was last seen earlier is old
	Millis  bool   // times are Unix milliseconds: what is too low for that is none
}

// lowest is the earliest time that an entry can have, as a bound of a range.
func (ix *Index) lowest() float64 {
	if ix.Millis {
		return saneMillis
	}
	return 0 // no time, and none that anybody was seen at, is earlier
}

// Entry is one entry of an index, with its time in the server's words.
type Entry struct{ Name, Value string }

// ErrStop, returned by what PruneIndex calls, ends it without an error.
var ErrStop = errors.New("stop pruning")

// pendingPrefix begins the names of keys that hold entries of an index whose
// keys are still to be removed.
const pendingPrefix = "keyjanitor:pending:{"

// Pending is the name for the entries of an index that a job has moved.
func (n *Namer) Pending(job, index string) string {
	return pendingPrefix + n.tags[n.slot(index)] + "}:" + trashVersion + ":" + job + ":" + index
}

// ParsePending reads such a name.
func (n *Namer) ParsePending(name string) (job, index string, ours bool) {
	rest, ours := strings.CutPrefix(name, pendingPrefix)
	if !ours {
		return "", "", false
	}
	_, rest, _ = strings.Cut(rest, "}:"+trashVersion+":")
	job, index, ours = strings.Cut(rest, ":")
	return job, index, ours && job != "" && n.Pending(job, index) == name
}

// Pruner is what a store can do with an index.
type Pruner interface {
	// Count is how many entries of a sorted set are old.
	Count(ctx context.Context, ix *Index) (int64, error)
	// Old lists about n old entries from a cursor on; next 0: that was all. Of
	// a sorted set it is always the first: what was taken is gone.
	Old(ctx context.Context, ix *Index, cursor uint64, n int) (old []Entry, next uint64, err error)
	// Take moves entries that still have their value to the pending key.
	Take(ctx context.Context, ix *Index, entries []Entry) (moved []Entry, err error)
	// Waiting lists about n entries of the pending key.
	Waiting(ctx context.Context, ix *Index, cursor uint64, n int) (entries []Entry, next uint64, err error)
	// Back tells which entries are in the index again.
	Back(ctx context.Context, ix *Index, entries []Entry) ([]bool, error)
	// Forget takes entries out of the pending key.
	Forget(ctx context.Context, ix *Index, entries []Entry) error
}

// PruneIndex removes the old entries of an index. Each is moved, if it still
// has the value that was read, to a key that holds what is pending; then
// remove is called, which removes what entries stand for and says which it
// is done with; then they are forgotten. What an earlier run left pending
// comes first. An entry that is in the index again stands for something that
// is in use again, and nothing is removed for it.
//
// It returns an error only where it had to give up, as Act does.
func (d *Deleter) PruneIndex(ctx context.Context, ix Index, remove func(context.Context, []Entry) (done []bool, err error)) (Result, error) {
	r := Result{Order: Order{Key: ix.Key, Type: ix.Type, Elements: Unknown, Bytes: Unknown}, Method: Prune}
	p := pruning{Deleter: d, ix: &ix, remove: remove, r: &r}
	err := p.finish(ctx)
	if err == nil {
		err = p.walk(ctx)
	}
	switch {
	case errors.Is(err, ErrStop):
		r.Outcome, r.Reason, err = Trimmed, "not pruned to the end; a later run goes on", nil
	case errors.Is(err, context.Canceled) && r.Batches > 0:
		r.Outcome, r.Reason = Trimmed, "not pruned to the end: the run was interrupted; a later run goes on"
	case err != nil:
		r.Outcome, r.Reason = Failed, reason(err)
		if !Fatal(err) {
			err = nil
		}
	case r.Elements == 0:
		r.Outcome, r.Reason = Changed, "nothing in it is older"
	default:
		r.Outcome = Trimmed
	}
	return r, err
}

// Returned tells which entries are in the index again.
func (d *Deleter) Returned(ctx context.Context, ix Index, entries []Entry) ([]bool, error) {
	return d.o.Pruner.Back(ctx, &ix, entries)
}

// CountOld is how many entries of an index are old.
func (d *Deleter) CountOld(ctx context.Context, ix Index) (n int64, err error) {
	if ix.Type == "zset" { // nothing is taken, so listing it would not end
		if err := d.gate.Wait(ctx, 1, 0, 0); err != nil {
			return 0, err
		}
		return d.o.Pruner.Count(ctx, &ix)
	}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var old []Entry
		if err := d.gate.Wait(ctx, 1, 0, 0); err != nil {
			return n, err
		}
		size := d.gate.Batch("list index")
		start := time.Now()
		if old, cursor, err = d.o.Pruner.Old(ctx, &ix, cursor, size); err != nil {
			return n, err
		}
		d.gate.Observe("list index", size, time.Since(start))
		n += int64(len(old))
	}
	return n, nil
}

// pruning is one index on its way.
type pruning struct {
	*Deleter
	ix     *Index
	remove func(context.Context, []Entry) ([]bool, error)
	r      *Result
}

// timed makes one call of about n elements through the gate, and again as long
// as the server refuses it for now.
func (p *pruning) timed(ctx context.Context, kind string, commands, n int, call func(context.Context) error) error {
	for {
		if err := p.gate.Wait(ctx, commands, n, 0); err != nil {
			return err
		}
		start := time.Now()
		err := call(context.WithoutCancel(ctx))
		took := time.Since(start)
		p.gate.Observe(kind, n, took)
		p.r.Took += took
		p.r.Slowest = max(p.r.Slowest, took)
		if err == nil || !p.gate.Again(ctx, err) {
			return err
		}
	}
}

// finish does what an earlier run left to do.
func (p *pruning) finish(ctx context.Context) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var entries []Entry
		next := cursor
		err := p.timed(ctx, "list index", 1, p.gate.Batch("list index"), func(ctx context.Context) (err error) {
			entries, next, err = p.o.Pruner.Waiting(ctx, p.ix, cursor, p.gate.Batch("list index"))
			return err
		})
		cursor = next
		if err == nil {
			err = p.settle(ctx, entries)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walk goes through the index.
func (p *pruning) walk(ctx context.Context) error {
	idle := 0 // pages in a row of which nothing could be moved
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var old []Entry
		next := cursor
		err := p.timed(ctx, "list index", 1, p.gate.Batch("list index"), func(ctx context.Context) (err error) {
			old, next, err = p.o.Pruner.Old(ctx, p.ix, cursor, p.gate.Batch("list index"))
			return err
		})
		cursor = next
		if err != nil {
			return err
		}
		any := len(old) == 0
		for len(old) > 0 {
			n := min(len(old), p.gate.Batch("move entries"))
			var moved []Entry
			err := p.timed(ctx, "move entries", 1, n, func(ctx context.Context) (err error) {
				moved, err = p.o.Pruner.Take(ctx, p.ix, old[:n])
				return err
			})
			p.r.Elements += int64(len(moved))
			if len(moved) > 0 {
				p.r.Batches++
				any = true
			}
			if err == nil {
				err = p.settle(ctx, moved)
			}
			if err != nil {
				return err
			}
			old = old[n:]
		}
		if idle++; any {
			idle = 0
		}
		if idle == attempts {
			return keyError("its old entries change each time before they can be moved")
		}
	}
	return nil
}

// settle removes what moved entries stand for, and forgets them.
func (p *pruning) settle(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var back []bool
	err := p.timed(ctx, "list index", 1, len(entries), func(ctx context.Context) (err error) {
		back, err = p.o.Pruner.Back(ctx, p.ix, entries)
		return err
	})
	if err != nil {
		return err
	}
	var out, forget []Entry
	for i, e := range entries {
		if back[i] {
			forget = append(forget, e)
		} else {
			out = append(out, e)
		}
	}
	done, err := p.remove(ctx, out)
	for i := range done {
		if done[i] {
			forget = append(forget, out[i])
		}
	}
	if len(forget) > 0 {
		err = errors.Join(err, p.timed(context.WithoutCancel(ctx), "move entries", 1, len(forget), func(ctx context.Context) error {
			return p.o.Pruner.Forget(ctx, p.ix, forget)
		}))
	}
	return err
}

// oldScores is the range of scores that are old.
func (ix *Index) oldScores() (from, to string) {
	return strconv.FormatFloat(ix.lowest(), 'g', -1, 64), "(" + strconv.FormatInt(ix.Before, 10)
}

// Count asks the server, which knows.
//
// Sends: ZCOUNT; O(log(N)).
func (s *Redis) Count(ctx context.Context, ix *Index) (int64, error) {
	from, to := ix.oldScores()
	return s.rdb.ZCount(ctx, ix.Key, from, to).Result()
}

// Old lists entries of a hash in the order of its buckets, of a sorted set
// from the lowest score.
//
// Sends: HSCAN with COUNT n, or ZRANGEBYSCORE LIMIT 0 n WITHSCORES; O(n).
func (s *Redis) Old(ctx context.Context, ix *Index, cursor uint64, n int) ([]Entry, uint64, error) {
	if ix.Type == "zset" {
		from, to := ix.oldScores()
		members, err := s.rdb.ZRangeByScoreWithScores(ctx, ix.Key, &redis.ZRangeBy{Min: from, Max: to, Count: int64(n)}).Result()
		if err != nil {
			return nil, 0, err
		}
		old := make([]Entry, len(members))
		for i, m := range members {
			old[i] = Entry{Name: m.Member.(string), Value: strconv.FormatFloat(m.Score, 'g', 17, 64)}
		}
		next := uint64(0)
		if len(members) == n {
			next = 1 // anything but 0: there may be more
		}
		return old, next, nil
	}
	pairs, next, err := s.rdb.HScan(ctx, ix.Key, cursor, "", int64(n)).Result()
	if err != nil {
		return nil, 0, err
	}
	var old []Entry
	for i := 0; i+1 < len(pairs); i += 2 {
		// What is no number tells no time, and stays.
		if !isTime.MatchString(pairs[i+1]) {
			continue
		}
		if at, err := strconv.ParseFloat(pairs[i+1], 64); err == nil && at < float64(ix.Before) && at >= ix.lowest() {
			old = append(old, Entry{pairs[i], pairs[i+1]})
		}
	}
	return old, next, nil
}

// isTime is how a value must be written to be a time.
var isTime = regexp.MustCompile(`^[0-9]+([.][0-9]+)?$`)

// take moves entries from KEYS[1] to the hash KEYS[2] if they still have the
// value that ARGV says after each. It returns their places.
const take = `
if redis.replicate_commands then redis.replicate_commands() end
local kind = redis.call('TYPE', KEYS[1])['ok']
local moved = {}
for i = 1, #ARGV, 2 do
  local is = false
  if kind == 'hash' then is = redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1]
  elseif kind == 'zset' then
    local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
    is = score and tonumber(score) == tonumber(ARGV[i + 1])
  end
  if is then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    redis.call(kind == 'hash' and 'HDEL' or 'ZREM', KEYS[1], ARGV[i])
    moved[#moved + 1] = (i - 1) / 2
  end
end
return moved
`

// Take moves entries of an index to its pending key.
//
// Sends: EVAL of one script where scripts replicate by effect; else WATCH,
// HGET or ZSCORE of each, MULTI, HSET and HDEL or ZREM of each, EXEC; O(n).
func (s *Redis) Take(ctx context.Context, ix *Index, entries []Entry) ([]Entry, error) {
	if !s.can.Script {
		return s.takeWatched(ctx, ix, entries)
	}
	args := make([]any, 0, 2*len(entries))
	for _, e := range entries {
		args = append(args, e.Name, e.Value)
	}
	places, err := s.rdb.Eval(ctx, take, []string{ix.Key, ix.Pending}, args...).Int64Slice()
	if err != nil {
		return nil, err
	}
	moved := make([]Entry, len(places))
	for i, at := range places {
		moved[i] = entries[at]
	}
	return moved, nil
}

func (s *Redis) takeWatched(ctx context.Context, ix *Index, entries []Entry) (moved []Entry, err error) {
	for range attempts {
		if moved, err = s.takeOnce(ctx, ix, entries); !errors.Is(err, redis.TxFailedErr) {
			break
		}
	}
	return moved, err
}

// takeOnce sends MULTI with the look, as watch does and for the same reason.
func (s *Redis) takeOnce(ctx context.Context, ix *Index, entries []Entry) ([]Entry, error) {
	conn := s.rdb.Conn()
	defer conn.Close()
	pipe := conn.Pipeline()
	watched := pipe.Do(ctx, "watch", ix.Key)
	values := askValues(ctx, pipe, ix, entries)
	multi := pipe.Do(ctx, "multi")
	_, _ = pipe.Exec(ctx) // each reply is looked at below
	switch {
	case multi.Err() != nil:
		return nil, cmp.Or(watched.Err(), multi.Err())
	case watched.Err() != nil:
		return nil, cmp.Or(discard(ctx, conn), watched.Err())
	}
	have, err := values()
	if err != nil {
		return nil, cmp.Or(discard(ctx, conn), err)
	}
	out := "hdel"
	if ix.Type == "zset" {
		out = "zrem"
	}
	var moved []Entry
	var queued []*redis.Cmd
	pipe = conn.Pipeline()
	for i, e := range entries {
		if have[i].has && sameValue(ix, have[i].value, e.Value) {
			moved = append(moved, e)
			queued = append(queued, pipe.Do(ctx, "hset", ix.Pending, e.Name, e.Value), pipe.Do(ctx, out, ix.Key, e.Name))
		}
	}
	if len(moved) == 0 {
		return nil, discard(ctx, conn)
	}
	results, err := exec(ctx, pipe)
	if err != nil {
		return nil, refusal(err, queued...)
	}
	for _, v := range results {
		if err, failed := v.(error); failed {
			return nil, fmt.Errorf("exec: %v", err)
		}
	}
	return moved, nil
}

func sameValue(ix *Index, a, b string) bool {
	if ix.Type != "zset" {
		return a == b
	}
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err1 == nil && err2 == nil && x == y
}

type held struct {
	value string
	has   bool
}

// askValues puts into pipe what entries have in the index. What it returns
// reads the answers, once the pipeline was sent.
func askValues(ctx context.Context, pipe redis.Pipeliner, ix *Index, entries []Entry) func() ([]held, error) {
	cmds := make([]*redis.StringCmd, len(entries))
	verb := "hget"
	if ix.Type == "zset" {
		verb = "zscore"
	}
	for i, e := range entries {
		cmds[i] = redis.NewStringCmd(ctx, verb, ix.Key, e.Name)
		_ = pipe.Process(ctx, cmds[i])
	}
	return func() ([]held, error) {
		out := make([]held, len(entries))
		for i, cmd := range cmds {
			switch err := cmd.Err(); {
			case err == nil:
				out[i] = held{cmd.Val(), true}
			case !errors.Is(err, redis.Nil):
				return nil, fmt.Errorf("look at an entry: %w", err)
			}
		}
		return out, nil
	}
}

// Waiting lists what is pending.
//
// Sends: HSCAN with COUNT n; O(n).
func (s *Redis) Waiting(ctx context.Context, ix *Index, cursor uint64, n int) ([]Entry, uint64, error) {
	pairs, next, err := s.rdb.HScan(ctx, ix.Pending, cursor, "", int64(n)).Result()
	if err != nil {
		return nil, 0, err
	}
	var entries []Entry
	for i := 0; i+1 < len(pairs); i += 2 {
		entries = append(entries, Entry{pairs[i], pairs[i+1]})
	}
	return entries, next, nil
}

// Back looks the entries up in the index.
//
// Sends: HGET or ZSCORE of each, in one pipeline; O(1) or O(log(N)).
func (s *Redis) Back(ctx context.Context, ix *Index, entries []Entry) ([]bool, error) {
	pipe := s.rdb.Pipeline()
	answers := askValues(ctx, pipe, ix, entries)
	_, _ = pipe.Exec(ctx) // each reply is looked at below
	values, err := answers()
	if err != nil {
		return nil, err
	}
	back := make([]bool, len(entries))
	for i := range values {
		back[i] = values[i].has
	}
	return back, nil
}

// Forget takes entries out of the pending key.
//
// Sends: HDEL of n fields; O(n).
func (s *Redis) Forget(ctx context.Context, ix *Index, entries []Entry) error {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	return s.rdb.HDel(ctx, ix.Pending, names...).Err()
}
