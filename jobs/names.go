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
	"regexp"
	"strings"
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
// or key_base64 where it is there; db, else the given one; type. It takes an
// audit too. The line of the summary is passed over; the first that can't be read ends the sequence
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
			names, err := namesOfLine(line, db)
			if err != nil {
				yield(Named{}, fmt.Errorf("line %d: %w", n, err))
				return
			}
			for _, named := range names {
				if !yield(named, nil) {
					return
				}
			}
		}
		if err := lines.Err(); err != nil {
			yield(Named{}, fmt.Errorf("line %d: %w", n, err))
		}
	}
}

// fffd is the escape of the character that stands for what is no character.
var fffd = regexp.MustCompile(`\\u[fF]{3}[dD]`)

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func namesOfLine(line []byte, db int) ([]Named, error) {
	var in struct {
		Key        *string         `json:"key"`
		KeyBase64  *string         `json:"key_base64"`
		Keys       []string        `json:"keys"`
		KeysBase64 []string        `json:"keys_base64"`
		DB         *int            `json:"db"`
		Type       string          `json:"type"`
		Kind       string          `json:"kind"`
		Summary    json.RawMessage `json:"summary"`
	}
	err := json.Unmarshal(line, &in)
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field != "" {
		return nil, fmt.Errorf("%s is a JSON %s; write what scan writes", wrong.Field, wrong.Value)
	} else if is {
		return nil, fmt.Errorf(`a JSON %s and no object; write {"key":"…"}`, wrong.Value)
	}
	if err != nil {
		return nil, fmt.Errorf(`not a JSON object with a key: %w; write {"key":"…"}, or use --null for plain names that end in NUL`, err)
	}
	if in.DB != nil {
		db = *in.DB
	}
	if db < 0 {
		return nil, fmt.Errorf("db is %d; write the number of a database, 0 or above", db)
	}
	switch {
	case in.Kind == "result", in.Kind == "results":
		return nil, nil // the intents of an audit name the keys
	case in.KeyBase64 != nil:
		in.KeysBase64 = []string{*in.KeyBase64}
	case len(in.KeysBase64) > 0:
	case in.Key == nil && len(in.Keys) == 0 && in.Summary != nil:
		return nil, nil
	case in.Key == nil && len(in.Keys) == 0:
		return nil, errors.New(`an object without "key" or "key_base64"`)
	case !utf8.Valid(line):
		return nil, errors.New("key is not valid UTF-8, so it is not the name it looks like; write key_base64")
	case strings.Contains(strings.Join(append(in.Keys, deref(in.Key)), ""), "\uFFFD") && !bytes.Contains(line, []byte("\uFFFD")) && !fffd.Match(line):
		return nil, errors.New("key has half of a surrogate pair, so it is not the name it looks like; write key_base64")
	case in.Key != nil:
		in.Keys = []string{*in.Key}
	}
	var names []Named
	for _, text := range in.KeysBase64 {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("key_base64: %w", err)
		}
		names = append(names, Named{Name: string(raw), DB: db, Type: in.Type})
	}
	if names == nil {
		for _, name := range in.Keys {
			names = append(names, Named{Name: name, DB: db, Type: in.Type})
		}
	}
	return names, nil
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
