package deleter

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// entries answers as a stream of three entries, two of them pending in group
// b, until they are acknowledged and trimmed.
func entries() func(args []string) any {
	length, pending := int64(3), []redis.XPendingExt{{ID: "1-1"}, {ID: "2-1"}}
	return func(args []string) any {
		switch args[0] {
		case "type":
			return "stream"
		case "xinfo":
			return []redis.XInfoGroup{{Name: "a"}, {Name: "b", Pending: int64(len(pending))}}
		case "xpending":
			return pending
		case "xack":
			pending = nil
			return int64(2)
		case "xtrim":
			length = 0
			return int64(3)
		case "xlen":
			return length
		case "xgroup", "multi":
			return "OK"
		case "exec":
			return []any{}
		}
		return int64(1)
	}
}

// A stream is acknowledged, trimmed and dropped, and on a server that could
// crash not before it has a group.
func TestStream(t *testing.T) {
	for name, can := range map[string]Abilities{
		"stream": {Unlink: true, StreamUnlink: true}, "stream_old": {}, "stream_crashes": {Unlink: true},
	} {
		can.StreamUnlink = can.StreamUnlink || name == "stream_old"
		store, s := newStore(t, can, entries())
		if got := drain(t, open(t, store), always(10)); got != 3 {
			t.Errorf("%s: removed %d, want 3", name, got)
		}
		s.golden("drain_" + name)
	}
}

// Of a transaction that was not carried out the commands were told why.
func TestStreamDropIsRefused(t *testing.T) {
	const why = says("NOREPLICAS Not enough good slaves to write.")
	store, _ := newStore(t, Abilities{}, func(args []string) any {
		switch args[0] {
		case "type":
			return "stream"
		case "xinfo":
			return []redis.XInfoGroup{}
		case "xgroup", "del":
			return why
		case "exec":
			return says("EXECABORT Transaction discarded because of previous errors.")
		case "multi":
			return "OK"
		}
		return int64(0)
	})
	key := open(t, store)
	for range 2 { // it asks for groups first
		if did, err := key.Next(t.Context(), 10); did.Done || err != nil && err.Error() != string(why) {
			t.Errorf("%+v, %v", did, err)
		} else if err != nil {
			return
		}
	}
	t.Error("nothing was refused")
}
