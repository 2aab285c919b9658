package integration

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// seeded is a source of random numbers that KEYJANITOR_TEST_SEED replays.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("KEYJANITOR_TEST_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("KEYJANITOR_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// noScripts sends every order by WATCH, look, MULTI and EXEC.
var noScripts = []option{`rename-command EVAL ""`, `rename-command EVALSHA ""`}

// way is one way in which a server lets keys be judged and removed.
type way struct {
	name    string
	opts    []option
	unlink  bool
	scripts bool
}

// waysOf lists those that a server offers, if something is taken from it.
func waysOf(b serverBinary) (out []way) {
	for _, w := range []way{
		{name: "script and UNLINK", unlink: true, scripts: true},
		{name: "script", opts: []option{noUnlink}, scripts: true},
		{name: "WATCH and UNLINK", opts: noScripts, unlink: true},
		{name: "WATCH", opts: append([]option{noUnlink}, noScripts...)},
	} {
		if w.unlink && !b.hasUnlink() || w.scripts && !b.since(3, 2) {
			continue
		}
		if !b.hasUnlink() {
			w.opts = w.opts[1:]
		}
		out = append(out, w)
	}
	return out
}

// TestProperty is promise 1: under generated keyspaces and rules, with writers
// at work all the while and let in between any two commands, no key is acted
// on that is not in the rule at that moment, and the others are what their
// writers made them.
func TestProperty(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		rnd := seeded(t)
		for i, way := range waysOf(b) {
			t.Run(way.name, func(t *testing.T) {
				d := standalone(t, b, way.opts...)
				acts := 0
				for round := range size.propertyRounds {
					acts += propertyRound(t, d, rnd, i+round*3)
				}
				if !way.scripts && !b.since(6, 2) { // WATCH does not see PERSIST
					for range size.propertyRounds {
						acts += propertyRound(t, d, rnd, onTTL)
					}
				}
				if acts == 0 {
					t.Error("no round acted on any key: the test proves nothing")
				}
			})
		}
	})
}

// TestPropertyCluster is the same in a cluster, each of whose masters lets
// keys be removed in another way.
func TestPropertyCluster(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasCluster, "has no cluster", func(t *testing.T, b serverBinary) {
		rnd := seeded(t)
		ways := waysOf(b)
		first := rnd.IntN(len(ways))
		d := startMixedCluster(t, b, func(node int) []option {
			if node >= 3 {
				return nil // Valkey lets keys expire on a replica by UNLINK
			}
			w := ways[(first+node)%len(ways)]
			t.Logf("master %d: %s", node, w.name)
			return w.opts
		})
		acts := 0
		for round := range size.propertyRounds {
			acts += propertyRound(t, d, rnd, rnd.IntN(len(conditions))+round)
		}
		if acts == 0 {
			t.Error("no round acted on any key: the test proves nothing")
		}
		replicasFollow(t, d)
	})
}

// propertyRound is one run over one keyspace.
func propertyRound(t *testing.T, d *deployment, rnd *rand.Rand, condition int) int {
	t.Helper()
	d.flush(t)
	r := randomRule(rnd, condition)
	w := newWriters(t, d, rnd, size.moving, r)
	books := openBooks(t, d, w.mine, r)
	w.load(t, size.still)
	before := digestOf(t, d)

	o := newOperator(t)
	proxies := startProxies(t, d, w.letIn, nil)
	books.proxies = proxies
	cmd := args("clean", through(t, o, d, proxies), "--all-keys", r.flags(), "--execute", "--format", "json", "--top", 100_000)
	keeps := rnd.IntN(4) == 0
	if keeps {
		cmd = append(cmd, "--keep-for", "24h")
	}
	books.begin(t)
	run := o.start(t, cmd...)
	wg := w.atWork(t, run, size.writes)
	res := run.wait()
	wg.Wait()
	books.end(t)
	if w.err != nil {
		t.Errorf("a writer that was let in: %v", w.err)
	}
	// A key that is written to at each attempt fails, and makes the run partial.
	s := res.exit(0, 3).summary()
	s.complete(true)
	if s.Outcomes["failed"] < int64(books.stranded) {
		res.error("%d keys could not be given back, %d failed", books.stranded, s.Outcomes["failed"])
	}

	after := digestOf(t, d)
	books.agree(t, after)
	mustEqual(t, only(before, isStill), only(after, isStill), books.condemned(before, s)...)
	t.Logf("%v: %d keys acted on, %d given back; %d writes of which %d were let in; %v; %v", r.flags(), books.acts, books.back,
		w.sent, w.let, res.took.Round(time.Millisecond), nonzero(s.Outcomes))
	if t.Failed() {
		t.Fatalf("%v", res)
	}
	return books.acts
}

func nonzero(m map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for k, v := range m {
		if v != 0 {
			out[k] = v
		}
	}
	return out
}

func only(d digest, of func(name string) bool) digest {
	out := digest{}
	for k, im := range d {
		if of(k.name) {
			out[k] = im
		}
	}
	return out
}
