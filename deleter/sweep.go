package deleter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Large is the outcome of a key that a sweep left as it was: it is not small,
// or of a type that needs more care, or could not be judged. It is measured
// and ordered by Act.
const Large Outcome = "large"

// Sweeper is what a store can do with keys that nobody has measured.
type Sweeper interface {
	// Sweep judges the orders, which differ in their keys alone, and removes
	// those that are small. It may answer fewer than it was given: the others
	// were not looked at.
	// probably has, for each, of what type it probably is.
	Sweep(ctx context.Context, orders []Order, probably []byte) []Swept
}

// Swept is the server's answer about one key that nobody had measured.
type Swept struct {
	Reply        // StillLarge: left as it was
	Type  string // "" unknown
	Bytes int64  // Unknown where the server doesn't tell
}

// StillLarge is the state of a key that a sweep leaves to Act.
const StillLarge Status = "large or special"

// terms are what a script is told once for all its keys.
type terms struct {
	kind     string
	evidence Evidence
}

func (o *Order) terms() terms { return terms{o.Type, o.Evidence} }

// Sweep carries out orders for keys that nobody has measured: the server looks
// at each in the step that removes it, and removes it only if it is small. It
// takes orders of method Auto without a time to be kept, and calls done as Act
// does, with a result that is good until done returns; its Order carries what
// the server saw of the key.
func (d *Deleter) Sweep(ctx context.Context, orders []Order, done func(*Result)) error {
	mine := d.sweepable(orders, done)
	for len(mine) > 0 {
		n := 1
		limit := min(len(mine), d.gate.Pipeline(d.gate.Batch("sweep")))
		for n < limit && mine[n].terms() == mine[0].terms() {
			n++
		}
		// What they hold nobody knows yet: where elements or bytes have a
		// budget, keys are measured first and go by Act.
		if err := d.gate.Wait(ctx, n, 0, 0); err != nil {
			return err
		}
		start := time.Now()
		replies := d.o.Sweeper.Sweep(context.WithoutCancel(ctx), mine[:n], d.guess(mine[:n]))
		took := time.Since(start)
		d.gate.Observe("sweep", len(replies), took)
		if len(replies) == 0 || len(replies) > n {
			return fmt.Errorf("sweep: %d replies about %d keys", len(replies), n)
		}
		these, replies, again := patient(ctx, d.gate, mine[:len(replies)], replies)
		mine = mine[len(these)+len(again):]
		if err := d.swept(these, replies, took, done); err != nil {
			return err
		}
		if len(again) > 0 {
			mine = slices.Concat(again, mine)
		}
		if err := d.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// guess is, for each order, of what type its key probably is: what it was, or
// what others of its name are.
func (d *Deleter) guess(orders []Order) []byte {
	out := make([]byte, len(orders))
	for i := range orders {
		if seen := orders[0].Type; seen == "" {
			out[i] = d.guesses.of(orders[i].Key)
		} else {
			out[i] = unknownKind + byte(max(0, slices.Index(sweptTypes[:], seen)))
		}
	}
	return out
}

// sweepable is the part of orders that may be carried out, those of one type
// together.
func (d *Deleter) sweepable(orders []Order, done func(*Result)) []Order {
	odd := func(o Order) bool { return o.Type != orders[0].Type || d.o.Protected(o.Key) }
	if !slices.ContainsFunc(orders, odd) {
		return orders
	}
	mine := make([]Order, 0, len(orders))
	for _, o := range orders {
		if d.o.Protected(o.Key) {
			done(&Result{Order: o, Outcome: Protected})
		} else {
			mine = append(mine, o)
		}
	}
	slices.SortStableFunc(mine, func(a, b Order) int { return cmp.Compare(a.Type, b.Type) })
	return mine
}

// swept turns replies into results, as report does.
func (d *Deleter) swept(orders []Order, replies []Swept, took time.Duration, done func(*Result)) error {
	var (
		fatal error
		r     Result // one for all: done does not keep it
	)
	for i := range replies {
		reply := &replies[i]
		r = Result{Order: orders[i]}
		if reply.Type != "" {
			r.Order.Type = reply.Type
		}
		switch reply.Status {
		case Acted:
			if orders[i].Type == "" {
				d.guesses.learn(orders[i].Key, reply.Type)
			}
			r.Order.Bytes = reply.Bytes
			if reply.Type != "string" {
				r.Order.Elements = reply.Elements
			}
			r.Outcome, r.Method, r.Batches, r.Took, r.Slowest = Unlinked, Unlink, 1, took, took
			r.Elements, r.Bytes = reply.Elements, max(0, reply.Bytes)
			d.released += r.Bytes
		case StillLarge:
			r.Outcome = Large
		default:
			r.Method, r.Took, r.Slowest = Unlink, took, took
			r = notActed(r, reply.Reply)
			if Fatal(reply.Err) && fatal == nil {
				fatal = reply.Err
			}
		}
		done(&r)
	}
	return fatal
}

// sweep is verdict for many keys that nobody has measured.
//
//	KEYS  the keys
//	ARGV  type, min_elements, min_bytes, no_ttl (0|1), ttl_under ms,
//	      ttl_over ms, MEMORY USAGE (0|1), largest length and bytes of a
//	      small key, the same without MEMORY USAGE, elements and bytes that
//	      all of them together may free, and of what type each key probably
//	      is, a digit for each
//
// It returns one number for each key in turn, 64·(1024·bytes + length) + 8·type
// + status: a reply of one integer costs half of what one of three does. It
// ends, with fewer numbers than keys, before the key that would make it free
// more than one step may. No key is more than O(1), but for MEMORY USAGE with
// the server's default of 5 samples and for what UNLINK takes to free a small
// key. Each command for each key costs a third of a microsecond, so the length
// command of the type that a key probably has stands for TYPE: it fails where
// the guess is wrong, and the key is judged again without one; 0 may be no key at all. Of strings the
// length tells the size. No error ends it: where a command is refused its key
// is left alone, as large, and what was done to the others is told.
const sweep = `
if redis.replicate_commands then redis.replicate_commands() end
local code = {string = 1, list = 2, set = 3, zset = 4, hash = 5}
local count = {'STRLEN', 'LLEN', 'SCARD', 'ZCARD', 'HLEN'}
local want, low, light = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local none, under, over = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6])
local ttls, usage = none or under > 0 or over > 0, ARGV[7] == '1'
local long, heavy, few = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local elements, memory, guess = tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13]
local out, at, last, again = {}, 0, #KEYS, 0
local function judge()
  local call, byte, out = redis.call, string.byte, out
  for i = at + 1, last do
    at = i
    local key, known, n = KEYS[i], byte(guess, i) - 48
    if known > 0 and i ~= again and (want == '' or known == code[want]) then n = call(count[known], key) end
    if not n or n == 0 then
      n = nil
      local kind = call('TYPE', key)['ok']
      known = code[kind]
      if kind == 'none' then out[i] = 2
      elseif want ~= '' and kind ~= want then out[i] = 3
      elseif not known then out[i] = 4
      else n = call(count[known], key) end
    end
    if n then
      local bytes = 0
      if known == 1 then bytes, n = n, 0 end
      if usage and (known > 1 or light > 0) then bytes = call('MEMORY', 'USAGE', key) or 0 end
      local ttl = ttls and call('PTTL', key)
      if ttl and ttl < -1 then out[i] = 2
      elseif n < low or bytes < light then out[i] = 3
      elseif ttl and (ttl == -1 and (under > 0 or over > 0) or ttl >= 0 and (none
          or under > 0 and ttl >= under or over > 0 and ttl <= over)) then out[i] = 3
      elseif n > long or bytes > heavy or not usage and n > few then out[i] = 4
      else
        elements, memory = elements - n, memory - bytes
        if i > 1 and (elements < 0 or memory < 0) then last = i - 1 return end
        if call('UNLINK', key) == 1 then out[i] = (bytes * 1024 + n) * 64 + known * 8 + 1
        else out[i] = 2 end
      end
    end
  end
end
while at < last do
  if not pcall(judge) then
    if at == again then out[at] = 4 else again, at = at, at - 1 end
  end
end
return out
`

// Bounds of what one script frees in the main thread, besides its time, which
// the gate keeps: elements as much as any batch has (3 ms of hashtable
// entries, were none freed in the background), and bytes as any step.
const sweepElements = 10_000

// fewElements is how long a key may be to be small whose bytes nobody tells.
const fewElements = 64

// sweptTypes are the types by their number in the script.
var sweptTypes = [8]string{1: "string", 2: "list", 3: "set", 4: "zset", 5: "hash"}

var sweepScript = redis.NewScript(sweep)

// Sweep removes the small ones of some keys in one step.
//
// Sends: one EVALSHA with all keys outside a cluster, in one pipeline one for
// each key in a cluster; in it, for each key, TYPE unless it was guessed, the length command of its
// type, MEMORY USAGE (4.0) of what is no string or where the evidence needs
// it, PTTL where that does, and UNLINK (4.0). 1 to 2 µs a key.
func (s *Redis) Sweep(ctx context.Context, orders []Order, probably []byte) []Swept {
	each := len(orders)
	if s.can.Cluster {
		each = 1
	}
	var parts, again []part // again: were not run
	for i := 0; i < len(orders); i += each {
		parts = append(parts, part{orders[i : i+each], probably[i : i+each]})
	}
	cmds := s.sweepParts(ctx, parts, "evalsha", sweepScript.Hash())
	for i, cmd := range cmds {
		if unknownScript(cmd.Err()) {
			again = append(again, parts[i])
		}
	}
	if len(again) > 0 {
		other := s.sweepParts(ctx, again, "eval", sweep)
		for i, cmd := range cmds {
			if unknownScript(cmd.Err()) {
				cmds[i], other = other[0], other[1:]
			}
		}
	}
	out := make([]Swept, 0, len(orders))
	for i, cmd := range cmds {
		out = s.sweptReplies(out, parts[i].orders, cmd)
	}
	return out
}

// unknownScript reports whether EVALSHA was refused where EVAL may not be.
func unknownScript(err error) bool {
	return redis.HasErrorPrefix(err, "NOSCRIPT") || redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'evalsha'")
}

// part is what one script is about.
type part struct {
	orders   []Order
	probably []byte
}

// sweepParts sends one script for each part, in one pipeline.
func (s *Redis) sweepParts(ctx context.Context, parts []part, how, script string) []*redis.IntSliceCmd {
	cmds := make([]*redis.IntSliceCmd, len(parts))
	pipe := s.rdb.Pipeline()
	for i, p := range parts {
		orders := p.orders
		args := make([]any, 3, 3+len(orders)+13)
		args[0], args[1], args[2] = how, script, len(orders)
		for k := range orders {
			args = append(args, orders[k].Key)
		}
		e := &orders[0].Evidence
		args = append(args, orders[0].Type, e.MinElements, e.MinBytes, bit(e.NoTTL), millis(e.TTLUnder), millis(e.TTLOver),
			bit(s.can.MemoryUsage), SmallElements, SmallBytes, fewElements, sweepElements, stepBytes, string(p.probably))
		cmds[i] = redis.NewIntSliceCmd(ctx, args...)
		_ = pipe.Process(ctx, cmds[i])
	}
	_, _ = pipe.Exec(ctx) // each reply is looked at by the caller
	return cmds
}

// sweptReplies adds what a script answered about some orders to out.
func (s *Redis) sweptReplies(out []Swept, orders []Order, cmd *redis.IntSliceCmd) []Swept {
	numbers, err := cmd.Result()
	n := len(orders)
	all := Swept{Bytes: Unknown}
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		// Nothing was run: one name, or a command, is out of the user's
		// reach, and it is told which when each key goes by itself.
		all.Status = StillLarge
	case err != nil:
		all.Err = err
	case len(numbers) == 0 || len(numbers) > n:
		all.Err = fmt.Errorf("unexpected reply of the script: %d numbers for %d keys", len(numbers), n)
	default:
		for i, number := range numbers {
			out = append(out, s.sweptReply(&orders[i], number))
		}
		return out
	}
	for range n {
		out = append(out, all)
	}
	return out
}

// stringOverhead is what MEMORY USAGE adds to the lengths of a string and its
// name: 46 to 71 bytes up to 1 KiB (4.0, 7.0, 8.0), and the rest of a size
// class above.
const stringOverhead = 56

func (s *Redis) sweptReply(o *Order, n int64) Swept {
	r := Swept{Type: sweptTypes[n>>3&7], Bytes: Unknown}
	switch n & 7 {
	case 1:
		r.Status, r.Elements = Acted, n>>6&1023
		if s.can.MemoryUsage || r.Type == "string" {
			r.Bytes = n >> 16
		}
		if s.can.MemoryUsage && r.Type == "string" && o.Evidence.MinBytes == 0 {
			r.Bytes += int64(len(o.Key)) + stringOverhead
		}
	case 2:
		r.Status = StillGone
	case 3:
		r.Status = Unmet
	case 4:
		r.Status = StillLarge
	default:
		r.Err = fmt.Errorf("unexpected reply of the script: %d", n)
	}
	return r
}
