package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// killScene is one thing that a run is killed at. Whatever else a run does to
// keys gets a row of its own: a trim, say, with what it leaves in wants.
type killScene struct {
	name  string
	flags []string
	kept  bool // the victims wait in the trash; else they are gone
	trims bool // the lists among them keep killKeep entries, and the others all
}

var killScenes = []killScene{
	{name: "drains", flags: []string{"--method", "drain"}},
	{name: "keeps", flags: []string{"--keep-for", "24h"}, kept: true},
	{name: "trims", flags: []string{"--action", "trim", "--keep", strconv.Itoa(killKeep), "--keep-end", "tail"}, trims: true},
}

// killExpiry is when the victims expire that have a TTL, in Unix seconds.
var killExpiry = strconv.FormatInt(time.Now().Add(24*time.Hour).Unix(), 10)

// The keys of a killed run: those that its rule selects, those that an earlier
// run kept and that are due, and those that are none of its business.
const (
	killElements   = 1500 // more than are removed in one piece
	killNeighbours = 40
	killKeep       = 300
)

// killed is one database, in which a run is killed again and again.
type killed struct {
	d       *deployment
	db      int
	rnd     *rand.Rand
	due     map[string]string // kinds by trash names of what is due
	victims []keyID
	before  digest                   // without the trash
	trimmed digest                   // the same, where the test itself has trimmed the lists
	took    map[string]time.Duration // of an undisturbed run, by scene
	opens   map[string]int           // the commands before it scans
	sends   map[string]int           // all of them
}

// TestKill9Anywhere kills runs that drain, set aside and finish what is due: at
// a random command, before or after the server had it, or at a random moment.
// Whichever it was, after a second run the keyspace is that of a run that
// nobody disturbed. Each database of one server is a place for a run.
func TestKill9Anywhere(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		rnd := seeded(t)
		d := standalone(t, b, noUnlinkOn(b)...)
		const places = 4
		var dead, caught atomic.Int64
		t.Run("place", func(t *testing.T) { killEverywhere(t, d, rnd, places, &dead, &caught) })
		t.Logf("%d runs, %d killed before their end, %d of them with keys half done", size.killRounds, dead.Load(), caught.Load())
		if caught.Load() == 0 && !t.Failed() {
			t.Error("no kill left anything half done: the test proves nothing")
		}
	})
}

func killEverywhere(t *testing.T, d *deployment, rnd *rand.Rand, places int, dead, caught *atomic.Int64) {
	for place := range places {
		k := &killed{d: d, db: place, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0)), due: map[string]string{},
			took: map[string]time.Duration{}, opens: map[string]int{}, sends: map[string]int{}}
		t.Run(fmt.Sprint(place), func(t *testing.T) {
			t.Parallel()
			k.prepare(t)
			for round := range size.killRounds / places {
				killed, begun := k.round(t, round)
				if killed {
					dead.Add(1)
				}
				if killed && begun {
					caught.Add(1)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

func (k *killed) command(flags ...any) []string {
	return args("clean", "--db", k.db, "--prefix", "new:", "--execute", "--format", "json", "--quiet", args(flags...))
}

// prepare has the binary itself name what is due, and measures each scene.
func (k *killed) prepare(t *testing.T) {
	t.Helper()
	o := newOperator(t)
	for _, kind := range aggregates {
		load(t, k.d, k.db, kind, "due:"+kind, 5)
	}
	o.run(t, "clean", "--url", k.d.url(), "--db", fmt.Sprint(k.db), "--prefix", "due:", "--keep-for", "1ms", "--execute").exit(0)
	for _, name := range k.d.masters[0].names(t, k.db) {
		k.due[name] = strings.TrimPrefix(original(name), "due:")
	}
	if len(k.due) != len(aggregates) {
		t.Fatalf("%d keys were to be kept: %v", len(aggregates), k.due)
	}
	k.load(t)
	for _, v := range k.victims {
		if k.before[v].kind == "list" {
			k.d.masters[0].do(t, k.db, "LTRIM", v.name, -killKeep, -1)
		}
	}
	k.trimmed = only(k.digest(t), func(name string) bool { return !isTrash(name) })
	for _, scene := range killScenes {
		k.load(t)
		p := startProxy(t, k.d.masters[0], nil, nil)
		undisturbed := o.run(t, k.command("--url", "redis://"+p.addr, scene.flags)...).exit(0)
		sent := p.passed()
		tries := slices.Index(sent, "scan") + 1 // to see whether it may
		k.sends[scene.name], k.opens[scene.name] = len(sent), tries+slices.Index(sent[tries:], "scan")
		k.ends(t, scene, undisturbed)
		k.load(t)
		k.took[scene.name] = o.run(t, k.command("--url", k.d.url(), scene.flags)...).exit(0).took
	}
}

// load fills the database as it is before each run.
func (k *killed) load(t *testing.T) {
	t.Helper()
	m := k.d.masters[0]
	m.do(t, k.db, "FLUSHDB")
	l := newLoader(t, m.addr, k.db)
	k.victims = nil
	for i := range 12 {
		kind, n := kinds[i%len(kinds)], killElements
		if i >= len(kinds) {
			n = 1 + i
		}
		name := fmt.Sprintf("new:%s:%d", kind, i)
		l.fill(kind, name, n)
		if i%2 == 0 {
			l.cmd("EXPIREAT", name, killExpiry) // at each load the same
		}
		k.victims = append(k.victims, keyID{k.db, name})
	}
	for name, kind := range k.due {
		l.fill(kind, name, killElements)
	}
	for i := range killNeighbours {
		l.fill(kinds[i%len(kinds)], fmt.Sprintf("bystander:%d", i), 1+i%9)
	}
	l.close()
	k.before = only(k.digest(t), func(name string) bool { return !isTrash(name) })
}

func (k *killed) digest(t *testing.T) digest {
	t.Helper()
	out := digest{}
	m := k.d.masters[0]
	m.imprints(t, k.db, m.names(t, k.db), out)
	return out
}

// round kills one run and lets another one finish. It tells whether the first
// was killed before its end, and whether it had begun with a key.
func (k *killed) round(t *testing.T, round int) (dead, begun bool) {
	t.Helper()
	scene := killScenes[round%len(killScenes)]
	o := newOperator(t)
	k.load(t)
	dead, where := k.kill(t, o, scene, round%3 == 0)

	mid := k.digest(t)
	isNeighbour := func(name string) bool { return strings.HasPrefix(name, "bystander:") }
	mustEqual(t, only(k.before, isNeighbour), only(mid, isNeighbour))
	half := strangers(k.before, mid)
	begun = len(half) > 0 && (len(half) != len(k.due) || len(only(mid, isTrash)) != len(k.due) || mid.elements() != k.whole())
	forgot := round%4 >= 2
	if forgot {
		_ = os.RemoveAll(filepath.Join(o.dir, "keyjanitor-state"))
	}
	second := o.run(t, k.command("--url", k.d.url(), scene.flags)...).exit(0)
	second.summary()
	k.ends(t, scene, second)
	if t.Failed() {
		t.Errorf("round %d, %s, killed %s, state kept %v: in the trash %v\n%v", round, scene.name, where, !forgot, trashSizes(mid, half), second)
	}
	return dead, begun
}

// whole is how many elements there are when nothing was done yet.
func (k *killed) whole() int64 { return k.before.elements() + int64(len(k.due)*killElements) }

// kill starts a run and kills it: at a moment, or at a command.
func (k *killed) kill(t *testing.T, o *operator, scene killScene, atMoment bool) (dead bool, where string) {
	t.Helper()
	if atMoment {
		after := time.Duration(k.rnd.Int64N(int64(k.took[scene.name])))
		first := o.start(t, k.command("--url", k.d.url(), scene.flags)...)
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-first.done:
		}
		first.signal(syscall.SIGKILL)
		<-first.done
		return first.wasKilled(), fmt.Sprint("after ", after)
	}
	// One in eight falls where nothing is done yet.
	at := k.opens[scene.name] + k.rnd.IntN(k.sends[scene.name]-k.opens[scene.name])
	if k.rnd.IntN(8) == 0 {
		at = k.rnd.IntN(k.opens[scene.name])
	}
	meets := []fate{lost, unanswered}[k.rnd.IntN(2)]
	runs := make(chan *running, 1)
	p := startProxy(t, k.d.masters[0], nil, func(c *passing) fate {
		if c.n < at {
			return passes
		}
		c.then = func() {
			first := <-runs
			runs <- first
			first.signal(syscall.SIGKILL)
			<-first.done
		}
		return meets
	})
	first := o.start(t, k.command("--url", "redis://"+p.addr, scene.flags)...)
	runs <- first
	<-first.done
	return first.wasKilled(), fmt.Sprintf("at command %d, server has it: %v", at, meets == unanswered)
}

// wasKilled: the run did not come to its end before.
func (r *running) wasKilled() bool { return r.cmd.ProcessState.ExitCode() == -1 }

// ends fails unless the database is what a run that nobody disturbed leaves.
func (k *killed) ends(t *testing.T, scene killScene, last result) {
	t.Helper()
	if scene.trims {
		mustEqual(t, k.trimmed, only(k.digest(t), func(name string) bool { return !isTrash(name) }))
	} else {
		mustBeGone(t, k.before, k.digest(t), k.victims, scene.kept)
	}
	if n := last.summary().Outcomes["failed"]; n != 0 {
		last.error("failed %d", n)
	}
}
