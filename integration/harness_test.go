package integration

import (
	"fmt"
	"testing"
	"time"
)

// The harness is tested, too: a digest that overlooks a change would let
// every other test here pass.

func TestHarnessDigest(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		set := seed(t, d, 2000)
		for _, k := range set.big {
			verb := map[string]string{"hash": "HLEN", "set": "SCARD", "list": "LLEN", "zset": "ZCARD"}[k.kind]
			if n := d.on(k.db, k.name).Do(t.Context(), verb, k.name).Val(); n != k.elements {
				t.Errorf("%v has %v elements, want %d", k, n, k.elements)
			}
		}
		m := d.masters[0]
		names := hostileNames()
		for _, n := range names {
			m.do(t, 1, "SET", n, "x")
		}
		if n := m.doInt(t, 1, "DBSIZE"); n != int64(len(names)) {
			t.Fatalf("%d hostile names are %d keys", len(names), n)
		}
		// A fixed moment: one counted from now would move while the test runs.
		deadline := time.Now().Add(24 * time.Hour).Unix()
		m.do(t, 0, "EXPIREAT", "small:hash:0", deadline)
		before := digestOf(t, d)
		if int64(len(before)) != d.size(t) {
			t.Fatalf("digest of %d keys, DBSIZE %d", len(before), d.size(t))
		}
		// Reading moves a table's resizing on and must not show.
		m.do(t, 0, "HGETALL", "big:hash")
		mustEqual(t, before, digestOf(t, d))

		for _, change := range []struct {
			what string
			db   int
			do   []any
			undo []any
		}{
			{"a member less", 0, []any{"SREM", "big:set", "member:7"}, []any{"SADD", "big:set", "member:7"}},
			{"a field's value", 0, []any{"HSET", "big:hash", "field:7", "other"}, []any{"HSET", "big:hash", "field:7", "value-7"}},
			{"an order", 3, []any{"RPOPLPUSH", "big:list", "big:list"}, nil},
			{"a score", 9, []any{"ZADD", "big:zset", "1", "member:0"}, []any{"ZADD", "big:zset", "0", "member:0"}},
			{"a TTL more", 1, []any{"EXPIRE", "{}x", "1000"}, []any{"PERSIST", "{}x"}},
			{"a TTL less", 0, []any{"PERSIST", "small:hash:0"}, []any{"EXPIREAT", "small:hash:0", deadline}},
			{"a TTL longer", 0, []any{"EXPIREAT", "small:hash:0", deadline + 10}, []any{"EXPIREAT", "small:hash:0", deadline}},
			{"a key more", 5, []any{"SET", "new", "x"}, []any{"DEL", "new"}},
			{"a key less", 1, []any{"DEL", ""}, []any{"SET", "", "x"}},
			{"a name", 1, []any{"RENAME", "\x00", "other"}, []any{"RENAME", "other", "\x00"}},
			{"a type", 1, []any{"EVAL", "redis.call('del',KEYS[1]) return redis.call('rpush',KEYS[1],'x')", "1", "-"},
				[]any{"SET", "-", "x"}},
		} {
			m.do(t, change.db, change.do...)
			after := digestOf(t, d)
			if len(differences(before, after)) == 0 {
				t.Errorf("the digest does not show %s", change.what)
			}
			if change.undo == nil {
				before = after
				continue
			}
			m.do(t, change.db, change.undo...)
			mustEqual(t, before, digestOf(t, d))
		}
	})
}

func TestHarnessCluster(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasCluster, "has no cluster", func(t *testing.T, b serverBinary) {
		t0 := time.Now()
		d := startCluster(t, b)
		t.Logf("cluster of %s after %v", b, time.Since(t0).Round(time.Millisecond))
		for _, n := range hostileNames() {
			if got := d.masters[0].doInt(t, 0, "CLUSTER", "KEYSLOT", n); got != int64(slotOf(n)) {
				t.Errorf("slot of %.40q: %d, the server says %d", n, slotOf(n), got)
			}
		}
		set := seed(t, d, 2000)
		before := digestOf(t, d)
		if len(before) != set.small+len(set.big) {
			t.Errorf("%d keys loaded, want %d", len(before), set.small+len(set.big))
		}
		for i, m := range d.masters {
			want := m.doInt(t, 0, "DBSIZE")
			eventually(t, 30*time.Second, "replica in step", func() bool {
				return d.replicas[i].doInt(t, 0, "DBSIZE") == want
			})
			if want == 0 {
				t.Errorf("no key on %s", m.addr)
			}
		}
		mustEqual(t, before, digestOf(t, d))
	})
}

// The witnesses must see a DEL of a big key, or their silence says nothing.
func TestHarnessWitness(t *testing.T) {
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, logAll)
		load(t, d, 0, "hash", "h", 50_000)
		w := observe(t, d)
		p := startProbe(t, d.masters[0])
		d.masters[0].do(t, 0, "DEL", "h")
		d.masters[0].do(t, 0, "KEYS", "*")
		t.Logf("DEL of a hash of 50,000: %v", p.end())
		if n := w.calls(t, "del"); n != 1 {
			t.Errorf("DEL was counted %d times", n)
		}
		if n := w.calls(t, "keys"); n != 1 {
			t.Errorf("KEYS was counted %d times", n)
		}
		seen := false
		for _, l := range w.journal(t) {
			if l.verb() == "DEL" && fmt.Sprint(l.args) == "[DEL h]" {
				seen = true
				t.Log(l)
			}
		}
		if !seen {
			t.Error("the journal has no DEL")
		}
	})
}
