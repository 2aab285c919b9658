package integration

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// noUnlinkOn sets a server up so that big keys are drained.
func noUnlinkOn(b serverBinary) []option {
	if b.hasUnlink() {
		return []option{noUnlink, slow20ms}
	}
	return []option{slow20ms}
}

// slowClean drains the big keys slowly enough to be caught at it.
func slowClean(d *deployment, pace int) []string {
	return args("clean", "--url", d.url(), "--all-keys", atLeast(size.threshold),
		"--elements-per-second", pace, "--execute", "--format", "json")
}

// reseedBig loads the big keys again.
func reseedBig(t *testing.T, d *deployment, set dataSet) {
	t.Helper()
	for _, k := range set.big {
		load(t, d, k.db, k.kind, k.name, int(k.elements))
	}
}

// TestKill9 kills a run at random moments. The run after it, under the same
// rule, finishes what was begun, though what is left in the trash no longer
// meets min_elements. Half of the time the state directory is gone, too: then
// the scan alone must find the trash.
func TestKill9(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, noUnlinkOn(b)...)
		killRounds(t, d, size.bigKills)
	})
}

func killRounds(t *testing.T, d *deployment, rounds int) {
	t.Helper()
	set := seed(t, d, size.bystanders)
	before := digestOf(t, d)
	span := time.Duration(set.elements()) * time.Second / time.Duration(size.killPace)
	rnd := seeded(t)
	caught := 0
	for round := range rounds {
		o := newOperator(t)
		first := o.start(t, slowClean(d, size.killPace)...)
		// Evenly over the time that the drain takes, start-up included.
		timer := time.NewTimer(time.Duration(rnd.Int64N(int64(span))))
		select {
		case <-timer.C:
		case <-first.done:
		}
		first.signal(syscall.SIGKILL)
		<-first.done
		mid := digestOf(t, d)
		// What has no place there is trash; everything else is untouched.
		left := strangers(before, mid)
		for k, was := range before {
			is, there := mid[k]
			if isBig(set, k) {
				if there && is != was && is.sum != was.sum {
					t.Errorf("round %d: %v was drained under its own name: %d elements left", round, k, is.elements)
				}
			} else if !there || is.sum != was.sum {
				t.Errorf("round %d: %v was touched", round, k)
			}
		}
		forgot := round%2 == 1
		if forgot && len(left) > 0 {
			o.forget(t)
		}
		second := o.run(t, slowClean(d, 100*size.killPace)...).exit(0)
		after := digestOf(t, d)
		mustEqual(t, before, after, set.ids()...)
		s := second.summary()
		if s.Outcomes["finished"] < int64(len(left)) {
			second.error("round %d: %d keys were left in the trash, finished says %d", round, len(left), s.Outcomes["finished"])
		}
		if s.Outcomes["failed"] != 0 {
			second.error("round %d: failed %d", round, s.Outcomes["failed"])
		}
		if len(left) > 0 {
			caught++
		}
		t.Logf("round %d: killed after %v, in the trash %v, state kept %v, second run %v: %v", round,
			time.Since(first.started).Round(time.Millisecond), trashSizes(mid, left), !forgot, second.took.Round(time.Millisecond), s.Outcomes)
		if t.Failed() {
			return
		}
		reseedBig(t, d, set)
		if again := digestOf(t, d); len(again) != len(before) {
			t.Fatalf("%d keys loaded again, want %d", len(again), len(before))
		}
	}
	if caught == 0 {
		t.Error("no round killed a drain: the test proves nothing")
	}
}

func isBig(set dataSet, k keyID) bool {
	for _, b := range set.big {
		if b.keyID == k {
			return true
		}
	}
	return false
}

func trashSizes(d digest, keys []keyID) (out []string) {
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%s of %d", d[k].kind, d[k].elements))
	}
	return out
}

// TestKill9ThenLess kills a run when a drain has gone far: what is left is
// far below the threshold, and only its name says that it has to go.
func TestKill9ThenLess(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, kind := range aggregates {
			for _, state := range []string{"state kept", "state lost"} {
				t.Run(kind+" "+state, func(t *testing.T) {
					d := standalone(t, b, noUnlinkOn(b)...)
					load(t, d, 0, kind, "big", 30_000)
					bystand(t, d, 0, 50)
					before := digestOf(t, d)
					o := newOperator(t)
					base := args("clean", "--url", d.url(), "--all-keys", "--min-elements", "20000", "--execute", "--format", "json")
					first := o.start(t, args(base, "--elements-per-second", "20000")...)
					var left keyID
					eventually(t, 20*time.Second, "less than the threshold is left", func() bool {
						now := digestOf(t, d)
						if s := strangers(before, now); len(s) == 1 {
							left = s[0]
							return now[left].elements < 15_000
						}
						return first.ended()
					})
					first.signal(syscall.SIGKILL)
					<-first.done
					if now := digestOf(t, d); now[left].elements == 0 {
						t.Fatal("the drain was over before it could be killed")
					}
					if state == "state lost" {
						o.forget(t)
					}
					// Reporting does not touch what is left.
					mid := digestOf(t, d)
					o.run(t, "clean", "--url", d.url(), "--all-keys", "--min-elements", "20000", "--format", "json").exit(0)
					o.run(t, "scan", "--url", d.url(), "--format", "json").exit(0)
					mustEqual(t, mid, digestOf(t, d))

					s := o.run(t, base...).exit(0).summary()
					mustEqual(t, before, digestOf(t, d), keyID{0, "big"})
					s.outcomes(map[string]int64{"finished": 1})
				})
			}
		}
	})
}

// TestSignals: the batch at hand is finished, the report is written, and the
// status says which signal it was.
func TestSignals(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, c := range []struct {
			sig  syscall.Signal
			code int
		}{{syscall.SIGTERM, 143}, {syscall.SIGINT, 130}} {
			t.Run(c.sig.String(), func(t *testing.T) {
				d := standalone(t, b, noUnlinkOn(b)...)
				set := seed(t, d, size.bystanders)
				before := digestOf(t, d)
				o := newOperator(t)
				r := o.start(t, slowClean(d, 10_000)...)
				eventually(t, 30*time.Second, "a key is set aside", func() bool {
					return len(strangers(before, digestOf(t, d))) > 0 || r.ended()
				})
				sent := time.Now()
				r.signal(c.sig)
				res := r.wait()
				if took := time.Since(sent); took > 2*time.Second {
					res.error("ended %v after the signal", took)
				}
				res.exit(c.code)
				s := res.summary()
				s.complete(false)
				if s.ElementsRemoved == nil {
					res.error("elements_removed is missing")
				}
				// What the report says was removed is what is missing.
				var there int64
				for k, im := range digestOf(t, d) {
					if isBig(set, k) || len(strangers(before, digest{k: im})) > 0 {
						there += im.elements
					}
				}
				if gone := set.elements() - there; s.ElementsRemoved != nil && *s.ElementsRemoved != gone {
					res.error("elements_removed %d, %d are gone", *s.ElementsRemoved, gone)
				}
				left := len(strangers(before, digestOf(t, d)))
				s = o.run(t, slowClean(d, 100*size.killPace)...).exit(0).summary()
				if s.Outcomes["finished"] != int64(left) {
					s.from.error("%d were left, finished is %d", left, s.Outcomes["finished"])
				}
				mustEqual(t, before, digestOf(t, d), set.ids()...)
			})
		}
	})
}

// A server that dies under a run is a failure that the next run mends.
func TestServerDies(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, noUnlinkOn(b)...)
		seed(t, d, size.bystanders)
		before := digestOf(t, d)
		o := newOperator(t)
		r := o.start(t, slowClean(d, 10_000)...)
		eventually(t, 30*time.Second, "a key is set aside", func() bool {
			return len(strangers(before, digestOf(t, d))) > 0 || r.ended()
		})
		d.masters[0].stop()
		gone := time.Now()
		res := r.wait().exit(1, 3)
		if took := time.Since(gone); took > 30*time.Second {
			res.error("held on to a dead server for %v", took)
		}
		if res.stderr == "" {
			res.error("says nothing about the dead server")
		}
		s := res.summary()
		s.complete(false)
	})
}
