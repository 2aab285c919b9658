package jobs

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// NewSchedule is when a job is due, in its time zone.
//
// A time that a zone skips in spring is due as soon as the gap is over, and
// one that it has twice in autumn is due the first time only (cron v3 by
// itself skips the one and runs twice on the other). A schedule of every hour
// follows real time instead.
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
		due := reached(shown, s.zone)
		if due.After(t) {
			return due
		}
	}
}

// reached is the moment at which the wall clock of a zone first shows a time
// or, where the zone skips that, a later one.
func reached(shown time.Time, zone *time.Location) time.Time {
	at := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, zone)
	_, offset := at.Zone()
	start, end := at.ZoneBounds()
	// For a time in the gap Date answers a moment before it west of
	// Greenwich, and one after it east of there.
	switch wall := at.Unix() + int64(offset); {
	case wall < shown.Unix():
		return end
	case wall > shown.Unix():
		return start
	case start.IsZero():
		return at
	}
	// For a time that comes twice it answers either.
	_, before := start.Add(-time.Second).Zone()
	if first := at.Add(time.Duration(offset-before) * time.Second); first.Before(start) {
		return first
	}
	return at
}
