package jobs

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

func schedule(t *testing.T, spec, zone string) cron.Schedule {
	t.Helper()
	s, err := NewSchedule(config.Job{Name: "j", Schedule: spec, Timezone: zone})
	if err != nil {
		t.Fatalf("NewSchedule(%q, %q): %v", spec, zone, err)
	}
	return s
}

func utc(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Times are given and compared in UTC; the comments say what the wall shows.
func TestScheduleAcrossClockChanges(t *testing.T) {
	const (
		newYork  = "America/New_York"  // 2026: 8 March 02:00 to 03:00, 1 November 02:00 to 01:00
		saoPaulo = "America/Sao_Paulo" // 2018: 4 November 00:00 to 01:00
		berlin   = "Europe/Berlin"     // 2026: 29 March 02:00 to 03:00, 25 October 03:00 to 02:00
	)
	for _, c := range []struct {
		name, zone, spec, from string
		want                   []string
	}{
		{"a zone that never changes its clock", "Asia/Shanghai", "0 3 * * *", "2026-03-07 00:00",
			[]string{"2026-03-07 19:00", "2026-03-08 19:00"}},
		{"no zone is UTC", "", "0 3 * * *", "2026-03-07 00:00",
			[]string{"2026-03-07 03:00", "2026-03-08 03:00"}},
		{"in the gap: when it is over", newYork, "30 2 * * *", "2026-03-07 00:00",
			[]string{"2026-03-07 07:30", "2026-03-08 07:00", "2026-03-09 06:30"}},
		{"in the gap, east of Greenwich", berlin, "30 2 * * *", "2026-03-28 00:00",
			[]string{"2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"}},
		{"midnight in the gap: not the day before", saoPaulo, "@daily", "2018-11-03 00:00",
			[]string{"2018-11-03 03:00", "2018-11-04 03:00", "2018-11-05 02:00"}},
		{"several times in the gap are one", newYork, "0,30 2,3 * * *", "2026-03-08 05:00",
			[]string{"2026-03-08 07:00", "2026-03-08 07:30", "2026-03-09 06:00"}},
		{"every day of the week, in the gap", newYork, "15 2 * * 0", "2026-03-02 00:00",
			[]string{"2026-03-08 07:00", "2026-03-15 06:15"}},
		{"twice on the wall: once, the first time", newYork, "30 1 * * *", "2026-10-31 12:00",
			[]string{"2026-11-01 05:30", "2026-11-02 06:30"}},
		{"twice on the wall, east of Greenwich", berlin, "30 2 * * *", "2026-10-24 12:00",
			[]string{"2026-10-25 00:30", "2026-10-26 01:30"}},
		{"started between the two", berlin, "30 2 * * *", "2026-10-25 00:40",
			[]string{"2026-10-26 01:30"}},
		{"started in the second", newYork, "30 1 * * *", "2026-11-01 06:10",
			[]string{"2026-11-02 06:30"}},
		{"every two hours in spring", newYork, "0 */2 * * *", "2026-03-08 05:30",
			[]string{"2026-03-08 07:00", "2026-03-08 08:00"}}, // 03:00 for 02:00, 04:00
		{"hourly in spring: real time", newYork, "0 * * * *", "2026-03-08 05:30",
			[]string{"2026-03-08 06:00", "2026-03-08 07:00", "2026-03-08 08:00"}},
		{"hourly in autumn: real time", newYork, "@hourly", "2026-11-01 04:30",
			[]string{"2026-11-01 05:00", "2026-11-01 06:00", "2026-11-01 07:00"}},
		{"hourly over a midnight gap", saoPaulo, "0 * * * *", "2018-11-04 01:30",
			[]string{"2018-11-04 02:00", "2018-11-04 03:00", "2018-11-04 04:00"}},
		{"every ten minutes in spring", newYork, "*/10 * * * *", "2026-03-08 06:45",
			[]string{"2026-03-08 06:50", "2026-03-08 07:00", "2026-03-08 07:10"}},
		{"every ten minutes in autumn", newYork, "*/10 * * * *", "2026-11-01 05:45",
			[]string{"2026-11-01 05:50", "2026-11-01 06:00", "2026-11-01 06:10", "2026-11-01 06:20"}},
		{"an interval knows no zone", newYork, "@every 45m", "2026-11-01 05:00",
			[]string{"2026-11-01 05:45", "2026-11-01 06:30", "2026-11-01 07:15"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, at := schedule(t, c.spec, c.zone), utc(t, c.from)
			for i, want := range c.want {
				if at = s.Next(at); !at.Equal(utc(t, want)) {
					t.Fatalf("%q in %s, time %d: %v, want %s UTC", c.spec, c.zone, i, at.UTC(), want)
				}
			}
		})
	}
}

// Whatever the zone does, the next time is after the one before, and a job of
// every day runs once on each date.
func TestScheduleOnceADay(t *testing.T) {
	for _, zone := range []string{"America/New_York", "America/Sao_Paulo", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut", "Pacific/Chatham"} {
		for _, spec := range []string{"0 0 * * *", "30 0 * * *", "15 1 * * *", "30 2 * * *", "45 2 * * *", "59 23 * * *"} {
			s := schedule(t, spec, zone)
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Date(2017, 12, 31, 23, 59, 59, 0, loc)
			for day := range 2 * 365 {
				next := s.Next(at)
				if !next.After(at) {
					t.Fatalf("%s in %s: %v is not after %v", spec, zone, next, at)
				}
				want := time.Date(2018, 1, 1+day, 12, 0, 0, 0, loc).Format(time.DateOnly)
				if got := next.In(loc).Format(time.DateOnly); got != want {
					t.Fatalf("%s in %s: day %d is %v, want %s", spec, zone, day, next, want)
				}
				at = next
			}
		}
	}
}

func TestScheduleRefuses(t *testing.T) {
	for spec, zone := range map[string]string{
		"0 3 * *": "", "0 0 3 * * *": "", "0 0 30 2 *": "", "CRON_TZ=UTC": "", "TZ=0": "", "@every 5": "",
		"@every 500ms": "", "@reboot": "", "0 3 * * 1": "Mars/Olympus",
	} {
		if _, err := NewSchedule(config.Job{Name: "j", Schedule: spec, Timezone: zone}); err == nil {
			t.Errorf("%q in %q is taken", spec, zone)
		}
	}
}
