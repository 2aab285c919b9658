package integration

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// sends are the commands that a clean may send or have executed, each with
// what it is for. Whatever else a server saw of it is a mistake.
var sends = map[string]string{
	"hello": "log in", "auth": "log in", "select": "a database", "ping": "the network's share", "info": "who is this, health",
	"dbsize": "max_percent", "cluster|slots": "shards", "cluster|myid": "identity", "command|docs": "NOVALUES", "command|info": "abilities of a report",
	"client|no-touch": "leave no trace",
	"scan":            "find", "type": "find", "pttl": "find", "strlen": "find", "llen": "find", "hlen": "find", "scard": "find", "zcard": "find",
	"object|encoding": "find", "memory|usage": "find",
	"eval": "judge and act", "evalsha": "judge and act", "watch": "judge", "unwatch": "an ability", "multi": "act", "exec": "act", "discard": "nothing to act on",
	"unlink": "remove", "del": "remove what is small", "renamenx": "set aside, give back", "persist": "set aside", "pexpire": "give back",
	"time":  "when kept keys are due",
	"ltrim": "drain", "zremrangebyscore": "drain", "zremrangebyrank": "drain", "zrange": "drain",
	"hscan": "drain", "hkeys": "drain", "hdel": "drain", "sscan": "drain", "srem": "drain",
}

// grantedBesides are in the rule that check prints, for what a clean of the
// types in these tests does not do.
var grantedBesides = map[string]string{
	"get": "a job's lock", "set": "a job's lock", "exists": "restore", "xlen": "streams", "xtrim": "streams", "xinfo|groups": "streams",
	"xpending": "streams", "xack": "streams", "xgroup|create": "streams", "object|idletime": "idle rules", "object|freq": "rules on use", "readonly": "replicas", "cluster|nodes": "slots that move",
}

// The two lists together are what check tells an operator to grant. A login
// needs no grant, and some commands came with later versions.
func TestSendsIsGranted(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasACL, "has no ACL", func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		rule := newOperator(t).run(t, "check", "--url", d.url(), "--format", "json").exit(0).checked().ACL["delete"]
		granted := map[string]bool{}
		for _, word := range strings.Fields(rule) {
			if name, ok := strings.CutPrefix(word, "+"); ok {
				granted[name] = true
			}
		}
		needless := []string{"hello", "auth"}
		if !b.since(7, 2) {
			needless = append(needless, "client|no-touch")
		}
		if !b.since(7, 0) {
			needless = append(needless, "command|docs")
		}
		for _, list := range []map[string]string{sends, grantedBesides} {
			for name, why := range list {
				if !granted[name] && !slices.Contains(needless, name) {
					t.Errorf("%s (%s) is not in the rule %q", name, why, rule)
				}
				delete(granted, name)
			}
		}
		for name := range granted {
			t.Errorf("%s is in the rule, and neither sent nor granted for something else", name)
		}
	})
}

// TestCounters reconciles every number of a report with the servers' own
// account, at first undisturbed and then with replies that are lost.
func TestCounters(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		rnd := seeded(t)
		doubts := 0
		for i, way := range waysOf(b) {
			t.Run(way.name, func(t *testing.T) {
				c := &counted{d: standalone(t, b, way.opts...), rnd: rnd, since: time.Now(), seed: rnd.Uint64(),
					// 3.2 and 4.0 count what EXEC does as calls of EXEC.
					stats: way.scripts || !b.since(3, 0) || b.since(5, 0)}
				for round := range size.cuts {
					if !c.round(t, i+round, round%3 == 2) {
						return
					}
				}
				doubts += c.doubts
			})
		}
		if doubts == 0 && !t.Failed() {
			t.Error("no cut left anything in doubt: the test proves nothing")
		}
	})
}

// counted is one deployment whose keyspace is loaded again and again.
type counted struct {
	d      *deployment
	rnd    *rand.Rand
	since  time.Time
	seed   uint64
	stats  bool // the server's statistics tell commands apart
	doubts int  // keys of which a cut left open what became of them
}

// load writes the same keyspace each time, and opens the books over it.
func (c *counted) load(t *testing.T, r rule) (*books, digest) {
	t.Helper()
	c.d.flush(t)
	w := newWriters(t, c.d, rand.New(rand.NewPCG(c.seed, 0)), 0, r)
	w.since = c.since
	books := openBooks(t, c.d, w.mine, r)
	w.load(t, size.still)
	return books, digestOf(t, c.d)
}

// round runs one rule undisturbed, then again with a cut at a random command,
// and then lets a second run finish.
func (c *counted) round(t *testing.T, condition int, keeps bool) bool {
	t.Helper()
	r := randomRule(c.rnd, condition)
	flags := args("--all-keys", r.flags(), "--execute", "--format", "json", "--top", 100_000)
	if keeps {
		flags = append(flags, "--keep-for", "24h")
	}

	books, before := c.load(t, r)
	o := newOperator(t)
	books.proxies = startProxies(t, c.d, nil, nil)
	w := observe(t, c.d)
	books.begin(t)
	res := o.run(t, args("clean", through(t, o, c.d, books.proxies), flags)...)
	books.end(t)
	after := digestOf(t, c.d)
	books.exactly(t, res, before, after)
	if c.stats {
		books.asCounted(t, w)
	}
	books.onlySends(t)
	victims := books.condemned(before, res.summary())
	mustBeGone(t, before, after, victims, keeps)

	cut := c.pickCut(books.proxies[0].passed())
	books, before = c.load(t, r)
	o = newOperator(t)
	books.proxies = startProxies(t, c.d, nil, cut.fate)
	books.begin(t)
	first := o.run(t, args("clean", through(t, o, c.d, books.proxies), flags)...).exit(0, 1, 3)
	books.end(t)
	books.onlySends(t)
	doubts := books.inDoubt(t, first)
	c.doubts += doubts

	second := o.run(t, args("clean", "--url", c.d.url(), flags)...).exit(0)
	mustBeGone(t, before, digestOf(t, c.d), victims, keeps)
	if s, left := second.summary(), int64(len(books.aside)-len(books.emptied)); !keeps && s.Outcomes["finished"] != left {
		second.error("%d keys were left in the trash, finished is %d", left, s.Outcomes["finished"])
	}
	t.Logf("%v, keeps %v: %v, exit %d, %d in doubt", r.flags(), keeps, cut, first.code, doubts)
	if t.Failed() {
		t.Logf("undisturbed %v\ncut %v\nafter %v", res, first, second)
	}
	return !t.Failed()
}

// exactly: nothing else changed, so each number is what the servers say.
func (b *books) exactly(t *testing.T, res result, before, after digest) {
	t.Helper()
	s := res.exit(0).summary()
	s.complete(true)
	equal := func(what string, got, want int64) {
		if got != want {
			res.error("%s is %d, the servers say %d", what, got, want)
		}
	}
	victims := int64(len(b.condemned(before, s)))
	equal("keys_scanned", s.KeysScanned, int64(len(before)))
	equal("keys_matched", s.KeysMatched, victims)
	equal("unlinked + deleted", s.Outcomes["unlinked"]+s.Outcomes["deleted"], int64(len(b.removed)))
	equal("drained", s.Outcomes["drained"], int64(len(b.emptied)))
	equal("trashed", s.Outcomes["trashed"], int64(len(b.aside)-len(b.emptied)))
	equal("all that was done", s.removed()+s.Outcomes["trashed"], victims)
	equal("elements_removed", *s.ElementsRemoved, b.elements)
	equal("elements_removed", *s.ElementsRemoved, before.elements()-after.elements())
	for outcome, n := range s.Outcomes {
		if !slices.Contains([]string{"unlinked", "deleted", "drained", "trashed"}, outcome) {
			equal(outcome, n, 0)
		}
	}
}

// elements counts what is in aggregates.
func (d digest) elements() (n int64) {
	for _, im := range d {
		if im.kind != "string" {
			n += im.elements
		}
	}
	return n
}

// asCounted compares the account with the servers' command statistics: then
// neither overlooks anything.
func (b *books) asCounted(t *testing.T, w *witness) {
	t.Helper()
	for _, verb := range []string{"unlink", "del", "renamenx", "persist", "pexpire", "hdel", "srem", "ltrim", "zremrangebyscore", "zremrangebyrank"} {
		if n := w.calls(t, verb); n != int64(b.ours[verb]) {
			t.Errorf("the statistics count %d calls of %s, the account has %d", n, verb, b.ours[verb])
		}
	}
}

// onlySends fails on a command that nobody needs.
func (b *books) onlySends(t *testing.T) {
	t.Helper()
	names := map[string]bool{}
	for name := range b.ours {
		names[name] = true
	}
	for _, p := range b.proxies {
		for _, name := range p.passed() {
			names[name] = true
		}
	}
	for name := range names {
		if _, known := sends[name]; !known {
			t.Errorf("%s was sent, and is not among what a clean needs", name)
		}
	}
}

// mustBeGone fails unless the victims, and nothing else, are gone; or, where
// they are kept, unless each is in the trash, once and as it was.
func mustBeGone(t *testing.T, before, after digest, victims []keyID, kept bool) {
	t.Helper()
	mustEqual(t, before, only(after, func(name string) bool { return !isTrash(name) }), victims...)
	found := map[keyID]int{}
	for k, is := range only(after, isTrash) {
		of := keyID{k.db, original(k.name)}
		found[of]++
		was := before[of]
		if !strings.Contains(k.name, "}:1:k:") || is.kind != was.kind || is.sum != was.sum || !is.expires.IsZero() {
			t.Errorf("%v in the trash is %+v, was %+v", k, is, was)
		}
		if remembers := !strings.Contains(k.name, ":-1:-:"); remembers == was.expires.IsZero() {
			t.Errorf("%v: the trash remembers a TTL: %v; the key expired: %v", k, remembers, was.expires)
		}
	}
	for _, k := range victims {
		if want := map[bool]int{true: 1}[kept]; found[k] != want {
			t.Errorf("%v is %d times in the trash, want %d", k, found[k], want)
		}
		delete(found, k)
	}
	for k := range found {
		t.Errorf("%v is in the trash, and was not to be touched", k)
	}
}
