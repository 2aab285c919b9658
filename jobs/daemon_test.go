package jobs

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// The clock of a synctest bubble starts at midnight UTC on 1 January 2000.

// daemon runs jobs for a while of the bubble's time and returns what it logged.
func daemon(t *testing.T, lasts time.Duration, fire func(context.Context, config.Job), jobs ...config.Job) string {
	t.Helper()
	var log bytes.Buffer
	d := &Daemon{Log: slog.New(slog.NewTextHandler(&log, nil)), Jobs: jobs, Fire: fire}
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	d.Run(ctx, ctx)
	return log.String()
}

func every(name, spec string) config.Job { return config.Job{Name: name, Schedule: spec} }

func TestDaemonFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		runs := make(chan string, 100)
		log := daemon(t, 26*time.Hour, func(_ context.Context, j config.Job) {
			runs <- j.Name + " " + time.Since(start).String()
		}, every("nightly", "0 3 * * *"), every("often", "@every 10h"), config.Job{Name: "by hand"},
			config.Job{Name: "shanghai", Schedule: "0 3 * * *", Timezone: "Asia/Shanghai"})
		close(runs)
		var got []string
		for r := range runs {
			got = append(got, r)
		}
		want := []string{"nightly 3h0m0s", "often 10h0m0s", "shanghai 19h0m0s", "often 20h0m0s"}
		if !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q", got, want)
		}
		if log != "" {
			t.Errorf("logged %s", log)
		}
	})
}

// A job that takes longer than its interval never overlaps itself; what passed
// meanwhile is counted and the times stay on their grid.
func TestDaemonNeverOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var began []time.Duration
		running := 0
		log := daemon(t, 2*time.Minute, func(context.Context, config.Job) {
			if running++; running > 1 {
				t.Error("the job overlaps itself")
			}
			began = append(began, time.Since(start))
			time.Sleep(25 * time.Second)
			running--
		}, every("slow", "@every 10s"))
		want := []time.Duration{10 * time.Second, 40 * time.Second, 70 * time.Second, 100 * time.Second}
		if !slices.Equal(began, want) {
			t.Errorf("began at %v, want %v", began, want)
		}
		if n := strings.Count(log, "job=slow skipped=2"); n != 4 {
			t.Errorf("2 times passed during each of 4 runs, told %d times:\n%s", n, log)
		}
	})
}

func TestDaemonSlowJobCostsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := 0
		daemon(t, time.Hour+time.Second, func(_ context.Context, j config.Job) {
			if j.Name == "slow" {
				time.Sleep(50 * time.Minute)
				return
			}
			quick++
		}, every("slow", "@every 1m"), every("quick", "@every 1m"))
		if quick != 60 {
			t.Errorf("the quick job ran %d times in an hour of minutes", quick)
		}
	})
}

func TestDaemonOutlivesPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		log := daemon(t, 35*time.Second, func(context.Context, config.Job) {
			if runs++; runs == 2 {
				panic("nil map")
			}
		}, every("shaky", "@every 10s"))
		if runs != 3 {
			t.Errorf("%d runs, want 3", runs)
		}
		if !strings.Contains(log, "job=shaky") || !strings.Contains(log, `reason="nil map"`) || !strings.Contains(log, "daemon_test.go") {
			t.Errorf("the log lacks job, reason or stack:\n%s", log)
		}
	})
}

// Told to stop, the daemon starts nothing more and waits for what is running,
// whose own context goes on.
func TestDaemonStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting, stop := context.WithCancel(context.Background())
		finished := false
		d := &Daemon{Log: slog.New(slog.DiscardHandler), Jobs: []config.Job{every("a", "@every 10s"), every("b", "@every 3h")},
			Fire: func(ctx context.Context, j config.Job) {
				stop()
				time.Sleep(time.Minute)
				if ctx.Err() != nil {
					t.Error("the run was cancelled, not only the waiting")
				}
				finished = true
			}}
		start := time.Now()
		d.Run(waiting, context.Background())
		if !finished {
			t.Error("Run returned while a job was running")
		}
		if took := time.Since(start); took != 70*time.Second {
			t.Errorf("Run returned after %v, want 1m10s", took)
		}
	})
}

// Where the stop and a due time are both there nothing is started. They may
// also come in between two looks at each other: that is rare, where without
// the look it is every second time.
func TestDaemonStopWins(t *testing.T) {
	const rounds = 40
	started := 0
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			daemon(t, 10*time.Second, func(ctx context.Context, _ config.Job) {
				if ctx.Err() != nil {
					started++
				}
			}, every("a", "@every 10s"))
		})
	}
	if started > rounds/5 {
		t.Errorf("started after the stop in %d of %d rounds", started, rounds)
	}
}

// wrongClock answers times a year ahead until the clock is right, as a
// schedule does that was asked on a machine with a wrong clock.
type wrongClock struct{ right time.Time }

func (w wrongClock) Next(now time.Time) time.Time {
	if now.Before(w.right) {
		return now.AddDate(1, 0, 0)
	}
	return now.Add(time.Second)
}

func TestDaemonLooksAtTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		start := time.Now()
		d := &Daemon{Log: slog.New(slog.DiscardHandler), Fire: func(context.Context, config.Job) { cancel() }}
		d.loop(ctx, ctx, every("a", ""), wrongClock{start.Add(time.Minute)})
		if took := time.Since(start); took > time.Minute+recheck+time.Second {
			t.Errorf("noticed after %v that the clock had been set back", took)
		}
	})
}

func TestTimetable(t *testing.T) {
	daily := schedule(t, "0 3 * * *", "")
	minutes := schedule(t, "*/10 * * * *", "")
	interval := schedule(t, "@every 10m", "")
	for _, c := range []struct {
		name           string
		when           cron.Schedule
		due, last, now string
		fires          bool
		next           string // due afterwards, where it does not fire
	}{
		{"not yet", daily, "2026-05-02 03:00", "2026-05-01 03:00", "2026-05-01 12:00", false, "2026-05-02 03:00"},
		{"on time", daily, "2026-05-02 03:00", "", "2026-05-02 03:00", true, ""},
		{"set forward past it", daily, "2026-05-02 03:00", "", "2026-05-09 12:00", true, ""},
		{"set back a little before it ran", daily, "2026-05-02 03:00", "2026-05-01 03:00", "2026-05-02 02:50", false, "2026-05-02 03:00"},
		{"set back a little after it ran: not again", daily, "2026-05-03 03:00", "2026-05-02 03:00", "2026-05-02 02:58", false, "2026-05-03 03:00"},
		{"set back a day: by the new time", daily, "2026-05-03 03:00", "2026-05-02 03:00", "2026-05-01 02:58", false, "2026-05-01 03:00"},
		{"was a year wrong", daily, "2027-05-03 03:00", "2027-05-02 03:00", "2026-05-01 12:00", false, "2026-05-02 03:00"},
		{"frequent, set back an hour", minutes, "2026-05-02 13:10", "2026-05-02 13:00", "2026-05-02 12:01", false, "2026-05-02 12:10"},
		{"interval, set back an hour", interval, "2026-05-02 13:10", "2026-05-02 13:00", "2026-05-02 12:01", false, "2026-05-02 12:11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tt := timetable{when: c.when, due: utc(t, c.due)}
			if c.last != "" {
				tt.last = utc(t, c.last)
			}
			if fires := tt.look(utc(t, c.now)); fires != c.fires {
				t.Fatalf("fires: %t, want %t", fires, c.fires)
			}
			if !c.fires && !tt.due.Equal(utc(t, c.next)) {
				t.Errorf("due %v, want %s", tt.due, c.next)
			}
		})
	}
}

func TestTimetableSkips(t *testing.T) {
	for _, c := range []struct {
		spec, due, ended string
		skipped          int
		next             string
	}{
		{"@every 10m", "2026-05-02 12:00", "2026-05-02 12:09", 0, "2026-05-02 12:10"},
		{"@every 10m", "2026-05-02 12:00", "2026-05-02 12:10", 0, "2026-05-02 12:10"}, // due just now
		{"@every 10m", "2026-05-02 12:00", "2026-05-02 12:35", 3, "2026-05-02 12:40"},
		{"0 3 * * *", "2026-05-02 03:00", "2026-05-09 12:00", 7, "2026-05-10 03:00"},
		{"* * * * *", "2026-05-02 03:00", "2027-05-02 03:00", mostSkipped, "2027-05-02 03:01"},
	} {
		tt := timetable{when: schedule(t, c.spec, ""), due: utc(t, c.due)}
		if n := tt.ran(utc(t, c.ended)); n != c.skipped {
			t.Errorf("%s, ended %s: %d skipped, want %d", c.spec, c.ended, n, c.skipped)
		}
		if !tt.due.Equal(utc(t, c.next)) {
			t.Errorf("%s, ended %s: due %v, want %s", c.spec, c.ended, tt.due, c.next)
		}
	}
}
