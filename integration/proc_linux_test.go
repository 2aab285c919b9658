package integration

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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
// 0 if there is none, or it is over already.
func childOf(t *testing.T, s *server) int {
	t.Helper()
	deadline := time.Now().Add(300 * time.Millisecond)
	for time.Now().Before(deadline) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.cmd.Process.Pid, s.cmd.Process.Pid))
		if err != nil {
			return 0
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err == nil && syscall.Kill(pid, syscall.SIGSTOP) == nil && stands(pid, deadline) {
				return pid
			}
		}
	}
	return 0
}

// stands waits until a process, or a thread, is stopped; one that ended is not.
func stands(pid int, deadline time.Time) bool {
	for time.Now().Before(deadline) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		_, state, _ := strings.Cut(string(text), ") ")
		switch {
		case strings.HasPrefix(state, "T"):
			return true
		case strings.HasPrefix(state, "Z"), strings.HasPrefix(state, "X"):
			return false
		}
	}
	return false
}

// stopLazyfree stops the thread of a server that frees what was unlinked,
// until goOn is called. The other threads go on.
func stopLazyfree(t *testing.T, s *server) (goOn func(), err error) {
	t.Helper()
	tid, err := lazyfreeThread(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	attached, end, done := make(chan error), make(chan struct{}), make(chan struct{})
	go func() { // a thread is traced by one thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		if err := syscall.PtraceAttach(tid); err != nil {
			attached <- fmt.Errorf("ptrace: %w", err)
			return
		}
		var status syscall.WaitStatus
		_, err := syscall.Wait4(tid, &status, syscall.WALL, nil)
		attached <- err
		<-end
		_ = syscall.PtraceDetach(tid)
	}()
	if err := <-attached; err != nil {
		return nil, err
	}
	goOn = sync.OnceFunc(func() { close(end); <-done })
	t.Cleanup(goOn)
	return goOn, nil
}

// lazyfreeThread finds that thread: by its name, which it has from 6.0 on, or
// as the last of the three that work in the background.
func lazyfreeThread(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var workers []int
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
		if err != nil {
			return 0, err
		}
		switch text := strings.TrimSpace(string(name)); {
		case text == "bio_lazy_free":
			return tid, nil
		case tid != pid && !strings.HasPrefix(text, "jemalloc"):
			workers = append(workers, tid)
		}
	}
	if slices.Sort(workers); len(workers) != 3 {
		return 0, fmt.Errorf("no thread is known to free: %d work in the background", len(workers))
	}
	return workers[2], nil
}
