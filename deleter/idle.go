package deleter

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// asideIdle sets a key aside whose idle time decides, where scripts can't
// judge it: no WATCH notices that a key was read. So the facts and the rename
// share one MULTI, its replies are judged, and a key that did not meet the
// evidence goes back at once. Idle time is asked for first in it, for what
// follows resets it.
//
// Sends: OBJECT IDLETIME; then MULTI, OBJECT IDLETIME, TYPE, PTTL, the length
// command of the type (of each type, where it is not known), MEMORY USAGE or
// STRLEN where the evidence is about bytes, RENAMENX, PERSIST, EXEC; O(1).
func (s *Redis) asideIdle(ctx context.Context, o Order, trash string) Reply {
	conn := s.rdb.Conn()
	defer conn.Close()
	// A key in use is not renamed back and forth at each run.
	switch idle, err := number(idleCmd(ctx, conn, o.Key)); {
	case err != nil:
		return Reply{Err: err}
	case idle == Unknown:
		return Reply{Status: StillGone}
	case idle < o.Evidence.idleSeconds():
		return Reply{Status: Unmet}
	}

	types := []string{o.Type}
	if o.Type == "" { // before 3.2, where there are no streams
		types = []string{"list", "hash", "set", "zset"}
	}
	// Looked at below, each by its place: replies of commands in a MULTI.
	pipe := conn.TxPipeline()
	idle := idleCmd(ctx, pipe, o.Key)
	typ := pipe.Type(ctx, o.Key)
	ttl := intCmd(ctx, pipe, "pttl", o.Key)
	count := map[string]*redis.IntCmd{}
	for _, t := range types {
		if lengths[t] != "" {
			count[t] = intCmd(ctx, pipe, lengths[t], o.Key)
		}
	}
	var mem *redis.IntCmd
	switch {
	case o.Evidence.MinBytes == 0:
	case s.can.MemoryUsage:
		mem = pipe.MemoryUsage(ctx, o.Key)
	default:
		mem = intCmd(ctx, pipe, "strlen", o.Key)
	}
	moved := pipe.RenameNX(ctx, o.Key, trash)
	kept := pipe.Persist(ctx, trash)
	_, err := pipe.Exec(ctx)
	switch {
	case redis.HasErrorPrefix(moved.Err(), "no such key"):
		return Reply{Status: StillGone}
	case moved.Err() != nil:
		return Reply{Err: errors.Join(moved.Err(), err)}
	case kept.Err() != nil:
		return Reply{Err: kept.Err()}
	case !moved.Val():
		return Reply{Err: errTaken}
	}
	f := facts{Type: typ.Val(), TTL: ttl.Val(), Elements: Unknown, Bytes: Unknown, Idle: idle.Val()}
	if c := count[f.Type]; c != nil && c.Err() == nil {
		f.Elements = c.Val()
	}
	if mem != nil && mem.Err() == nil {
		f.Bytes = mem.Val()
	}
	if !o.holds(f) {
		return s.giveBack(ctx, conn, &o, trash, f.TTL)
	}
	return Reply{Status: Acted, Elements: max(0, f.Elements)}
}
