package deleter

import (
	"fmt"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	with := func(change func(*Abilities)) Abilities {
		can := modern
		change(&can)
		return can
	}
	var (
		libc    = with(func(c *Abilities) { c.Jemalloc = false })
		noName  = with(func(c *Abilities) { c.Unlink = false })
		crashes = with(func(c *Abilities) { c.StreamUnlink = false })
		old     = Abilities{Jemalloc: true} // 2.8
		// 5.0 whose EVAL is refused: WATCH does not see PERSIST.
		blind = with(func(c *Abilities) { c.Script, c.WatchSeesPersist = false, false })
		onTTL = Evidence{TTLUnder: time.Hour}
	)
	big := func(typ string, m Method) Order {
		return Order{Type: typ, Elements: 1_000_000, Bytes: 50 << 20, Method: m}
	}
	small := func(typ string, m Method) Order {
		return Order{Type: typ, Elements: SmallElements, Bytes: SmallBytes, Method: m}
	}
	const refused = ""
	for _, test := range []struct {
		what  string
		order Order
		can   Abilities
		want  Method
	}{
		{"string", big("string", Auto), modern, Unlink},
		{"string", big("string", Auto), libc, Unlink},
		{"string", big("string", Drain), modern, Unlink},
		{"string, old", big("string", Auto), old, Del},
		{"string, blind", Order{Type: "string", Method: Auto, Evidence: onTTL}, blind, Drain},
		{"string, blind, no TTL", Order{Type: "string", Method: Auto, Evidence: Evidence{NoTTL: true}}, blind, Unlink},
		{"bytes unknown, old", Order{Type: "hash", Elements: 3, Bytes: Unknown, Method: Auto}, old, Del},
		{"length unknown", Order{Type: "hash", Elements: Unknown, Bytes: 1, Method: Auto}, old, Drain},
		{"one element too many", Order{Type: "hash", Elements: SmallElements + 1, Bytes: 1, Method: Auto}, old, Drain},
		{"one byte too many", Order{Type: "hash", Elements: 1, Bytes: SmallBytes + 1, Method: Auto}, old, Drain},
		{"bytes unknown, a few hundred", Order{Type: "hash", Elements: 300, Bytes: Unknown, Method: Auto}, old, Drain},
		{"bytes unknown, packed", Order{Type: "hash", Encoding: "ziplist", Elements: 300, Bytes: Unknown, Method: Auto}, old, Del},
		{"few but huge: UNLINK would free them at once", Order{Type: "hash", Elements: 60, Bytes: 700 << 20, Method: Auto}, modern, Drain},
		{"a list of few nodes", Order{Type: "list", Elements: 1000, Bytes: 700 << 20, Method: Auto}, modern, Drain},
		{"a huge string", Order{Type: "string", Bytes: 400 << 20, Method: Auto}, modern, refused},
		{"a huge string, allowed", Order{Type: "string", Bytes: 400 << 20, Method: Auto, AllowStall: time.Second}, modern, Unlink},
		{"nothing can be set aside", big("hash", Auto), Abilities{NoRename: true}, refused},
		{"stream", big("stream", Auto), modern, Unlink},
		{"stream, old", big("stream", Auto), old, Drain},
		{"stream, crashes", big("stream", Auto), crashes, Drain},
		{"stream, crashes, however small", small("stream", Unlink), crashes, refused},
		{"stream, drain", big("stream", Drain), modern, Drain},
		{"stream, blind", Order{Type: "stream", Method: Auto, Evidence: onTTL}, blind, Drain},
		{"stream, small: its groups may be large", small("stream", Auto), modern, Drain},
		{"module", big("ReJSON-RL", Auto), modern, refused},
		{"module, drain", big("ReJSON-RL", Drain), modern, refused},
		{"module, by choice", big("ReJSON-RL", Unlink), modern, Unlink},
		{"module, by choice, no UNLINK", big("ReJSON-RL", Unlink), noName, refused},
		{"unknown", Order{Method: Auto}, modern, refused},
		{"unknown, by choice", Order{Method: Unlink}, modern, refused},
	} {
		t.Run(test.what, func(t *testing.T) { wantPlan(t, test.order, test.can, test.want) })
	}
	for _, typ := range []string{"list", "set", "zset", "hash"} {
		for i, test := range []struct {
			order Order
			can   Abilities
			want  Method
		}{
			{small(typ, Auto), modern, Unlink},
			{small(typ, Drain), modern, Unlink},
			{small(typ, Auto), libc, Unlink},
			{small(typ, Auto), noName, Del},
			{small(typ, Auto), old, Del},
			{small(typ, Unlink), noName, refused},
			{big(typ, Auto), modern, Unlink},
			{big(typ, Auto), libc, Drain},
			{big(typ, Unlink), libc, Unlink},
			{big(typ, Drain), modern, Drain},
			{big(typ, Auto), noName, Drain},
			{big(typ, Auto), old, Drain},
			{big(typ, Unlink), noName, refused},
			{Order{Type: typ, Elements: 1, Method: Auto, Evidence: onTTL}, blind, Drain},
			{Order{Type: typ, Elements: 1, Method: Auto, Evidence: onTTL}, modern, Unlink},
		} {
			t.Run(fmt.Sprintf("%s %d", typ, i), func(t *testing.T) { wantPlan(t, test.order, test.can, test.want) })
		}
	}
}

func wantPlan(t *testing.T, o Order, can Abilities, want Method) {
	t.Helper()
	got, err := plan(&o, &can)
	if got != want || (err != nil) != (want == "") {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
