package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/jobs"
)

// The exit codes; DESIGN and README list them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitPartial = 3
	exitLimit   = 4
	exitBusy    = 5
)

// stopped is the cause of a run that a signal ended.
type stopped struct{ signal syscall.Signal }

func (s stopped) Error() string { return "stopped by " + s.signal.String() }

// code is what a shell reports for a process that a signal killed.
func (s stopped) code() int { return 128 + int(s.signal) }

// usageError is a command line that can't be carried out as it stands.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// codeOf maps an error to an exit code.
func codeOf(err error) int {
	var usage usageError
	var file *config.Error
	var signal stopped
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.As(err, &file), errors.Is(err, jobs.ErrState), errors.Is(err, jobs.ErrKeys):
		return exitUsage
	case errors.Is(err, jobs.ErrBusy):
		return exitBusy
	case errors.As(err, &signal):
		return signal.code()
	case errors.Is(err, jobs.ErrStopped):
		return stopped{syscall.SIGTERM}.code()
	case errors.Is(err, jobs.ErrLimit):
		return exitLimit
	case errors.Is(err, jobs.ErrPartial), errors.Is(err, jobs.ErrLockLost):
		return exitPartial
	}
	return exitFailed
}

// precedence orders codes for several runs in one: the first that occurs is
// the whole's.
var precedence = []int{exitUsage, exitBusy, 128 + int(syscall.SIGTERM), 128 + int(syscall.SIGINT), exitLimit, exitFailed, exitPartial, exitDone}

// worst is the error of several that decides the exit code.
func worst(errs []error) error {
	return slices.MinFunc(append(errs, nil), func(a, b error) int {
		return slices.Index(precedence, codeOf(a)) - slices.Index(precedence, codeOf(b))
	})
}

// forgivable are the codes that --ok-on turns into success.
var forgivable = map[string]int{"limit": exitLimit, "busy": exitBusy}

// okOnProblem says what is wrong with the value of --ok-on.
func okOnProblem(okOn string) error {
	for word := range strings.SplitSeq(okOn, ",") {
		if word = strings.TrimSpace(word); word != "" && forgivable[word] == 0 {
			return fmt.Errorf("unknown outcome %q; write limit, busy or both with a comma between", word)
		}
	}
	return nil
}

// forgive turns the codes that --ok-on names into success, and says so.
func (p process) forgive(err error, okOn string) error {
	for word := range strings.SplitSeq(okOn, ",") {
		if code := forgivable[strings.TrimSpace(word)]; code != 0 && code == codeOf(err) {
			fmt.Fprintf(p.stderr, "keyjanitor: %s; --ok-on accepts that\n", err)
			return nil
		}
	}
	return err
}
