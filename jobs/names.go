package jobs

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"
)

// Named is a key that somebody named.
type Named struct {
	Name string
	DB   int
	Type string // "" if not said; else the key must still be of it
}

// longestName bounds a name in a file: what Redis itself takes, base64 and
// all. A file without line ends is not read into memory whole.
const longestName = 700 << 20

// NamesFromJSON reads keys as scan writes them, one JSON object a line: key,
// or key_base64 where it is there; db, else the given one; type. The line of
// the summary is passed over; the first that can't be read ends the sequence
// with an error that says where.
func NamesFromJSON(r io.Reader, db int) iter.Seq2[Named, error] {
	return func(yield func(Named, error) bool) {
		lines := lineScanner(r, bufio.ScanLines)
		n := 1
		for ; lines.Scan(); n++ {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			named, ok, err := nameFromJSON(line, db)
			if err != nil {
				yield(Named{}, fmt.Errorf("line %d: %w", n, err))
				return
			}
			if ok && !yield(named, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Named{}, fmt.Errorf("line %d: %w", n, err))
		}
	}
}

func nameFromJSON(line []byte, db int) (Named, bool, error) {
	var in struct {
		Key       *string         `json:"key"`
		KeyBase64 *string         `json:"key_base64"`
		DB        *int            `json:"db"`
		Type      string          `json:"type"`
		Summary   json.RawMessage `json:"summary"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return Named{}, false, fmt.Errorf(`not a JSON object with a key: %w; write {"key":"…"}, or use --null for plain names that end in NUL`, err)
	}
	n := Named{DB: db, Type: in.Type}
	if in.DB != nil {
		n.DB = *in.DB
	}
	switch {
	case in.KeyBase64 != nil:
		raw, err := base64.StdEncoding.DecodeString(*in.KeyBase64)
		if err != nil {
			return Named{}, false, fmt.Errorf("key_base64: %w", err)
		}
		n.Name = string(raw)
	case in.Key != nil:
		if !utf8.Valid(line) {
			return Named{}, false, errors.New("key is not valid UTF-8, so it is not the name it looks like; write key_base64")
		}
		n.Name = *in.Key
	case in.Summary != nil:
		return Named{}, false, nil
	default:
		return Named{}, false, errors.New(`an object without "key" or "key_base64"`)
	}
	return n, true, nil
}

// NamesFromNull reads plain names, each ended by a NUL byte.
func NamesFromNull(r io.Reader, db int) iter.Seq2[Named, error] {
	return func(yield func(Named, error) bool) {
		names := lineScanner(r, splitNull)
		for names.Scan() {
			if !yield(Named{Name: names.Text(), DB: db}, nil) {
				return
			}
		}
		if err := names.Err(); err != nil {
			yield(Named{}, err)
		}
	}
}

func lineScanner(r io.Reader, split bufio.SplitFunc) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), longestName)
	s.Split(split)
	return s
}

func splitNull(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, fmt.Errorf("the last name, %q, does not end in NUL; is the file cut off?", data[:min(len(data), 40)])
	}
	return 0, nil, nil
}
