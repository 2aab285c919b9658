//go:build !linux

package integration

import (
	"os/exec"
	"testing"
)

func dieWithTests(*exec.Cmd) {}

// residentPeak is not known here.
func residentPeak(int) int64 { return 0 }

// childOf is not known here.
func childOf(*testing.T, *server) int { return 0 }
