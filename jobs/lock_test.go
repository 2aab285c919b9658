package jobs

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/throttle"
)

func TestIsLockName(t *testing.T) {
	for name, want := range map[string]bool{
		"keyjanitor:lock:nightly":                    true,
		"keyjanitor:lock:A-z_0.9":                    true,
		"keyjanitor:lock:" + strings.Repeat("x", 64): true,
		"keyjanitor:lock:" + strings.Repeat("x", 65): false,
		"keyjanitor:lock:a/1-of-3":                   true,
		"keyjanitor:lock:a/1-of-":                    false,
		"keyjanitor:lock:a/b":                        false,
		"keyjanitor:lock:/1-of-3":                    false,
		"keyjanitor:lock:":                           false,
		"keyjanitor:lock:a b":                        false,
		"keyjanitor:lock:a:b":                        false,
		"keyjanitor:lock:\xff":                       false,
		"keyjanitor:lock:a\n":                        false,
		"keyjanitor:lock":                            false,
		"x:keyjanitor:lock:a":                        false,
		"Keyjanitor:lock:a":                          false,
		"session:1":                                  false,
		"":                                           false,
	} {
		if got := isLockName(name); got != want {
			t.Errorf("%q is a lock: %t, want %t", name, got, want)
		}
	}
}

// Our own names are selected by nothing and protected from everything, those
// of others that only look alike are not.
func TestOwnNames(t *testing.T) {
	w := &run{Runner: &Runner{Protect: []string{"session:*", "[ab]"}}, namer: deleter.NewNamer(topology.Slot)}
	trash := "keyjanitor:trash:{" + w.namer.Tag(topology.Slot("k")) + "}:1:d:0:-1:job:0123456789abcdef:k"
	for name, want := range map[string][2]bool{ // own, protected
		"keyjanitor:lock:a":                     {true, true},
		trash:                                   {true, true},
		strings.Replace(trash, "1:d", "1:x", 1): {false, false},
		"keyjanitor:trash:notes":                {false, false},
		"session:1":                             {false, true},
		"a":                                     {false, true},
		"c":                                     {false, false},
	} {
		if got := [2]bool{w.own(name), w.protected(name)}; got != want {
			t.Errorf("%q: own and protected are %t, want %t", name, got, want)
		}
	}
}

// Ownership ends by our own clock 13 s after the last renewal was sent,
// before the server lets another in.
func TestLeaseIsTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{start: time.Now()}
		if l.held() {
			t.Error("held before it was taken")
		}
		sent := time.Now()
		time.Sleep(2 * time.Second) // the reply took long
		l.trust(sent)
		gate := leased{throttle.New(throttle.Options{Target: time.Millisecond, Share: 1}), l, new(atomic.Int64)}
		for !time.Now().Equal(sent.Add(lockTrust)) {
			if err := gate.Wait(context.Background(), 1, 1, 1); err != nil {
				t.Fatalf("%v after %v", err, time.Since(sent))
			}
			time.Sleep(time.Second)
		}
		if l.held() || time.Since(sent) >= lockTTL {
			t.Errorf("held %v after the renewal was sent", time.Since(sent))
		}
		if err := gate.Wait(context.Background(), 1, 1, 1); !errors.Is(err, ErrLockLost) {
			t.Errorf("the gate says %v, want ErrLockLost", err)
		}
	})
}

// A run without a lock needs none; one that is told to stop says so.
func TestGateOfNoLease(t *testing.T) {
	gate := leased{throttle.New(throttle.Options{Target: time.Millisecond, Share: 1}), nil, new(atomic.Int64)}
	if err := gate.Wait(t.Context(), 1, 1, 1); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := gate.Wait(ctx, 1, 1, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("the gate says %v, want context.Canceled", err)
	}
}

func TestLockWithoutAnOwner(t *testing.T) {
	shards := []*topology.Shard{
		{Err: errors.New("down")},
		{Server: topology.Server{Cluster: true}, Slots: []topology.SlotRange{{First: 1, Last: 0}}},
	}
	_, err := takeLease(t.Context(), shards, "nightly", 0, nil, func(error) {})
	if err == nil || !strings.Contains(err.Error(), "keyjanitor:lock:nightly") || errors.Is(err, ErrBusy) {
		t.Errorf("error %v", err)
	}
}

// A drain is seen to go on; nothing else is counted by the gate.
func TestDrainsAreCountedAsTheyGo(t *testing.T) {
	var n atomic.Int64
	gate := leased{throttle.New(throttle.Options{Target: time.Millisecond, Share: 1}), nil, &n}
	gate.Observe("drain hash", 500, time.Millisecond)
	gate.Observe("drain list", 20, time.Millisecond)
	gate.Observe("remove", 7, time.Millisecond)
	if n.Load() != 520 {
		t.Errorf("%d elements are counted, want 520", n.Load())
	}
	w, k := newRun(&script{}, Execute, config.Limits{})
	k.count(&deleter.Result{Outcome: deleter.Drained, Method: deleter.Drain, Elements: 520})
	k.count(&deleter.Result{Outcome: deleter.Unlinked, Method: deleter.Unlink, Elements: 3})
	if got := w.Progress.Elements.Load(); got != 3 || k.elements != 523 {
		t.Errorf("progress counts %d besides, the summary %d", got, k.elements)
	}
}
