package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// operator runs the binary in a working directory of its own, so that the
// default state directory is its own, too.
type operator struct {
	t   *testing.T
	dir string
	env []string
}

func newOperator(t *testing.T, env ...string) *operator {
	t.Helper()
	needSuite(t)
	if _, err := janitor(); err != nil {
		t.Fatal(err)
	}
	return &operator{t: t, dir: t.TempDir(), env: env}
}

// running is one run of the binary that has not ended yet.
type running struct {
	t       *testing.T
	args    []string
	cmd     *exec.Cmd
	out     syncBuffer
	err     syncBuffer
	started time.Time
	done    chan struct{}
	stop    context.CancelFunc
	ctx     context.Context
}

// syncBuffer may be read while the process still writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start begins a run with nothing on its standard input.
func (o *operator) start(t *testing.T, args ...string) *running {
	t.Helper()
	return o.startIn(t, nil, args...)
}

func (o *operator) startIn(t *testing.T, stdin io.Reader, args ...string) *running {
	t.Helper()
	bin, err := janitor()
	if err != nil {
		t.Fatal(err)
	}
	c, cancel := context.WithTimeout(context.Background(), size.runLimit)
	r := &running{t: t, args: args, started: time.Now(), done: make(chan struct{}), stop: cancel, ctx: c}
	r.cmd = exec.CommandContext(c, bin, args...)
	r.cmd.Dir, r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = o.dir, stdin, &r.out, &r.err
	r.cmd.WaitDelay = 2 * time.Second
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "KEYJANITOR_") {
			r.cmd.Env = append(r.cmd.Env, e)
		}
	}
	r.cmd.Env = append(r.cmd.Env, o.env...)
	dieWithTests(r.cmd)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.done) }()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// run is start and wait.
func (o *operator) run(t *testing.T, args ...string) result {
	t.Helper()
	return o.start(t, args...).wait()
}

func (o *operator) runIn(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return o.startIn(t, strings.NewReader(stdin), args...).wait()
}

// file writes a file into the working directory.
func (o *operator) file(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(o.dir, name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func (o *operator) read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(o.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// forget removes the state directory: a run from another machine has none.
func (o *operator) forget(t *testing.T) {
	t.Helper()
	p := filepath.Join(o.dir, "keyjanitor-state")
	if _, err := os.Stat(p); err != nil {
		t.Errorf("no state directory at its default place: %v", err)
	}
	if err := os.RemoveAll(p); err != nil {
		t.Fatal(err)
	}
}

func (r *running) wait() result {
	r.t.Helper()
	<-r.done
	res := result{t: r.t, args: r.args, stdout: r.out.String(), stderr: r.err.String(),
		code: r.cmd.ProcessState.ExitCode(), took: time.Since(r.started)}
	if errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		res.fatal("did not end within %v", size.runLimit)
	}
	r.stop()
	if strings.Contains(res.stderr, "panic: ") || strings.Contains(res.stderr, "goroutine 1 [") {
		res.fatal("panicked")
	}
	return res
}

// ended says whether the run is over, without waiting.
func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *running) signal(sig syscall.Signal) { _ = r.cmd.Process.Signal(sig) }

// result is one run of the binary.
type result struct {
	t      *testing.T
	args   []string
	stdout string
	stderr string
	code   int
	took   time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("keyjanitor %.600q\n  exit %d after %v\n  stdout: %s\n  stderr: %s",
		r.args, r.code, r.took.Round(time.Millisecond), clip(r.stdout), clip(r.stderr))
}

func clip(s string) string {
	if len(s) > 3000 {
		return s[:1500] + "\n  […]\n" + s[len(s)-1500:]
	}
	return s
}

func (r result) fatal(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s\n%v", fmt.Sprintf(format, args...), r)
}

func (r result) error(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("%s\n%v", fmt.Sprintf(format, args...), r)
}

// exit fails the test unless the run ended with one of these statuses.
func (r result) exit(codes ...int) result {
	r.t.Helper()
	if !slices.Contains(codes, r.code) {
		r.fatal("exit status %d, want %v", r.code, codes)
	}
	return r
}

// says fails unless standard error holds this text.
func (r result) says(text string) result {
	r.t.Helper()
	if !strings.Contains(r.stderr, text) {
		r.error("standard error does not say %q", text)
	}
	return r
}

// summary decodes the one object that --format json writes.
func (r result) summary() summary {
	r.t.Helper()
	return r.decode([]byte(r.stdout))
}

func (r result) decode(text []byte) summary {
	r.t.Helper()
	s := summary{from: r}
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&s); err != nil {
		r.fatal("standard output is not a summary: %v", err)
	}
	if dec.More() {
		r.fatal("standard output has more than one object")
	}
	return s
}

// runs decodes what `run` writes.
func (r result) runs() map[string]summary {
	r.t.Helper()
	var raw struct {
		Runs []json.RawMessage `json:"runs"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &raw); err != nil || raw.Runs == nil {
		r.fatal("standard output is not {\"runs\": […]}: %v", err)
	}
	out := map[string]summary{}
	for _, one := range raw.Runs {
		s := r.decode(one)
		out[s.Job] = s
	}
	return out
}

// stream decodes JSON lines: findings, then the summary, and nothing after.
func (r result) stream() ([]finding, summary) {
	r.t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	var found []finding
	for i, line := range lines {
		var one struct {
			finding
			Summary json.RawMessage `json:"summary"`
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			r.fatal("line %d is not JSON: %v: %.200q", i+1, err, line)
		}
		if last := i == len(lines)-1; last != (one.Summary != nil) {
			r.fatal("line %d of %d: the summary is the last line and only that: %.200q", i+1, len(lines), line)
		}
		if one.Summary != nil {
			return found, r.decode(one.Summary)
		}
		found = append(found, one.finding)
	}
	r.fatal("no summary")
	return nil, summary{}
}

// summary, finding and shard repeat the contract of DESIGN.md section 4 as a
// reader of the output would: values that may be absent are pointers.
type summary struct {
	from result

	Job             string           `json:"job"`
	Target          *string          `json:"target"`
	Mode            string           `json:"mode"`
	Started         time.Time        `json:"started"`
	Finished        time.Time        `json:"finished"`
	Complete        *bool            `json:"complete"`
	Shards          []shard          `json:"shards"`
	KeysScanned     int64            `json:"keys_scanned"`
	KeysMatched     int64            `json:"keys_matched"`
	Bytes           int64            `json:"bytes_matched"`
	Findings        []finding        `json:"findings"`
	Notes           []string         `json:"notes"`
	Outcomes        map[string]int64 `json:"outcomes"`
	ElementsRemoved *int64           `json:"elements_removed"`
	BytesReleased   *int64           `json:"bytes_released"`
	StoppedBy       string           `json:"stopped_by"`
	Holds           []struct {
		Reason  string  `json:"reason"`
		Seconds float64 `json:"seconds"`
	} `json:"holds"`
	Error string `json:"error"`
}

type shard struct {
	ID          string `json:"id"`
	Addr        string `json:"addr"`
	DB          int    `json:"db"`
	Role        string `json:"role"`
	Server      string `json:"server"`
	KeysTotal   int64  `json:"keys_total"`
	KeysScanned int64  `json:"keys_scanned"`
	Error       string `json:"error"`
}

type finding struct {
	Key       *string  `json:"key"`
	KeyBase64 *string  `json:"key_base64"`
	Shard     string   `json:"shard"`
	DB        int      `json:"db"`
	Type      string   `json:"type"`
	Encoding  string   `json:"encoding"`
	Bytes     *int64   `json:"bytes"`
	Elements  *int64   `json:"elements"`
	TTL       *int64   `json:"ttl_ms"`
	Slot      *int     `json:"slot"`
	Outcome   string   `json:"outcome"`
	Method    string   `json:"method"`
	Batches   int64    `json:"batches"`
	Took      *float64 `json:"took_ms"`
	Reason    string   `json:"reason"`
}

// name is the raw name of a finding's key.
func (f finding) name(t *testing.T) string {
	t.Helper()
	if f.Key == nil {
		t.Fatalf("a finding has no key: %+v", f)
	}
	if f.KeyBase64 == nil {
		return *f.Key
	}
	raw, err := base64.StdEncoding.DecodeString(*f.KeyBase64)
	if err != nil {
		t.Fatalf("key_base64 %q: %v", *f.KeyBase64, err)
	}
	if utf8.Valid(raw) {
		t.Errorf("key_base64 is there though %q is valid UTF-8", raw)
	}
	return string(raw)
}

func (f finding) id(t *testing.T) keyID {
	t.Helper()
	return keyID{f.DB, f.name(t)}
}

// outcomeNames are the twelve of the contract; all are present, zeros too.
var outcomeNames = []string{"unlinked", "deleted", "drained", "trashed", "trimmed", "expired", "finished",
	"gone", "changed", "protected", "failed", "would_act"}

// outcomes fails unless the run's outcomes are exactly these.
func (s summary) outcomes(want map[string]int64) {
	r := s.from
	r.t.Helper()
	for _, n := range outcomeNames {
		got, there := s.Outcomes[n]
		if !there {
			r.error("outcomes has no %q", n)
		} else if got != want[n] {
			r.error("outcomes.%s is %d, want %d", n, got, want[n])
		}
	}
}

// removed adds up the keys that the run itself made disappear.
func (s summary) removed() int64 {
	return s.Outcomes["unlinked"] + s.Outcomes["deleted"] + s.Outcomes["drained"]
}

// complete fails unless every shard was scanned to its end.
func (s summary) complete(want bool) {
	s.from.t.Helper()
	if s.Complete == nil || *s.Complete != want {
		s.from.error("complete is not %v", want)
	}
}
