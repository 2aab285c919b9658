package deleter

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// verdict judges one key by the facts of now and acts in the same step.
//
//	KEYS  key, and for "aside" the trash name
//	ARGV  act, type, min_elements, min_bytes, no_ttl (0|1), ttl_under ms,
//	      ttl_over ms, MEMORY USAGE (0|1), largest length and bytes for "del",
//	      lasting ms, idle_over s, types with commas, freq_under, and what the act needs:
//	      "run" the command to send, less the key; "ties" and "stream" what
//	      their functions say
//
// It returns {status, length} and, of what shortens, the length after. Idle
// time is asked for first: what follows may reset it. Nothing in it is more
// than O(1), but for what DEL takes to free at most 1000 elements, and what a
// step that shortens was told to remove. replicate_commands makes
// 3.2 and 4.0 replicate what was done instead of the script, which would
// decide anew on a replica; from 5.0 on that is how it is. The first PERSIST
// does nothing to a name that is free: where the user may not send it, the
// script ends there and not, with an error, after the rename.
const verdict = shorten + `
if redis.replicate_commands then redis.replicate_commands() end
local key, act = KEYS[1], ARGV[1]
if ARGV[14] ~= '0' then
  local used = redis.call('OBJECT', 'FREQ', key)
  if not used then return {'gone', 0} end
  if used >= tonumber(ARGV[14]) then return {'changed', 0} end
end
if ARGV[12] ~= '0' then
  local idle = redis.call('OBJECT', 'IDLETIME', key)
  if not idle then return {'gone', 0} end
  if idle < tonumber(ARGV[12]) then return {'changed', 0} end
end
local kind = redis.call('TYPE', key)['ok']
if kind == 'none' then return {'gone', 0} end
if ARGV[2] ~= '' and kind ~= ARGV[2] then return {'changed', 0} end
if ARGV[13] ~= '' and not string.find(',' .. ARGV[13] .. ',', ',' .. kind .. ',', 1, true) then return {'changed', 0} end
local count = {list='LLEN', hash='HLEN', set='SCARD', zset='ZCARD', stream='XLEN'}
local n = 0
if count[kind] then n = redis.call(count[kind], key) end
if tonumber(ARGV[3]) > n then return {'changed', n} end
if tonumber(ARGV[4]) > 0 then
  local bytes = 0
  if ARGV[8] == '1' then bytes = redis.call('MEMORY', 'USAGE', key) or 0
  elseif kind == 'string' then bytes = redis.call('STRLEN', key) end
  if bytes < tonumber(ARGV[4]) then return {'changed', n} end
end
if ARGV[5] == '1' or ARGV[6] ~= '0' or ARGV[7] ~= '0' or ARGV[11] ~= '0' then
  local ttl = redis.call('PTTL', key)
  if ttl < -1 then return {'gone', 0} end
  if ttl == -1 then
    if ARGV[6] ~= '0' or ARGV[7] ~= '0' then return {'changed', n} end
  elseif ARGV[5] == '1' or (ARGV[6] ~= '0' and ttl >= tonumber(ARGV[6]))
      or (ARGV[7] ~= '0' and ttl <= tonumber(ARGV[7]))
      or (ARGV[11] ~= '0' and ttl <= tonumber(ARGV[11])) then return {'changed', n} end
end
if act == 'unlink' then
  if redis.call('UNLINK', key) == 0 then return {'gone', 0} end
elseif act == 'del' then
  if n > tonumber(ARGV[9]) then return {'large', n} end
  if ARGV[8] == '1' and count[kind] and (redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) or 0) > tonumber(ARGV[10]) then
    return {'large', n}
  end
  if redis.call('DEL', key) == 0 then return {'gone', 0} end
elseif act == 'aside' then
  redis.call('PERSIST', KEYS[2])
  if redis.call('RENAMENX', key, KEYS[2]) == 0 then return {'taken', n} end
  redis.call('PERSIST', KEYS[2])
elseif act == 'run' then
  redis.call(ARGV[15], key, unpack(ARGV, 16))
elseif act == 'ties' then
  local old = redis.call('ZCOUNT', key, '-inf', ARGV[16])
  if old == 0 then return {'enough', n, n} end
  redis.call('ZREMRANGEBYRANK', key, 0, math.min(tonumber(ARGV[15]), old) - 1)
elseif act == 'stream' then
  if not shorten(key, n, tonumber(ARGV[15]), tonumber(ARGV[16]), ARGV[17], ARGV[18] == '1') then
    return {'enough', n, n}
  end
end
if count[kind] and (act == 'run' or act == 'ties' or act == 'stream') then
  return {'acted', n, redis.call(count[kind], key)}
end
return {'acted', n}
`

var verdictScript = redis.NewScript(verdict)

// judge runs the verdict on each order, pipelined.
func (s *Redis) judge(ctx context.Context, orders []Order, what act, trash []string) []Reply {
	out := make([]Reply, len(orders))
	all := make([]int, len(orders))
	for i := range all {
		all[i] = i
	}
	// The first attempt names the script by its digest. What the server
	// answers with NOSCRIPT, or does not allow (EVALSHA, but EVAL it may),
	// was not run and is sent again with the text.
	again := s.judgeSome(ctx, orders, all, what, trash, out, true)
	s.judgeSome(ctx, orders, again, what, trash, out, false)
	return out
}

func (s *Redis) judgeSome(ctx context.Context, orders []Order, which []int, what act, trash []string, out []Reply, bySHA bool) (unknown []int) {
	if len(which) == 0 {
		return nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(which))
	for j, i := range which {
		keys := []string{orders[i].Key}
		if what == actAside {
			keys = append(keys, trash[i])
		}
		args := s.verdictArgs(&orders[i], what)
		if bySHA {
			cmds[j] = pipe.EvalSha(ctx, verdictScript.Hash(), keys, args...)
		} else {
			cmds[j] = pipe.Eval(ctx, verdict, keys, args...)
		}
	}
	_, _ = pipe.Exec(ctx) // each reply is looked at below
	for j, i := range which {
		if err := cmds[j].Err(); bySHA && unknownScript(err) {
			unknown = append(unknown, i)
			continue
		}
		out[i] = verdictReply(cmds[j])
	}
	return unknown
}

func (s *Redis) verdictArgs(o *Order, what act) []any {
	e := &o.Evidence
	args := []any{
		string(what), o.Type, e.MinElements, e.MinBytes, bit(e.NoTTL),
		strconv.FormatInt(millis(e.TTLUnder), 10), strconv.FormatInt(millis(e.TTLOver), 10), bit(s.can.MemoryUsage), SmallElements, stepBytes,
		strconv.FormatInt(millis(e.Lasting), 10), e.idleSeconds(), e.Types, e.FreqUnder,
	}
	return append(args, o.run...)
}

// bit is a condition as scripts take it.
func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func verdictReply(cmd *redis.Cmd) Reply {
	parts, err := cmd.Slice()
	if err != nil {
		return Reply{Err: err}
	}
	if len(parts) != 2 && len(parts) != 3 {
		return Reply{Err: fmt.Errorf("unexpected reply of the script: %v", parts)}
	}
	status, _ := parts[0].(string)
	n, _ := parts[1].(int64)
	r := Reply{Status: Status(status), Elements: n}
	if len(parts) == 3 {
		r.Left, _ = parts[2].(int64)
	}
	switch r.Status {
	case Acted, StillGone, Unmet, Grown, Enough:
		return r
	case "taken":
		return Reply{Err: errTaken}
	}
	return Reply{Err: fmt.Errorf("unexpected reply of the script: %v", parts)}
}
