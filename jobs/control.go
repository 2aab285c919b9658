package jobs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// ErrStopped: an operator ended the run.
var ErrStopped = errors.New("stopped by an operator")

// Control is how people steer the runs of a process while they go on. The
// zero value steers nothing, and nil nobody. It is safe for concurrent use.
type Control struct {
	Pace config.Pace // that the configuration gives; for the time before it is used

	mu      sync.Mutex
	paused  string
	pace    *config.Pace // instead of the configuration's; nil: that
	version int          // of pace
	runs    []*run
	// What each shard's work does when something was said.
	listeners map[int]func()
	listened  int
}

// RunState is one run at a moment.
type RunState struct {
	Job         string    `json:"job,omitempty"`
	Target      string    `json:"target"`
	Mode        string    `json:"mode"`
	Started     time.Time `json:"started"`
	KeysTotal   int64     `json:"keys_total"`
	KeysScanned int64     `json:"keys_scanned"`
	KeysMatched int64     `json:"keys_matched"`
	KeysActed   int64     `json:"keys_acted"`
	Elements    int64     `json:"elements_removed"`
	Shards      int64     `json:"shards"`
	Held        []string  `json:"held"`  // reasons, of all shards
	Holds       []Wait    `json:"holds"` // the shards that wait now
	MaxShare    string    `json:"max_share"`
	ScanShare   string    `json:"scan_share"`
	Latency     string    `json:"target_latency"`
	// Of the whole run; 0 is no budget.
	CommandsPerSecond int64 `json:"commands_per_second"`
	ElementsPerSecond int64 `json:"elements_per_second"`
	BytesPerSecond    int64 `json:"bytes_per_second"`
}

// Pause holds all runs, for a reason in words, until Resume.
func (c *Control) Pause(why string) {
	c.mu.Lock()
	c.paused = why
	c.mu.Unlock()
	c.tell()
}

// listen has fn called whenever something else than before is said, until the
// function that it returns is called.
func (c *Control) listen(fn func()) (end func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listeners == nil {
		c.listeners = map[int]func(){}
	}
	c.listened++
	id := c.listened
	c.listeners[id] = fn
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, id)
	}
}

func (c *Control) tell() {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.listeners))
	c.mu.Unlock()
	for _, fn := range all { // they ask what was said
		fn()
	}
}

// Resume ends a pause.
func (c *Control) Resume() { c.Pause("") }

// Paused is the reason of the pause; "" where there is none.
func (c *Control) Paused() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}

// SetPace changes what runs may take from servers. Its fields are named and
// written as in a configuration.
func (c *Control) SetPace(fields map[string]string) error {
	if err := c.setPace(fields); err != nil {
		return err
	}
	c.tell()
	return nil
}

func (c *Control) setPace(fields map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pace := c.Pace
	if c.pace != nil {
		pace = *c.pace
	}
	for name, value := range fields {
		change, err := PaceChange(name, value)
		if err != nil {
			return err
		}
		change(&pace)
	}
	if ps := pace.Problems(); len(ps) > 0 {
		return fmt.Errorf("%s: %s", ps[0].Path, ps[0].Message)
	}
	c.pace, c.version = &pace, c.version+1
	return nil
}

// PaceFields are what PaceChange knows.
var PaceFields = []string{"target_latency", "max_share", "scan_share", "commands_per_second", "elements_per_second", "bytes_per_second"}

// PaceChange reads one field of a pace, as a configuration writes it.
func PaceChange(name, value string) (func(*config.Pace), error) {
	var change func(*config.Pace)
	var err error
	switch name {
	case "target_latency":
		var v config.Duration
		v, err = config.ParseDuration(value)
		change = func(p *config.Pace) { p.TargetLatency = v }
	case "max_share", "scan_share":
		var v config.Percent
		v, err = config.ParsePercent(value)
		change = func(p *config.Pace) { p.MaxShare = v }
		if name == "scan_share" {
			change = func(p *config.Pace) { p.ScanShare = v }
		}
	case "bytes_per_second":
		var v config.Size
		v, err = config.ParseSize(value)
		change = func(p *config.Pace) { p.BytesPerSecond = v }
	case "commands_per_second", "elements_per_second":
		var v int64
		if v, err = strconv.ParseInt(value, 10, 64); err != nil {
			err = fmt.Errorf("%q is no whole number", value)
		}
		change = func(p *config.Pace) { p.CommandsPerSecond = v }
		if name == "elements_per_second" {
			change = func(p *config.Pace) { p.ElementsPerSecond = v }
		}
	default:
		return nil, fmt.Errorf("%s can't be changed; write one of %s", name, strings.Join(PaceFields, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return change, nil
}

// paced is the pace that was set, if it is another than version seen.
func (c *Control) paced(seen int) (*config.Pace, int) {
	if c == nil {
		return nil, seen
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == seen {
		return nil, seen
	}
	return c.pace, c.version
}

// Stop ends the runs of a job, or all where job is "", after the batch at
// hand. It returns how many that are.
func (c *Control) Stop(job string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, w := range c.runs {
		if job == "" || w.Job.Name == job {
			w.cancel(ErrStopped)
			n++
		}
	}
	return n
}

// Runs are the runs that go on.
func (c *Control) Runs() []RunState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []RunState{}
	for _, w := range c.runs {
		p := w.Progress
		pace := w.Pace
		if c.pace != nil {
			pace = *c.pace
		}
		out = append(out, RunState{
			Job: w.Job.Name, Target: w.Target.Name, Mode: string(w.Mode), Started: w.summary.Started,
			KeysTotal: p.KeysTotal.Load(), KeysScanned: p.KeysScanned.Load(), KeysMatched: p.KeysMatched.Load(),
			KeysActed: p.KeysActed.Load(), Elements: p.Elements.Load(),
			Shards: p.Shards.Load(), Held: reasonsOf(p.Waits()), Holds: p.Waits(),
			MaxShare: pace.MaxShare.String(), ScanShare: pace.ScanShare.String(), Latency: pace.TargetLatency.String(),
			CommandsPerSecond: pace.CommandsPerSecond, ElementsPerSecond: pace.ElementsPerSecond, BytesPerSecond: int64(pace.BytesPerSecond),
		})
	}
	return out
}

// reasonsOf are the reasons of all that waits, each once.
func reasonsOf(waits []Wait) []string {
	out := []string{}
	for _, w := range waits {
		out = append(out, w.Reasons...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// begin takes in a run, until the function that it returns is called.
func (c *Control) begin(w *run) (end func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, w)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs = slices.DeleteFunc(c.runs, func(x *run) bool { return x == w })
	}
}

// repace takes over a pace that was set meanwhile. Its caller judges.
func (k *worker) repace() {
	pace, version := k.Control.paced(k.paced)
	k.paced = version
	if pace == nil {
		return
	}
	k.budget.Set(pace.CommandsPerSecond, 0, 0)
	k.removal.Set(0, pace.ElementsPerSecond, int64(pace.BytesPerSecond))
	shares := []config.Percent{pace.ScanShare, pace.MaxShare}
	for i, g := range k.gates {
		g.SetPace(time.Duration(pace.TargetLatency), float64(shares[i])/100)
	}
}
