package main

import (
	"os/exec"
	"syscall"
)

// dieWithUs asks the kernel to end a child when this process dies without
// cleaning up.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
