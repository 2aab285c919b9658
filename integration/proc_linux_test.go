package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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

// childOf stops the child that a server has forked, and returns its number;
// 0 if there is none.
func childOf(t *testing.T, s *server) int {
	t.Helper()
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.cmd.Process.Pid, s.cmd.Process.Pid))
		if err != nil {
			return 0
		}
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			pid, err := strconv.Atoi(fields[0])
			if err == nil && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				return pid
			}
		}
	}
	return 0
}
