package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/internal/topology"
	"github.com/keyjanitor/keyjanitor/throttle"
)

// sampleEvery is how often a server's health is looked at.
const sampleEvery = time.Second

// Signals that are not the server's.
const (
	signalFlagFile = "flag_file"
	signalWindow   = "only_between"
	signalPaused   = "paused"
	// What stop_when says of files and times is another thing than what
	// hold_when says of them.
	stopping = "stop_when "
)

// linesOf are the lines that a configuration draws. What writes nothing
// disturbs no replica and no snapshot: those lines are for runs that act.
func linesOf(s config.Signals, acts bool) []throttle.Line {
	var lines []throttle.Line
	number := func(signal string, limit float64, text string) {
		if limit > 0 {
			lines = append(lines, throttle.Line{Signal: signal, Limit: limit, Text: text})
		}
	}
	flag := func(signal string, on bool) {
		if on {
			lines = append(lines, throttle.Line{Signal: signal})
		}
	}
	size := func(s config.Size) string { return humanize.IBytes(uint64(max(0, s))) }
	if acts {
		number(topology.SignalReplicaLag, time.Duration(s.ReplicaLag).Seconds(), s.ReplicaLag.String())
		number(topology.SignalReplicaLagBytes, float64(s.ReplicaLagBytes), size(s.ReplicaLagBytes))
		number(topology.SignalReplicaBuffers, float64(s.ReplicaBuffers), size(s.ReplicaBuffers))
		number(topology.SignalAOFGrowth, float64(s.AOFGrowth), size(s.AOFGrowth))
		number(topology.SignalLazyfree, float64(s.LazyfreePending), humanize.Comma(s.LazyfreePending))
		number(topology.SignalEvictions, float64(s.Evictions), humanize.Comma(s.Evictions))
		number(topology.SignalMemory, float64(s.Memory), s.Memory.String())
		flag(topology.SignalReplicaLost, s.ReplicaLost)
		flag(topology.SignalSnapshot, s.Snapshot)
	}
	number(topology.SignalPing, time.Duration(s.Ping).Seconds(), s.Ping.String())
	number(topology.SignalOps, float64(s.OpsPerSecond), humanize.Comma(s.OpsPerSecond))
	number(topology.SignalCPU, float64(s.CPU), s.CPU.String())
	flag(topology.SignalLoading, s.Loading)
	flag(topology.SignalClusterDown, s.ClusterDown)
	flag(throttle.SignalRefused, s.Refused)
	flag(signalFlagFile, s.FlagFile != "")
	flag(signalWindow, len(s.OnlyBetween) > 0)
	return lines
}

// health makes the judge of the shard's server, takes the first sample, and
// goes on sampling until the worker is closed.
func (k *worker) watchHealth(ctx context.Context) error {
	acts := k.Mode == Execute
	hold := append(linesOf(k.HoldWhen, acts), throttle.Line{Signal: signalPaused})
	stop := linesOf(k.StopWhen, acts)
	for i := range stop {
		if s := stop[i].Signal; s == signalFlagFile || s == signalWindow {
			stop[i].Signal = stopping + s
		}
	}
	k.health = throttle.NewHealth(hold, stop)
	k.mu.Lock()
	replicas, known := k.replicaCounts[k.shard.ID]
	if !known {
		replicas = -1
	}
	sampler := topology.NewSampler(k.shard, replicas)
	k.mu.Unlock()
	if err := k.sample(ctx, sampler); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	unlisten := k.Control.listen(k.reconsider)
	k.unwatch = func() { unlisten(); cancel() }
	go func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		failed := 0
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			err := k.sample(ctx, sampler)
			if failed++; err == nil || ctx.Err() != nil {
				failed = 0
				continue
			}
			// What held goes on to hold: a command that is sent to a server that
			// stands still is carried out when it goes on. In the end the work
			// ends with the error.
			k.reconsider()
			if failed >= 3 {
				k.health.Lose(err)
			}
		}
	}()
	return nil
}

// sample judges the vitals of now. It also takes over what was set by hand: a
// drain may go on for hours.
func (k *worker) sample(ctx context.Context, sampler *topology.Sampler) error {
	read, whole, err := sampler.Sample(ctx)
	if err != nil {
		return err
	}
	k.judging.Lock()
	defer k.judging.Unlock()
	k.repace()
	vitals := throttle.Vitals{}
	for signal, v := range read {
		vitals[signal] = throttle.Reading{Value: v.Value, Words: v.Words}
	}
	maps.Copy(vitals, k.ownVitals(time.Now()))
	k.mu.Lock()
	k.replicaCounts[k.shard.ID] = sampler.Replicas()
	k.mu.Unlock()
	if whole {
		k.tellHolds(k.health.Take(vitals, time.Now()))
		return nil
	}
	k.health.Lose(nil)
	k.tellHolds(k.health.TakeSome(vitals, time.Now()))
	return nil
}

// reconsider judges what people say by now, at once: what the server said last
// still counts.
func (k *worker) reconsider() {
	k.judging.Lock()
	defer k.judging.Unlock()
	k.repace()
	k.tellHolds(k.health.TakeSome(k.ownVitals(time.Now()), time.Now()))
}

// tellHolds tells what begins and what ends to hold, and ends the run where
// something is over the line for that.
func (k *worker) tellHolds(begun, ended []string) {
	where := []any{"job", cmp.Or(k.Job.Name, "-"), "shard", k.shard.ID}
	if k.shard.Server.Cluster { // its shards have the names of nodes
		where = append(where, "addr", k.shard.Addr)
	}
	for _, reason := range begun {
		k.Log.Warn("held", append(where, "reason", reason)...)
	}
	for _, reason := range ended {
		k.Log.Info("no longer held", append(where, "reason", reason)...)
	}
	k.Progress.hold(k.shard, k.health.Reasons())
	if reason := k.health.Critical(); reason != "" {
		k.allow.end("stop_when: "+reason, true)
		k.cancel(ErrLimit)
	}
}

// ownVitals are the signals that people give.
func (k *worker) ownVitals(now time.Time) throttle.Vitals {
	v := throttle.Vitals{
		signalPaused:   {},
		signalFlagFile: flagOf(k.HoldWhen.FlagFile), stopping + signalFlagFile: flagOf(k.StopWhen.FlagFile),
		signalWindow: {}, stopping + signalWindow: {},
	}
	if zone, err := k.Job.Location(); err == nil {
		v[signalWindow] = windowOf(k.HoldWhen.OnlyBetween, now.In(zone))
		v[stopping+signalWindow] = windowOf(k.StopWhen.OnlyBetween, now.In(zone))
	}
	if why := k.Control.Paused(); why != "" {
		v[signalPaused] = throttle.Reading{Value: 1, Words: why}
	}
	return v
}

// flagOf reads a flag file. One that can't be looked for is taken to be there.
func flagOf(file string) throttle.Reading {
	if file == "" {
		return throttle.Reading{}
	}
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return throttle.Reading{}
	}
	return throttle.Reading{Value: 1, Words: "the flag file " + file + " is there"}
}

// windowOf reads whether a time is outside of all windows, where there are any.
func windowOf(windows []config.Window, now time.Time) throttle.Reading {
	if len(windows) == 0 || slices.ContainsFunc(windows, func(w config.Window) bool { return w.Contains(now) }) {
		return throttle.Reading{}
	}
	texts := make([]string, len(windows))
	for i, w := range windows {
		texts[i] = w.String()
	}
	return throttle.Reading{Value: 1, Words: fmt.Sprintf("it is %s, not between %s %s",
		now.Format("15:04"), strings.Join(texts, " or "), now.Location())}
}

// holdsInto adds to a run's summary what the shard waited for, and what could
// not be known.
func (k *worker) holdsInto(s *Summary) {
	if k.health == nil {
		return
	}
	for _, h := range k.health.Holds() {
		seconds := h.Took.Round(time.Millisecond).Seconds()
		switch {
		case seconds == 0: // it ended the run, too
		case s.ActSummary != nil:
			s.Holds = append(s.Holds, Hold{Signal: h.Signal, Shard: k.shard.ID, Addr: k.shard.Addr, Reason: h.Reason, Seconds: seconds})
		default:
			s.Notes = append(s.Notes, fmt.Sprintf("shard %s: held %s: %s", k.shard.ID, h.Took.Round(time.Second/10), h.Reason))
		}
	}
	if unknown := k.health.Unknown(); len(unknown) > 0 {
		note := fmt.Sprintf("shard %s: the server does not show %s, which hold nothing here", k.shard.ID, strings.Join(unknown, ", "))
		if !slices.Contains(s.Notes, note) { // by a worker that took over
			s.Notes = append(s.Notes, note)
		}
	}
}
