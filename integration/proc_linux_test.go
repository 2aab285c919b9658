package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// dieWithTests asks the kernel to end a child when the test process dies
// without running its cleanups (a panic at the test timeout does).
func dieWithTests(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// residentPeak is the most memory in bytes that a process ever had resident;
// 0 if it is no more.
func residentPeak(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}
