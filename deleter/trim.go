package deleter

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cut is the method of a key that is shortened.
const Cut Method = "trim"

// End is where a trim by number keeps entries.
type End string

// The ends.
const (
	Head    End = "head"    // of a list
	Tail    End = "tail"    // of a list
	Highest End = "highest" // of a sorted set, by score
	Lowest  End = "lowest"  // of a sorted set, by score
	Newest  End = "newest"  // of a stream
)

// Trim says what is left of a key that is shortened: Keep entries at an End,
// or, where End is "", what is not older than Before.
type Trim struct {
	End    End
	Keep   int64 // at least 1
	Before int64 // a sorted set loses lower scores, a stream ids of earlier milliseconds
	Millis bool  // scores are Unix milliseconds
	// Unacknowledged also removes entries of a stream that one of its groups
	// has not acknowledged, delivered or not.
	Unacknowledged bool
}

// Type is the only type that can be trimmed like this; "" for a trim by age,
// which is for sorted sets and streams.
func (t *Trim) Type() string {
	switch t.End {
	case Head, Tail:
		return "list"
	case Highest, Lowest:
		return "zset"
	case Newest:
		return "stream"
	}
	return ""
}

// fits says why a key can't be trimmed like this.
func (t *Trim) fits(o *Order, can *Abilities) error {
	want := t.Type()
	if err := o.blind(can); err != nil {
		return err
	}
	switch {
	case want != "" && o.Type != want, want == "" && o.Type != "zset" && o.Type != "stream":
		return fmt.Errorf("a %s can't be trimmed like this", o.Type)
	case want != "" && t.Keep < 1:
		return fmt.Errorf("to keep %d entries is to remove the key; delete it", t.Keep)
	case o.Evidence.onUse() && !can.NoTouch && o.Type != "stream":
		return fmt.Errorf("to ask how long it is resets its idle time on a server without CLIENT NO-TOUCH (7.2); trim without idle_over")
	case o.Type == "stream" && !can.Script:
		return fmt.Errorf("what groups have not acknowledged can only be told from the rest by a script; grant the user +eval +evalsha")
	}
	return nil
}

// Shortener is what a store can do to keys that stay.
type Shortener interface {
	// Shorten takes one step of about n elements, if the evidence holds.
	Shorten(ctx context.Context, o Order, n int) Shortened
}

// Shortened is what one step of a trim did.
type Shortened struct {
	Reply
	Done bool // nothing is left to remove
}

// trimAll shortens keys, one after another.
func (d *Deleter) trimAll(ctx context.Context, orders []Order, done func(Result)) error {
	for _, o := range orders {
		r, err := d.trimOne(ctx, o)
		if r.Outcome != "" {
			done(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// trimOne shortens one key, step by step. The first step is judged by the
// whole evidence; the key's size and idle time, which steps change, are not
// asked again.
func (d *Deleter) trimOne(ctx context.Context, o Order) (Result, error) {
	r := Result{Order: o, Method: Cut}
	kind := "trim " + o.Type
	d.gate.Anew(kind)
	var each int64
	if o.Bytes > 0 && o.Elements > 0 {
		each = o.Bytes / o.Elements
	}
	largest := int(max(1, stepBytes/max(1, each)))
	var first int64 // elements when the trim began
	stopped := func(why string) Result {
		if r.Batches > 0 {
			r.Outcome, r.Reason = Trimmed, why
		}
		return r
	}
	for {
		n := min(d.gate.Batch(kind), largest)
		if err := d.gate.Wait(ctx, 3, n, int64(n)*each); err != nil {
			return stopped("not trimmed to the end: " + reason(err) + "; a later run goes on"), err
		}
		start := time.Now()
		step := d.o.Shortener.Shorten(context.WithoutCancel(ctx), o, n)
		took := time.Since(start)
		removed := max(0, step.Elements-step.Left)
		r.Took += took
		r.Slowest = max(r.Slowest, took)
		switch {
		case step.Status == Acted:
			d.gate.Observe(kind, int(removed), took)
			r.Batches++
			r.Elements += removed
			r.Bytes += removed * each
		case step.Status == Rehearsed:
			return Result{Order: o, Method: Cut, Outcome: WouldAct}, nil
		case step.Err != nil && d.gate.Again(ctx, step.Err):
			continue
		case step.Err != nil:
			r.Outcome, r.Reason = Failed, reason(step.Err)
			if Fatal(step.Err) {
				return r, step.Err
			}
			return r, nil
		case r.Batches > 0 && step.Status == Unmet:
			return stopped("it no longer met the rule before its end was reached"), nil
		case r.Batches > 0: // gone, or there is enough left
			return stopped(""), nil
		case step.Status == Enough:
			r.Outcome, r.Reason = Changed, "nothing in it may be removed"
			return r, nil
		default:
			return notActed(r, step.Reply), nil
		}
		if first == 0 {
			first = step.Elements
		}
		switch {
		case step.Done:
			return stopped(""), nil
		case o.Trim.End != "" && r.Elements > 2*first:
			return stopped("it grows faster than it is trimmed; a later run goes on"), nil
		}
		o.Evidence.MinElements, o.Evidence.MinBytes, o.Evidence.IdleOver, o.Evidence.FreqUnder = 0, 0, 0, 0
	}
}

// Shorten takes one step of a trim. However often or late it is executed, and
// whatever others push and pop meanwhile, it leaves at least what the trim
// keeps: lists and sorted sets are cut to a number counted from the kept end
// or to a score, and a stream by a script that counts in the same step.
//
// Sends: LLEN or ZCARD, or ZRANGE of three single members for a trim by
// score; then LTRIM, ZREMRANGEBYRANK or ZREMRANGEBYSCORE, O(log(N)+n), by
// EVALSHA where scripts replicate by effect, else in MULTI, and under WATCH
// where there is evidence to judge. Of a stream EVALSHA alone: XINFO GROUPS
// and XPENDING of each group, XRANGE of n entries where there are groups or
// an age, and XTRIM MAXLEN; O(n).
func (s *Redis) Shorten(ctx context.Context, o Order, n int) Shortened {
	if o.Type == "stream" {
		return s.shortenStream(ctx, o, n)
	}
	c, err := s.cut(ctx, &o, n)
	switch {
	case err != nil:
		return Shortened{Reply: Reply{Err: err}}
	case c.what == "":
		return Shortened{Reply: Reply{Status: Enough}}
	}
	o.run = c.args
	var r Reply
	switch {
	case s.can.Script:
		r = s.judge(ctx, []Order{o}, c.what, nil)[0]
	case c.what == actTies || o.Evidence.judges():
		r = s.watchOne(ctx, o, c.what, "")
	default:
		r = s.plain(ctx, o)
	}
	return Shortened{Reply: r, Done: c.last}
}

// judges reports whether there is more to judge than a command's own type.
func (e *Evidence) judges() bool {
	return e.MinElements > 0 || e.MinBytes > 0 || e.onUse() || e.onTTL()
}

// cutting is the command of a step.
type cutting struct {
	what act   // "": there is nothing to remove
	args []any // the command, less the key; of ties the step and the score
	last bool
}

// cut plans a step of about n elements.
func (s *Redis) cut(ctx context.Context, o *Order, n int) (cutting, error) {
	if o.Trim.End == "" {
		return s.cutByScore(ctx, o, n)
	}
	length := redis.NewIntCmd(ctx, lengths[o.Type], o.Key)
	switch err := s.rdb.Process(ctx, length); {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		// The evidence says so in the next step.
	case err != nil:
		return cutting{}, err
	}
	keep := max(o.Trim.Keep, length.Val()-int64(n))
	c := cutting{what: actRun, last: keep == o.Trim.Keep}
	switch o.Trim.End {
	case Head:
		c.args = []any{"ltrim", 0, keep - 1}
	case Tail:
		c.args = []any{"ltrim", -keep, -1}
	case Highest:
		c.args = []any{"zremrangebyrank", 0, -keep - 1}
	case Lowest:
		c.args = []any{"zremrangebyrank", keep, -1}
	}
	if length.Val() <= o.Trim.Keep && !o.Evidence.judges() {
		c.what = ""
	}
	return c, nil
}

// saneMillis is the lowest score that can be a time in milliseconds: what is
// lower is one of 1973, and likely one in seconds.
const saneMillis = 100_000_000_000

// cutByScore plans a step of about n members of low scores. Like a drain it
// looks up the scores at four fifths of a step and at the whole: where they
// differ, all members up to the former are between the two numbers.
func (s *Redis) cutByScore(ctx context.Context, o *Order, n int) (cutting, error) {
	low := int64(max(1, n*4/5))
	pipe := s.rdb.Pipeline()
	at := func(rank int64) *redis.StringSliceCmd {
		cmd := redis.NewStringSliceCmd(ctx, "zrange", o.Key, rank, rank, "withscores")
		_ = pipe.Process(ctx, cmd)
		return cmd
	}
	first, near, far, last := at(0), at(low-1), at(int64(n)), at(-1)
	_, _ = pipe.Exec(ctx)
	scores := make([]float64, 4)
	for i, cmd := range []*redis.StringSliceCmd{first, near, far, last} {
		member, err := cmd.Result()
		switch {
		case redis.HasErrorPrefix(err, "WRONGTYPE"), err == nil && len(member) < 2:
			scores[i] = math.Inf(1)
			continue
		case err != nil:
			return cutting{}, err
		}
		if scores[i], err = strconv.ParseFloat(member[1], 64); err != nil {
			return cutting{}, keyError(fmt.Sprintf("the score %q is no number", member[1]))
		}
	}
	before := float64(o.Trim.Before)
	under := "(" + strconv.FormatInt(o.Trim.Before, 10)
	switch {
	case o.Trim.Millis && scores[3] < saneMillis:
		return cutting{}, keyError(fmt.Sprintf("its highest score, %s, is a time of the year %d in milliseconds; are the scores unix_seconds?",
			last.Val()[1], time.UnixMilli(int64(scores[3])).UTC().Year()))
	case scores[0] >= before:
		return cutting{}, nil
	case scores[2] >= before:
		return cutting{what: actRun, args: []any{"zremrangebyscore", "-inf", under}, last: true}, nil
	case scores[1] != scores[2]:
		return cutting{what: actRun, args: []any{"zremrangebyscore", "-inf", near.Val()[1]}}, nil
	}
	return cutting{what: actTies, args: []any{n, under}}, nil
}

// plain sends the command of an order that has nothing to judge.
func (s *Redis) plain(ctx context.Context, o Order) Reply {
	tx := s.rdb.TxPipeline()
	before := intCmd(ctx, tx, lengths[o.Type], o.Key)
	tx.Do(ctx, append([]any{o.run[0], o.Key}, o.run[1:]...)...)
	after := intCmd(ctx, tx, lengths[o.Type], o.Key)
	switch _, err := tx.Exec(ctx); {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return Reply{Status: Unmet}
	case err != nil:
		return Reply{Err: err}
	case before.Val() == 0:
		return Reply{Status: StillGone}
	}
	return Reply{Status: Acted, Elements: before.Val(), Left: after.Val()}
}

func (s *Redis) shortenStream(ctx context.Context, o Order, n int) Shortened {
	keep, before := o.Trim.Keep, ""
	if o.Trim.End == "" {
		if o.Trim.Before <= 0 { // no id is of a time before 1970
			return Shortened{Reply: Reply{Status: Enough}}
		}
		keep, before = 0, strconv.FormatInt(o.Trim.Before-1, 10)
	}
	force := "0"
	if o.Trim.Unacknowledged {
		force = "1"
	}
	o.run = []any{n, keep, before, force}
	r := s.judge(ctx, []Order{o}, actStream, nil)[0]
	return Shortened{Reply: r, Done: r.Status == Acted && r.Elements-r.Left < int64(n)}
}

// shorten is the Lua function by which the verdict trims a stream: up to step
// entries from its old end, never below keep, none later than the millisecond
// last ("": none is too late), and unless forced none that a group has not
// acknowledged, be it delivered or not. Identifiers are compared as decimal
// texts, for Lua's numbers are too short.
const shorten = `
local function earlier(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am ~= bm then return #am < #bm or (#am == #bm and am < bm) end
  return #as < #bs or (#as == #bs and as < bs)
end
local function shorten(key, n, step, keep, last, force)
  local m = math.min(step, n - keep)
  if m <= 0 then return false end
  local groups = {}
  if not force then groups = redis.call('XINFO', 'GROUPS', key) end
  if last ~= '' or #groups > 0 then
    local entries = redis.call('XRANGE', key, '-', last ~= '' and last or '+', 'COUNT', m)
    m = #entries
    for _, group in ipairs(groups) do
      local g = {}
      for i = 1, #group, 2 do g[group[i]] = group[i + 1] end
      local pending = false
      if g['pending'] > 0 then
        local first = redis.call('XPENDING', key, g['name'], '-', '+', 1)[1]
        pending = first and first[1]
      end
      while m > 0 do
        local id = entries[m][1]
        if not earlier(g['last-delivered-id'], id) and not (pending and not earlier(id, pending)) then break end
        m = m - 1
      end
    end
  end
  if m <= 0 then return false end
  redis.call('XTRIM', key, 'MAXLEN', n - m)
  return true
end
`

// Shorten looks whether there is something to remove.
func (r *Rehearsal) Shorten(ctx context.Context, o Order, n int) Shortened {
	o = r.untouched([]Order{o})[0]
	pipe := r.s.rdb.Pipeline()
	seen := r.s.look(ctx, pipe, []Order{o})
	_, _ = pipe.Exec(ctx) // each reply is looked at below
	out := verdictOf(&o, seen()[0], actRun)
	if out.Status == Acted && o.Type != "stream" {
		c, err := r.s.cut(ctx, &o, n)
		if c.what == "" {
			out = Reply{Status: Enough, Err: err}
		}
	}
	if out.Status == Acted {
		out.Status = Rehearsed
	}
	return Shortened{Reply: out}
}
