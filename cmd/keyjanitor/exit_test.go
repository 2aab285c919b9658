package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/jobs"
)

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("connection refused"), 1},
		{jobs.ErrFailed, 1},
		{context.Canceled, 1},
		{usagef("no"), 2},
		{&config.Error{Problems: []config.Problem{{Message: "no"}}}, 2},
		{jobs.ErrState, 2},
		{jobs.ErrKeys, 2},
		{jobs.ErrPartial, 3},
		{jobs.ErrLockLost, 3},
		{jobs.ErrLimit, 4},
		{jobs.ErrBusy, 5},
		{stopped{syscall.SIGINT}, 130},
		{stopped{syscall.SIGTERM}, 143},
		// Wrapped, and beside others, the gravest decides.
		{fmt.Errorf("job: %w", fmt.Errorf("%w: x", jobs.ErrBusy)), 5},
		{errors.Join(jobs.ErrPartial, jobs.ErrState), 2},
		{errors.Join(jobs.ErrLimit, stopped{syscall.SIGTERM}), 143},
		{errors.Join(jobs.ErrPartial, jobs.ErrLimit), 4},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v is exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// Precedence 2, 5, 143, 130, 4, 1, 3, 0, whatever the order of the runs.
func TestWorst(t *testing.T) {
	order := []error{
		usagef("no"), jobs.ErrBusy, stopped{syscall.SIGTERM}, stopped{syscall.SIGINT}, jobs.ErrLimit,
		errors.New("failed"), jobs.ErrPartial, nil,
	}
	codes := []int{2, 5, 143, 130, 4, 1, 3, 0}
	for i, a := range order {
		if codeOf(a) != codes[i] {
			t.Fatalf("%v is %d", a, codeOf(a))
		}
		for _, b := range order[i:] {
			if got := codeOf(worst([]error{a, b})); got != codes[i] {
				t.Errorf("worst of %v and %v is %d, want %d", a, b, got, codes[i])
			}
			if got := codeOf(worst([]error{b, nil, a})); got != codes[i] {
				t.Errorf("worst of %v and %v is %d, want %d", b, a, got, codes[i])
			}
		}
	}
	if worst(nil) != nil {
		t.Error("worst of nothing is an error")
	}
}

func TestForgive(t *testing.T) {
	for _, c := range []struct {
		okOn string
		err  error
		want int
	}{
		{"", jobs.ErrLimit, 4},
		{"limit", jobs.ErrLimit, 0},
		{"busy", jobs.ErrLimit, 4},
		{"busy", fmt.Errorf("job: %w", jobs.ErrBusy), 0},
		{"limit,busy", jobs.ErrBusy, 0},
		{" busy , limit ", jobs.ErrLimit, 0},
		{"limit,busy", jobs.ErrPartial, 3},
		{"limit,busy", errors.New("failed"), 1},
		{"limit,busy", stopped{syscall.SIGTERM}, 143},
		{"limit,busy", nil, 0},
	} {
		var told bytes.Buffer
		got := codeOf(process{stderr: &told}.forgive(c.err, c.okOn))
		if got != c.want {
			t.Errorf("--ok-on %q: %v is %d, want %d", c.okOn, c.err, got, c.want)
		}
		if forgiven := c.err != nil && got == 0; forgiven != strings.Contains(told.String(), "--ok-on") {
			t.Errorf("--ok-on %q: of %v is told %q", c.okOn, c.err, told.String())
		}
	}
	for okOn, fine := range map[string]bool{"": true, "limit": true, "limit, busy": true, "partial": false, "limit,all": false, "LIMIT": false} {
		if err := okOnProblem(okOn); (err == nil) != fine {
			t.Errorf("--ok-on %q: %v", okOn, err)
		}
	}
}

// Of several errors one decides, and all are told.
func TestDecide(t *testing.T) {
	var told bytes.Buffer
	got := process{stderr: &told}.decide(jobs.ErrPartial, nil, errors.New("disk full"), jobs.ErrLimit)
	if codeOf(got) != 4 {
		t.Errorf("decided by %v", got)
	}
	if s := told.String(); !strings.Contains(s, "disk full") || !strings.Contains(s, jobs.ErrPartial.Error()) || strings.Contains(s, jobs.ErrLimit.Error()) {
		t.Errorf("told %q; the last one is for run to tell", s)
	}
}
