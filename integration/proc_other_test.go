//go:build !linux

package integration

import (
	"errors"
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
	return nil, errors.New("no way to stop a thread is known here")
}
