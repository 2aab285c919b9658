package report

import (
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// Stream writes findings as they come, so that a run may report more of them
// than fit in memory. Each one has reached the writer when Finding returns.
// It is safe for use by several goroutines.
type Stream struct {
	mu  sync.Mutex
	w   io.Writer
	csv *csv.Writer // nil: JSON lines
}

// columns is the header of a CSV file. The columns from outcome on are empty
// in a scan: one set of columns for every run lets files be joined.
var columns = []string{
	"key", "key_base64", "shard", "db", "type", "encoding", "bytes", "elements", "ttl_ms", "idle_seconds", "slot",
	"outcome", "method", "batches", "took_ms", "slowest_ms", "reason",
}

// NewStream begins a stream of jsonl or csv, whose header row it writes.
func NewStream(w io.Writer, format string) (*Stream, error) {
	streams, err := Streams(format)
	if err != nil {
		return nil, err
	}
	if !streams {
		return nil, fmt.Errorf("format %s takes a whole summary, not findings one by one", format)
	}
	s := &Stream{w: w}
	if format == CSV {
		s.csv = csv.NewWriter(w)
		return s, s.row(slices.Clone(columns))
	}
	return s, nil
}

// Finding writes one finding as a line (jsonl) or a row (csv).
func (s *Stream) Finding(f jobs.Finding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.csv == nil {
		return writeJSON(s.w, f, "")
	}
	name, encoded := csvName(f.Name)
	return s.row([]string{
		name, encoded, f.Shard, strconv.Itoa(f.DB), f.Type, f.Encoding,
		number(f.Bytes), number(f.Elements), number(f.TTLMillis), number(f.IdleSeconds), number(f.Slot),
		f.Outcome, f.Method, count(f.Batches), millis(f.TookMillis), millis(f.SlowestMillis), f.Reason,
	})
}

// Close ends one run: jsonl gets its last line {"summary": {…}}, which leaves
// out the findings; csv has nothing to add. It does not close the writer, and
// where several runs share a file the stream goes on with the next one.
func (s *Stream) Close(sum *jobs.Summary) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.csv != nil {
		return nil
	}
	type line struct {
		jobs.Summary
		// Nearer to the surface than the summary's own, these stand in for them.
		Findings    *struct{} `json:"findings,omitempty"`
		TopElements *struct{} `json:"top_elements,omitempty"`
	}
	return writeJSON(s.w, struct {
		Summary line `json:"summary"`
	}{line{Summary: withLists(*sum)}}, "")
}

func (s *Stream) row(fields []string) error {
	for i := range fields {
		fields[i] = strings.ToValidUTF8(fields[i], "\uFFFD")
	}
	if err := s.csv.Write(fields); err != nil {
		return err
	}
	s.csv.Flush()
	return s.csv.Error()
}

// csvName returns the fields key and key_base64. Besides what is not UTF-8,
// which row replaces, names with a carriage return or a NUL are encoded too:
// CSV readers turn "\r\n" into "\n" even between quotes, and some refuse a
// NUL.
func csvName(name string) (key, encoded string) {
	if utf8.ValidString(name) && !strings.ContainsAny(name, "\r\x00") {
		return name, ""
	}
	return name, base64.StdEncoding.EncodeToString([]byte(name))
}

func number[T int | int64](n *T) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

// count leaves a zero out: no batch was sent, as in a scan.
func count(n int64) string {
	if n == 0 {
		return ""
	}
	return number(&n)
}

func millis(ms *float64) string {
	if ms == nil {
		return ""
	}
	return strconv.FormatFloat(*ms, 'f', -1, 64)
}
