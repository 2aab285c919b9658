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

// Daemon runs jobs on their schedules. Each job has
// one goroutine that both waits and runs, so a job never overlaps itself;
// times that pass while it runs are skipped, and told.
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
	for due := when.Next(time.Now()); ; {
		wait := min(time.Until(due), recheck)
		timer := time.NewTimer(max(0, wait))
		select {
		case <-waiting.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		// Round strips the monotonic reading: the wall clock decides.
		now := time.Now().Round(0)
		if now.Before(due) {
			if next := when.Next(now); next.Before(due) {
				due = next // the clock was set back
			}
			continue
		}
		d.fire(ctx, j)
		skipped := 0
		for due = when.Next(due); skipped < 1000 && due.Before(time.Now()); due = when.Next(due) {
			skipped++
		}
		if skipped > 0 {
			d.Log.Warn("times passed while the job ran or the machine slept", "job", j.Name, "skipped", skipped)
			due = when.Next(time.Now())
		}
	}
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

// NewSchedule is when a job is due, in its time zone.
//
// A time that a zone skips in spring is due as soon as the gap is over, and
// one that it has twice in autumn is due once (cron v3 by itself skips the
// one and runs twice on the other). A schedule of every hour follows real
// time instead.
func NewSchedule(j config.Job) (cron.Schedule, error) {
	s, err := config.ParseSchedule(j.Schedule)
	if err != nil {
		return nil, fmt.Errorf("job %q: schedule: %w", j.Name, err)
	}
	zone, err := j.Location()
	if err != nil {
		return nil, fmt.Errorf("job %q: timezone: %w", j.Name, err)
	}
	if spec, ok := s.(*cron.SpecSchedule); ok {
		if everyHour(spec) {
			return inZone{spec, zone}, nil
		}
		return wallClock{spec, zone}, nil
	}
	return s, nil
}

func everyHour(s *cron.SpecSchedule) bool {
	const hours = 1<<24 - 1
	return s.Hour&hours == hours
}

// inZone is a schedule of real time, its fields read in a zone.
type inZone struct {
	spec *cron.SpecSchedule
	zone *time.Location
}

// Next is the next moment after t.
func (s inZone) Next(t time.Time) time.Time { return s.spec.Next(t.In(s.zone)) }

// wallClock is a schedule of what a clock on the wall shows.
type wallClock struct {
	spec *cron.SpecSchedule
	zone *time.Location
}

// Next is the next moment after t at which the wall clock reaches what the
// schedule says. It computes on a clock that has no jumps and shows what the
// wall clock does.
func (s wallClock) Next(t time.Time) time.Time {
	local := t.In(s.zone)
	shown := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
	for {
		shown = s.spec.Next(shown)
		if shown.IsZero() {
			return shown
		}
		// For a time in the gap Date answers one of its edges' offsets: the
		// moment moved by the gap. For a time that comes twice it answers
		// one of the two, and always the same.
		due := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, s.zone)
		if due.After(t) {
			return due
		}
	}
}
