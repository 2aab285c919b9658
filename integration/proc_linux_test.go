package integration

import (
	"os/exec"
	"syscall"
)

// dieWithTests asks the kernel to end a child when the test process dies
// without running its cleanups (a panic at the test timeout does).
func dieWithTests(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
