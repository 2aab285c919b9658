// Command bench measures keyjanitor side by side with what one would use
// instead: redis-cli --memkeys and --bigkeys, plain loops of SCAN and UNLINK and
// of HSCAN and HDEL, redis-cli with xargs, DEL, and UNLINK. It starts its own
// servers on free loopback ports in a temporary folder, lets the contenders take
// turns on the same data, and prints tables of medians. It touches no server that
// it did not start, promises to end by itself, and says which goals were missed;
// only what could not be run is an error.
//
// Sections, by -only:
//
//	bytes, elements  how fast many keys are scanned
//	purge            how fast many small keys are gone
//	drain, stall     how fast one hash is gone without UNLINK, and what others feel
//	clean            what others feel while a key of each type is found and removed
//	cpu              what a busy server's load keeps beside a removal and a scan
//	slowlog          what of keyjanitor's the slow log notes
//	removal          every way to remove one big key of each type, of 1 to 10
//	                 million elements; takes more than an hour, so not by default
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// wholeLimit ends a run that hangs somewhere: the longest section, removal,
// takes a third of it on two cores, and so does the default run.
const wholeLimit = 3 * time.Hour

// sections in the order in which they run; what -only takes. The last is left
// out by default: its largest keys take longer than all the rest.
var (
	sections  = []string{"bytes", "elements", "purge", "drain", "stall", "clean", "cpu", "slowlog", "removal"}
	byDefault = sections[:len(sections)-1]
)

// bench is one run.
type bench struct {
	keys, fields, runs int
	scale              float64
	dir                string // removed at the end
	janitor            string // the binary
	out, progress      io.Writer
	stateDirs          int
}

func main() {
	redis.SetLogger(silent{}) // it tells of every dial before a new server listens
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// silent is the library's log, unwanted.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if is, err := otherProcess(ctx, args, stdout); is {
		if err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return 1
		}
		return 0
	}
	b := &bench{out: stdout, progress: stderr}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&b.keys, "keys", 1_000_000, "small keys that are scanned")
	fs.IntVar(&b.fields, "fields", 1_000_000, "members of the big hash, set and sorted set; the list has half as many")
	fs.IntVar(&b.runs, "runs", 5, "how often each contender has its turn, in the section removal at most "+strconv.Itoa(removalRuns)+" times; the tables show medians")
	fs.Float64Var(&b.scale, "scale", 1, "of the keys of the section removal, which have 1 to 10 million elements")
	only := fs.String("only", strings.Join(byDefault, ","), "what to measure, a list with commas; removal takes longer than all the rest")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	which, err := b.check(*only, fs.Args())
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, wholeLimit)
	defer cancel()
	if err := b.all(ctx, which); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// otherProcess is what this program does when it started itself.
func otherProcess(ctx context.Context, args []string, stdout io.Writer) (is bool, err error) {
	switch {
	case len(args) == 3 && args[0] == loopCommand:
		return true, loopProcess(ctx, args[1], args[2], stdout)
	case len(args) == 3 && args[0] == loadCommand:
		var l load
		if err := json.Unmarshal([]byte(args[2]), &l); err != nil {
			return true, err
		}
		return true, loadProcess(ctx, args[1], l, stdout)
	}
	return false, nil
}

// check refuses sizes that measure nothing.
func (b *bench) check(only string, rest []string) ([]string, error) {
	which := strings.Split(only, ",")
	for _, name := range which {
		if !slices.Contains(sections, name) {
			return nil, fmt.Errorf("-only %q: take of %s", name, strings.Join(sections, ","))
		}
	}
	switch {
	case len(rest) > 0:
		return nil, fmt.Errorf("unexpected argument %q", rest[0])
	case b.keys < 1000 || b.fields < 10_000 || b.runs < 1 || !(b.scale >= 0.01 && b.scale <= 10):
		return nil, errors.New("-keys must be at least 1000, -fields 10000, -runs 1, -scale 0.01 to 10")
	}
	return which, nil
}

func (b *bench) all(ctx context.Context, which []string) (err error) {
	if b.dir, err = os.MkdirTemp("", "keyjanitor-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.say("building the binary")
	if err := b.build(ctx); err != nil {
		return err
	}
	servers, err := findServers(ctx, os.Getenv("KEYJANITOR_TEST_SERVERS"))
	if err != nil {
		return err
	}
	for _, s := range servers {
		if err := b.on(ctx, s, which); err != nil {
			return fmt.Errorf("%s: %w", s.version, err)
		}
	}
	return nil
}

// build makes the binary as it is shipped, but for its version.
func (b *bench) build(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	b.janitor = filepath.Join(b.dir, "keyjanitor")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.janitor,
		"github.com/keyjanitor/keyjanitor/cmd/keyjanitor")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/keyjanitor: %w\n%s", err, text)
	}
	return nil
}

// on measures on one server binary.
func (b *bench) on(ctx context.Context, bin serverBinary, which []string) error {
	started := time.Now()
	b.printf("# keyjanitor beside other ways, %s\n\n", started.UTC().Format("2006-01-02 15:04 MST"))
	b.printf("- server: %s\n- %s\n- %d CPUs, shared by server and clients; load average at the start %s; %s\n",
		bin.version, cliVersion(ctx), runtime.NumCPU(), loadAverage(), runtime.Version())
	b.printf("- medians of %d runs, the contenders by turns on the same server and data; lowest to highest run in brackets\n\n", b.runs)

	wants := func(name string) bool { return slices.Contains(which, name) }
	if wants("bytes") || wants("elements") {
		if err := b.scans(ctx, bin, wants); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		name    string
		measure func(context.Context, *server) error
		options []string
	}{
		{"purge", b.purges, nil},
		{"drain", b.drains, []string{noUnlink}},
		{"stall", b.stalls, []string{noUnlink}},
		{"clean", b.cleans, []string{noUnlink}},
		{"cpu", b.shares, []string{noUnlink}},
		{"slowlog", b.slowLogs, []string{noUnlink, noteMore}},
	} {
		if !wants(s.name) {
			continue
		}
		if err := b.with(ctx, bin, func(srv *server) error { return s.measure(ctx, srv) }, s.options...); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if wants("removal") {
		if err := b.removal(ctx, bin); err != nil {
			return fmt.Errorf("removal: %w", err)
		}
	}
	b.printf("All of it took %s; load average at the end %s.\n", time.Since(started).Round(time.Second), loadAverage())
	return nil
}

// with starts a server, hands it to fn and ends it.
func (b *bench) with(ctx context.Context, bin serverBinary, fn func(*server) error, options ...string) error {
	srv, err := startServer(ctx, bin, b.dir, options...)
	if err != nil {
		return err
	}
	defer srv.stop()
	return fn(srv)
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(b.out, format, args...) }

// say tells on stderr what is going on.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

func cliVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, "redis-cli", "--version").Output()
	if err != nil {
		return "redis-cli: none"
	}
	return strings.TrimSpace(string(text))
}
