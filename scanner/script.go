package scanner

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// sizes walks one page and measures its keys in one call: SCAN ARGV[1] COUNT
// ARGV[2], and MEMORY USAGE of each key once. It answers the next cursor, the
// number of keys, and the name and bytes of those that have at least ARGV[3],
// or begin with ARGV[4]. It reads only.
const sizes = `
local page = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[2])
local out, seen, n = {page[1], 0}, {}, 0
local least, own, long = tonumber(ARGV[3]), ARGV[4], #ARGV[4]
for _, key in ipairs(page[2]) do
  if not seen[key] then
    seen[key], n = true, n + 1
    local bytes = redis.call('MEMORY', 'USAGE', key) or 0
    if bytes >= least or string.sub(key, 1, long) == own then
      out[#out + 1] = key
      out[#out + 1] = bytes
    end
  end
end
out[2] = n
return out
`

var sizesScript = redis.NewScript(sizes)

// ownPrefix begins all names that are ours.
const ownPrefix = "keyjanitor:"

// scripted fetches and measures a page by script.
//
// Sends: EVALSHA, once EVAL, of a script that does SCAN COUNT count and MEMORY
// USAGE (4.0) of each key: one call that the server does not interrupt, of some
// 2 µs a key.
func (s *Scanner) scripted(ctx context.Context, cursor uint64) (page, error) {
	count := s.gate.Pipeline(s.gate.Batch(kind))
	if err := s.gate.Wait(ctx, count+1, 0, 0); err != nil {
		return page{}, err
	}
	start := time.Now()
	reply, err := sizesScript.Run(ctx, s.rdb, nil, strconv.FormatUint(cursor, 10), count, s.o.Rule.MinBytes, ownPrefix).Slice()
	p := page{took: time.Since(start)}
	if err != nil && s.gate.Again(ctx, err) {
		return s.scripted(ctx, cursor)
	}
	if err != nil {
		return p, fmt.Errorf("scan by script from cursor %d: %w", cursor, err)
	}
	wrong := fmt.Errorf("scan by script from cursor %d: unexpected reply", cursor)
	if len(reply) < 2 || len(reply)%2 != 0 {
		return p, wrong
	}
	text, ok1 := reply[0].(string)
	seen, ok2 := reply[1].(int64)
	if p.next, err = strconv.ParseUint(text, 10, 64); err != nil || !ok1 || !ok2 {
		return p, wrong
	}
	p.seen = int(seen)
	for i := 2; i < len(reply); i += 2 {
		name, ok1 := reply[i].(string)
		bytes, ok2 := reply[i+1].(int64)
		if !ok1 || !ok2 {
			return p, wrong
		}
		p.names, p.bytes = append(p.names, name), append(p.bytes, bytes)
	}
	return p, nil
}
