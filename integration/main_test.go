// Package integration runs the built binary against real servers that it
// starts itself: Redis and Valkey processes on free loopback ports, in
// temporary folders, ended by their own process id. It promises to judge
// keyjanitor by what the server says afterwards (the keyspace, the slow log,
// the command statistics), not by keyjanitor's own report alone. It refuses
// to touch an address that it did not start.
//
// KEYJANITOR_TEST_SERVERS names the server binaries (separated by colons,
// commas or white space; default: redis-server and valkey-server, whichever
// are on the PATH). KEYJANITOR_TEST_SCALE=full takes the sizes of a real
// deployment instead of small ones. KEYJANITOR_TEST_SEED repeats the random
// choices of a run that printed it; what runs at the same time stays chance.
package integration

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// scale holds every size that a test depends on, so that one switch turns a
// run of minutes into one with real sizes.
type scale struct {
	name       string
	small      int // small keys of a data set
	hash, set  int // members of the big keys
	list, zset int
	threshold  int           // above every small key, below every big one
	bigKills   int           // runs that are killed while they drain the big keys
	killRounds int           // runs that are killed while they drain and keep many smaller ones
	killPace   int           // elements per second while a run waits to be killed
	bystanders int           // small keys where a test needs only neighbours
	runLimit   time.Duration // for one run of the binary: longer, and it hangs

	propertyRounds int // generated keyspaces for each way to remove keys
	moving, still  int // keys of such a keyspace that writers have, and that nobody has
	writes         int // of each writer in one round
	cuts           int // runs that lose a reply, for each way to remove keys

	giantTies   int   // members of a sorted set that share one score
	giantFields int   // of a hash, each of
	giantValue  int   // bytes
	giantMemory int64 // that the binary may have resident meanwhile
}

var scales = map[string]scale{
	// 60,000 members are past every encoding for small values and past the
	// 1000 elements that are removed in one piece, yet load in 0.1 s.
	"small": {name: "small", small: 20_000, hash: 60_000, set: 60_000, list: 60_000, zset: 60_000,
		threshold: 10_000, bigKills: 5, killRounds: 16, killPace: 100_000, bystanders: 500, runLimit: time.Minute,
		propertyRounds: 2, moving: 150, still: 180, writes: 1500, cuts: 2,
		giantTies: 200_000, giantFields: 100, giantValue: 2_000_000, giantMemory: 100 << 20},
	"full": {name: "full", small: 500_000, hash: 1_000_000, set: 1_000_000, list: 500_000, zset: 1_000_000,
		threshold: 100_000, bigKills: 30, killRounds: 200, killPace: 1_000_000, bystanders: 5_000, runLimit: 10 * time.Minute,
		propertyRounds: 20, moving: 300, still: 600, writes: 4_000, cuts: 60,
		giantTies: 5_000_000, giantFields: 100, giantValue: 50_000_000, giantMemory: 200 << 20},
}

var (
	size        = scales["small"]
	binaries    []serverBinary
	scratch     string // removed at the end of the run
	updateTable = flag.String("update-table", "", "write the table of versions, types and methods to this file")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if name := os.Getenv("KEYJANITOR_TEST_SCALE"); name != "" {
		s, ok := scales[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "KEYJANITOR_TEST_SCALE=%q: small or full\n", name)
			return 2
		}
		size = s
	}
	if !testing.Short() {
		var err error
		if binaries, err = findServers(os.Getenv("KEYJANITOR_TEST_SERVERS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	dir, err := os.MkdirTemp("", "keyjanitor-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	scratch = dir
	defer os.RemoveAll(dir)
	return m.Run()
}

// janitor is the binary under test. It is built once, by the first test that
// needs it: a test of the harness alone does not wait for it.
var janitor = sync.OnceValues(func() (string, error) {
	out := filepath.Join(scratch, "keyjanitor")
	cmd := exec.Command("go", "build", "-o", out, "github.com/keyjanitor/keyjanitor/cmd/keyjanitor")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/keyjanitor: %w\n%s", err, text)
	}
	return out, nil
})

// serverBinary is one server program that the suite runs on.
type serverBinary struct {
	path     string
	product  string // redis or valkey
	major    int
	minor    int
	patch    int
	jemalloc bool
}

func (b serverBinary) String() string {
	return fmt.Sprintf("%s-%d.%d.%d", b.product, b.major, b.minor, b.patch)
}

// since reports whether the server is at least Redis major.minor. Every
// Valkey has what Redis 7.2 had.
func (b serverBinary) since(major, minor int) bool {
	have := b.major*1000 + b.minor
	if b.product == "valkey" && have < 7002 {
		have = 7002
	}
	return have >= major*1000+minor
}

func (b serverBinary) hasUnlink() bool      { return b.since(4, 0) }
func (b serverBinary) hasMemoryUsage() bool { return b.since(4, 0) }
func (b serverBinary) hasACL() bool         { return b.since(6, 0) }
func (b serverBinary) hasErrorStats() bool  { return b.since(6, 2) }
func (b serverBinary) hasCluster() bool     { return b.since(3, 0) }

// bigOutcome is what becomes of a big aggregate when nothing else is asked:
// UNLINK is only harmless where the allocator is jemalloc.
func (b serverBinary) bigOutcome() string {
	if b.hasUnlink() && b.jemalloc {
		return "unlinked"
	}
	return "drained"
}

var versionLine = regexp.MustCompile(`(?i)^(redis|valkey) server.* v=(\d+)\.(\d+)\.(\d+).* malloc=(\S+)`)

func findServers(list string) ([]serverBinary, error) {
	paths := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(":, \t\r\n", r) })
	if len(paths) == 0 {
		for _, name := range []string{"redis-server", "valkey-server"} {
			if p, err := exec.LookPath(name); err == nil {
				paths = append(paths, p)
			}
		}
	}
	var out []serverBinary
	for _, p := range paths {
		// A server that was named and does not run is an error, not a skip.
		text, err := exec.Command(p, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("KEYJANITOR_TEST_SERVERS: %s --version: %w", p, err)
		}
		m := versionLine.FindStringSubmatch(strings.TrimSpace(string(text)))
		if m == nil {
			return nil, fmt.Errorf("KEYJANITOR_TEST_SERVERS: %s --version says %q", p, text)
		}
		b := serverBinary{path: p, product: strings.ToLower(m[1]), jemalloc: strings.HasPrefix(m[5], "jemalloc")}
		b.major, _ = strconv.Atoi(m[2])
		b.minor, _ = strconv.Atoi(m[3])
		b.patch, _ = strconv.Atoi(m[4])
		out = append(out, b)
	}
	return out, nil
}

// needSuite skips where integration tests are not wanted or not possible.
func needSuite(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("integration test: needs servers, skipped under -short")
	}
}

// eachServer runs one test for every server binary.
func eachServer(t *testing.T, fn func(t *testing.T, b serverBinary)) {
	t.Helper()
	eachServerThat(t, func(serverBinary) bool { return true }, "", fn)
}

// eachServerThat runs one test for every server binary that offers what the
// test is about; the others are shown as skipped, with the reason.
func eachServerThat(t *testing.T, offers func(serverBinary) bool, lacks string, fn func(t *testing.T, b serverBinary)) {
	t.Helper()
	needSuite(t)
	if len(binaries) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no redis-server and no valkey-server on the PATH")
		}
		t.Skip("no redis-server and no valkey-server on the PATH (Debian: apt-get install redis-server)")
	}
	for _, b := range binaries {
		t.Run(b.String(), func(t *testing.T) {
			if !offers(b) {
				t.Skipf("%s %s", b, lacks)
			}
			fn(t, b)
		})
	}
}
