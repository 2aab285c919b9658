package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "15m": 15 * time.Minute, "14d": 14 * 24 * time.Hour,
		"1h30m": 90 * time.Minute, "500ms": 500 * time.Millisecond, "1.5h": 90 * time.Minute, "100us": 100 * time.Microsecond,
		"100µs": 100 * time.Microsecond, "100μs": 100 * time.Microsecond, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour,
		"106751d": 106751 * 24 * time.Hour, "7ns": 7,
	} {
		got, err := ParseDuration(text)
		if err != nil || time.Duration(got) != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "empty duration", "600": "write 600s or 10m", "5": "write 5ms, 5s or 5m", "1.5": "has no unit", "-5": "has no unit", "-5s": "is negative",
		"5 m": "unknown unit", "5x": "unknown unit", "5M": "unknown unit", "m": "is not a duration", "1h30": "is not a duration",
		"1m1h": "out of order", "1m1m": "out of order", "1.h": "is not a duration", ".5h": "is not a duration", "+5s": "is not a duration", "1e3s": "unknown unit",
		"106752d": "too long", "99999999999999999999h": "too long", strings.Repeat("9", 40) + "s": "is not a duration", "5s ": "unknown unit", "00": "no unit",
	} {
		if got, err := ParseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "0B": 0, "10KB": 10_000, "64MiB": 64 << 20, "1.5KiB": 1536, "0.3KB": 300, "1TB": 1e12, "1TiB": 1 << 40,
		"3GB": 3e9, "3GiB": 3 << 30, "2MB": 2e6, "9223372036854775807B": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "empty size", "10 MiBs": "KiB, MiB, GiB, TiB", "10 MiB": "without a space", "10MiBs": "the units are", "10mb": "the units are", "10K": "the units are",
		"600": "write 600B, 600KiB or 600MiB", "1048576": "write 1048576B or 1MiB", "-1MB": "is negative", "9223372036854775808B": "too large", "8388608TiB": "too large",
		"0.5B": "whole number of bytes", "MiB": "is not a size", "1e3B": "is not a size", "1.5.5KB": "is not a size", "5MB3KB": "is not a size",
	} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestParsePercent(t *testing.T) {
	for text, want := range map[string]Percent{"20%": 20, "0.5%": 0.5, "100%": 100, "100.0%": 100} {
		if got, err := ParsePercent(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"20": "write 20%", "0.2": "write 20% for that part of the whole, or 0.2%", "0.07": "write 7% ", "0%": "out of range", "101%": "out of range", "-5%": "not a percentage", "": "not a percentage", "%": "not a percentage",
		"5 %": "not a percentage", "5%%": "not a percentage", "NaN%": "not a percentage", "1e1%": "not a percentage",
	} {
		if got, err := ParsePercent(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestUnitsReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		n := r.Int64() >> r.IntN(63)
		if d, err := ParseDuration(Duration(n).String()); err != nil || d != Duration(n) {
			t.Fatalf("%d: %s: %d, %v", n, Duration(n), d, err)
		}
		if s, err := ParseSize(Size(n).String()); err != nil || s != Size(n) {
			t.Fatalf("%d: %s: %d, %v", n, Size(n), s, err)
		}
		p := Percent(float64(1+r.IntN(10000)) / 100)
		if q, err := ParsePercent(p.String()); err != nil || p != q {
			t.Fatalf("%s: %v, %v", p, q, err)
		}
	}
	for _, c := range [][2]string{
		{Duration(36 * time.Hour).String(), "1d12h"}, {Duration(90 * time.Second).String(), "1m30s"}, {Duration(0).String(), "0s"},
		{Size(64 << 20).String(), "64MiB"}, {Size(10_000).String(), "10KB"}, {Size(1234).String(), "1234B"}, {Size(0).String(), "0B"},
		{Percent(0.5).String(), "0.5%"}, {Duration(-time.Second).String(), "-1s"}, {Size(-5).String(), "-5B"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %s, want %s", c[0], c[1])
		}
	}
}

func TestSecretShowsNothing(t *testing.T) {
	const secret = "hunter2"
	target := Target{Name: "x", Password: secret}
	j, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	y, err := yaml.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "password", Secret(secret), "target", target)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "password", Secret(secret), "target", target)
	hex := fmt.Sprintf("%x", secret)
	all := string(j) + string(y) + log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "% x", "%10s", "%c", "%U"} {
		all += fmt.Sprintf(verb, Secret(secret)) + fmt.Sprintf(verb, target) + fmt.Sprintf(verb, &target)
	}
	if strings.Contains(all, secret) || strings.Contains(strings.ToLower(all), hex) {
		t.Errorf("the secret shows:\n%s", all)
	}
	if !strings.Contains(string(j), redacted) || !strings.Contains(string(y), redacted) || !strings.Contains(log.String(), redacted) {
		t.Errorf("no trace of a redacted secret:\n%s%s%s", j, y, &log)
	}
	if Secret("").String() != "" || Secret(secret).Reveal() != secret {
		t.Error("an empty secret must look empty, and Reveal must reveal")
	}
}

func TestWindow(t *testing.T) {
	at := func(clock string) time.Time {
		v, err := time.Parse("15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, test := range []struct {
		window, in, out string
	}{
		{"01:00-05:00", "01:00", "05:00"}, {"01:00-05:00", "04:59", "00:59"},
		{"22:30-05:00", "23:59", "05:00"}, {"22:30-05:00", "00:00", "22:29"}, {"00:00-24:00", "23:59", ""},
	} {
		w, err := ParseWindow(test.window)
		if err != nil || w.String() != test.window {
			t.Errorf("%s: %s, %v", test.window, w, err)
		}
		if !w.Contains(at(test.in)) || test.out != "" && w.Contains(at(test.out)) {
			t.Errorf("%s: %s is in, %s is not", test.window, test.in, test.out)
		}
	}
	for _, text := range []string{"", "01:00", "1:00-5:00", "01:00-01:00", "25:00-26:00", "01:00-05:00-06:00"} {
		if w, err := ParseWindow(text); err == nil {
			t.Errorf("%q is %s", text, w)
		}
	}
}
