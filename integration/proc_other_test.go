//go:build !linux

package integration

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

func dieWithTests(*exec.Cmd) {}

// residentPeak is not known here.
func residentPeak(int) int64 { return 0 }

// childOf is not known here.
func childOf(*testing.T, *server) int { return 0 }

// stopLazyfree is not known here.
func stopLazyfree(*testing.T, *server) (func(), error) {
	return nil, fmt.Errorf("stop a thread: %w", errors.ErrUnsupported)
}
