package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// withLists returns s with every missing list replaced by an empty one, so
// that a reader may loop over it without asking for null.
func withLists(s jobs.Summary) jobs.Summary {
	s.Shards = list(s.Shards)
	s.Findings = list(s.Findings)
	s.Types = list(s.Types)
	s.Prefixes = list(s.Prefixes)
	s.TTL = list(s.TTL)
	s.Sizes = list(s.Sizes)
	s.Notes = list(s.Notes)
	if s.ActSummary != nil {
		act := *s.ActSummary
		act.Holds = list(act.Holds)
		s.ActSummary = &act
	}
	return s
}

func list[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}

// writeJSON writes v in one Write and ends it with a newline. An empty indent
// keeps it on one line.
func writeJSON(w io.Writer, v any, indent string) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("render json: %w", err)
	}
	_, err := w.Write(escapeUnprintable(buf.Bytes()))
	return err
}

// escapeUnprintable writes DEL, the C1 controls, bidirectional overrides and
// whatever else does not print as \u escapes. encoding/json escapes only what
// is below U+0020; a terminal obeys U+009B as it does ESC [. In JSON such
// runes stand inside strings only, where the escape means the same.
func escapeUnprintable(in []byte) []byte {
	special := func(r rune) bool { return r != '\n' && unprintable(r) }
	if bytes.IndexFunc(in, special) < 0 {
		return in
	}
	out := make([]byte, 0, len(in)+64)
	for len(in) > 0 {
		r, n := utf8.DecodeRune(in)
		switch {
		case !special(r):
			out = append(out, in[:n]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		in = in[n:]
	}
	return out
}
