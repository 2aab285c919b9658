package config

import (
	"strings"
	"testing"
	"time"
)

func TestParseSchedule(t *testing.T) {
	shanghai, err := Job{Timezone: "Asia/Shanghai"}.Location()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, shanghai)
	for spec, want := range map[string]time.Time{
		"0 3 * * *":      time.Date(2026, 1, 2, 3, 0, 0, 0, shanghai),
		" 0  3 * * * ":   time.Date(2026, 1, 2, 3, 0, 0, 0, shanghai),
		"*/5 * * * *":    now.Add(5 * time.Minute),
		"0 0 29 2 *":     time.Date(2028, 2, 29, 0, 0, 0, 0, shanghai),
		"0 0 * * SUN":    time.Date(2026, 1, 4, 0, 0, 0, 0, shanghai),
		"@daily":         time.Date(2026, 1, 2, 0, 0, 0, 0, shanghai),
		"@every 1h30m":   now.Add(90 * time.Minute),
		" @every   10m ": now.Add(10 * time.Minute),
	} {
		s, err := ParseSchedule(spec)
		if err != nil {
			t.Errorf("%q: %v", spec, err)
		} else if got := s.Next(now); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", spec, got, want)
		}
	}
	for spec, want := range map[string]string{
		"": "empty", " ": "empty", "0 */5 * * * *": "five fields", "* * *": "3 fields", "CRON_TZ=UTC": "timezone", "TZ=0": "timezone", " CRON_TZ=UTC 0 3 * * *": "timezone",
		"0 0 30 2 *": "never comes", "@every 500ms": "under one second", "@every -5s": "under one second", "@every": "is not a schedule", "@every x": "no interval",
		"@reboot": "is not a schedule", "@Daily": "is not a schedule", "@daily x": "is not a schedule", "60 * * * *": "above maximum", "* * * * 7": "above maximum", "*/0 * * * *": "is not a schedule", "- - - - -": "is not a schedule",
	} {
		if _, err := ParseSchedule(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", spec, err, want)
		}
	}
}

func TestLocation(t *testing.T) {
	if zone, err := (Job{}).Location(); err != nil || zone != time.UTC {
		t.Errorf("no zone: %v, %v", zone, err)
	}
	for _, name := range []string{"Local", "Nowhere", "../etc/passwd", "UTC+1"} {
		if zone, err := (Job{Timezone: name}).Location(); err == nil {
			t.Errorf("%s: %v", name, zone)
		}
	}
}
