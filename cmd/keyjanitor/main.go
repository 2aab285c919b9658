// Command keyjanitor finds oversized keys in Redis and Valkey and removes
// them in steps that no other client notices.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// version is set by the build.
var version = "dev"

// grace bounds how long a run may take to finish the batch at hand after a
// signal. A batch takes a millisecond; a server that does not answer costs
// one read timeout of 5 s.
const grace = 8 * time.Second

// gcPercent trades memory that is there for time: a scan makes a page of
// garbage every millisecond on a heap of a few MB. At 400 collecting takes a
// third less of the processor, and a scan of any size stays near 35 MB.
const gcPercent = 400

// memoryLimit is from where on garbage is collected as often as it takes:
// names of a megabyte make pages of a hundred.
const memoryLimit = 96 << 20

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	// Whoever reads our output may go away: a write then fails, and the run
	// ends after the batch at hand, with its results on record.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		first := stopped{(<-signals).(syscall.Signal)}
		cancel(first)
		select {
		case <-signals:
		case <-time.After(grace):
		}
		os.Exit(first.code())
	}()
	os.Exit(run(ctx, os.Args, process{
		getenv: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}))
}
