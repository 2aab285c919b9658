package config

import (
	"fmt"
	"strings"
	"time"
)

// Signals are lines that signals of a server's health must not exceed. A
// zero field is no line.
type Signals struct {
	ReplicaLag      Duration // since a replica last spoke
	ReplicaLagBytes Size     // that a replica is behind
	ReplicaLost     bool     // fewer replicas than when the run began
	ReplicaBuffers  Size     // that wait to be sent to replicas
	Snapshot        bool     // BGSAVE or an AOF rewrite goes on
	AOFGrowth       Size     // of the AOF since the run began or the last rewrite
	LazyfreePending int64    // unlinked keys that are not free yet
	Ping            Duration // that a PING takes
	OpsPerSecond    int64    // of all clients
	CPU             Percent  // of one core
	Evictions       int64    // keys a second
	Memory          Percent  // of maxmemory
	Loading         bool     // the server reads its data
	ClusterDown     bool     // the cluster's state is not ok
	Refused         bool     // the server refuses commands for now
	FlagFile        string   // while a file of this name exists
	OnlyBetween     []Window // outside of all of them, by the job's clock
}

// DefaultHoldWhen is what holds a run where a file says nothing: what a
// replica, a fork or a client would suffer from. What is only load, operations
// or CPU, has no line: the shares of pace see to that.
func DefaultHoldWhen() Signals {
	return Signals{
		ReplicaLag: Duration(5 * time.Second), ReplicaLagBytes: 64 << 20, ReplicaLost: true, ReplicaBuffers: 64 << 20,
		Snapshot: true, LazyfreePending: 1000, Ping: Duration(100 * time.Millisecond), Loading: true, ClusterDown: true, Refused: true,
	}
}

// Window is a part of the day, which may go over midnight.
type Window struct{ From, To time.Duration } // since midnight

// String writes what ParseWindow reads.
func (w Window) String() string {
	clock := func(d time.Duration) string {
		return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
	}
	return clock(w.From) + "-" + clock(w.To)
}

// Contains reports whether a time of its location is within the window.
func (w Window) Contains(t time.Time) bool {
	at := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second
	if w.From <= w.To {
		return w.From <= at && at < w.To
	}
	return at >= w.From || at < w.To
}

// ParseWindow reads 01:00-05:00.
func ParseWindow(text string) (Window, error) {
	from, to, _ := strings.Cut(text, "-")
	clock := func(text string) (time.Duration, bool) {
		t, err := time.Parse("15:04", text)
		if text == "24:00" {
			return 24 * time.Hour, true
		}
		return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err == nil && len(text) == 5
	}
	a, ok1 := clock(from)
	b, ok2 := clock(to)
	if !ok1 || !ok2 || a == b {
		why := "both times are from 00:00 to 24:00, as hours and minutes of two digits each, with a - between them"
		if ok1 && ok2 {
			why = "it ends when it begins; leave only_between out for the whole day"
		}
		return Window{}, fmt.Errorf(`%s is no part of a day: %s; write one such as "01:00-05:00", or "22:00-04:00" over midnight`, shown(text), why)
	}
	return Window{a, b}, nil
}

func (d *decoder) signals(n *node, path string, s *Signals) {
	d.mapping(n, path, path+": {replica_lag: 5s}", nil,
		key{"replica_lag", func(n *node, path string) { s.ReplicaLag = d.duration(n, path) }},
		key{"replica_lag_bytes", func(n *node, path string) { s.ReplicaLagBytes = d.size(n, path) }},
		key{"replica_lost", func(n *node, path string) { s.ReplicaLost = d.boolean(n, path) }},
		key{"replica_buffers", func(n *node, path string) { s.ReplicaBuffers = d.size(n, path) }},
		key{"snapshot", func(n *node, path string) { s.Snapshot = d.boolean(n, path) }},
		key{"aof_growth", func(n *node, path string) { s.AOFGrowth = d.size(n, path) }},
		key{"lazyfree_pending", func(n *node, path string) { s.LazyfreePending = d.count(n, path) }},
		key{"ping", func(n *node, path string) { s.Ping = d.duration(n, path) }},
		key{"ops_per_second", func(n *node, path string) { s.OpsPerSecond = d.count(n, path) }},
		key{"cpu", func(n *node, path string) { s.CPU = d.percentOrNone(n, path) }},
		key{"evictions", func(n *node, path string) { s.Evictions = d.count(n, path) }},
		key{"memory", func(n *node, path string) { s.Memory = d.percentOrNone(n, path) }},
		key{"loading", func(n *node, path string) { s.Loading = d.boolean(n, path) }},
		key{"cluster_down", func(n *node, path string) { s.ClusterDown = d.boolean(n, path) }},
		key{"refused", func(n *node, path string) { s.Refused = d.boolean(n, path) }},
		key{"flag_file", func(n *node, path string) { s.FlagFile, _ = d.text(n, path) }},
		key{"only_between", func(n *node, path string) {
			s.OnlyBetween = nil
			d.each(n, path, `["01:00-05:00"]`, func(n *node, path string) {
				s.OnlyBetween = append(s.OnlyBetween, measure(d, n, path, `a part of the day such as "01:00-05:00"`, ParseWindow))
			})
		}},
	)
}

// Problems checks the lines.
func (s Signals) Problems() []Problem {
	ps := negative("replica_lag", s.ReplicaLag, s.ReplicaLag < 0)
	ps = append(ps, negative("replica_lag_bytes", s.ReplicaLagBytes, s.ReplicaLagBytes < 0)...)
	ps = append(ps, negative("replica_buffers", s.ReplicaBuffers, s.ReplicaBuffers < 0)...)
	ps = append(ps, negative("aof_growth", s.AOFGrowth, s.AOFGrowth < 0)...)
	ps = append(ps, negative("lazyfree_pending", s.LazyfreePending, s.LazyfreePending < 0)...)
	ps = append(ps, negative("ping", s.Ping, s.Ping < 0)...)
	ps = append(ps, negative("ops_per_second", s.OpsPerSecond, s.OpsPerSecond < 0)...)
	return append(ps, negative("evictions", s.Evictions, s.Evictions < 0)...)
}
