package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// Daemon runs jobs on their schedules. Each job has one goroutine that both
// waits and runs, so a job never overlaps itself; times that pass while it
// runs are skipped, and told.
type Daemon struct {
	Log  *slog.Logger
	Jobs []config.Job
	Fire func(ctx context.Context, j config.Job)
}

// recheck is how long a wait may go without a look at the clock: a timer does
// not notice that the machine slept or that its clock was set.
const recheck = 30 * time.Second

// Check reports a job whose schedule can't be kept.
func (d *Daemon) Check() error {
	for _, j := range d.Jobs {
		if j.Schedule == "" {
			continue
		}
		if _, err := NewSchedule(j); err != nil {
			return err
		}
	}
	return nil
}

// Run fires jobs until waiting is done, and returns when every job that was
// running has. What it fires is given ctx.
func (d *Daemon) Run(waiting, ctx context.Context) {
	var wg sync.WaitGroup
	for _, j := range d.Jobs {
		if when, err := NewSchedule(j); j.Schedule != "" && err == nil {
			wg.Go(func() { d.loop(waiting, ctx, j, when) })
		}
	}
	wg.Wait()
}

func (d *Daemon) loop(waiting, ctx context.Context, j config.Job, when cron.Schedule) {
	for t := (timetable{when: when, due: when.Next(time.Now())}); ; {
		timer := time.NewTimer(max(0, min(time.Until(t.due), recheck)))
		select {
		case <-waiting.Done():
		case <-timer.C:
		}
		timer.Stop()
		if waiting.Err() != nil {
			return
		}
		// Round strips the monotonic reading: the wall clock decides.
		if !t.look(time.Now().Round(0)) {
			continue
		}
		d.fire(ctx, j)
		if skipped := t.ran(time.Now().Round(0)); skipped > 0 {
			d.Log.Warn("times passed while the job ran or the machine slept", "job", j.Name, "skipped", skipped)
		}
	}
}

// timetable is when a job is due next, whatever happens to the clock.
type timetable struct {
	when cron.Schedule
	due  time.Time
	last time.Time // what was due when the job last ran
}

// A clock that is set back by less than setBack was corrected: a job at a
// fixed time that has run is not run again, as cron(8) has it. Jobs of every
// hour or interval go by the new time at once.
const setBack = 3 * time.Hour

// look reports whether the job is due. It finds the due time anew where the
// clock was set back.
func (t *timetable) look(now time.Time) bool {
	if !now.Before(t.due) {
		return true
	}
	from := now
	if _, fixed := t.when.(wallClock); fixed && t.last.After(now) && t.last.Sub(now) < setBack {
		from = t.last
	}
	if next := t.when.Next(from); next.Before(t.due) {
		t.due = next
	}
	return false
}

// mostSkipped bounds what a clock that was set a year forward costs.
const mostSkipped = 1000

// ran sets the next due time after a run that ended now, and returns how many
// passed meanwhile.
func (t *timetable) ran(now time.Time) (skipped int) {
	t.last = t.due
	for t.due = t.when.Next(t.due); t.due.Before(now); t.due = t.when.Next(t.due) {
		if skipped++; skipped == mostSkipped {
			t.due = t.when.Next(now)
			break
		}
	}
	return skipped
}

// fire runs a job once. A panic ends that run and nothing else.
func (d *Daemon) fire(ctx context.Context, j config.Job) {
	defer func() {
		if p := recover(); p != nil {
			d.Log.Error("job panicked", "job", j.Name, "reason", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	d.Fire(ctx, j)
}
