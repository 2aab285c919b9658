package config

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Reveal returns the text itself. Its one use is to log in at a server.
func (s Secret) Reveal() string { return string(s) }

// String tells whether there is a secret, and nothing of it.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString keeps %#v from showing the text.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format keeps every other verb, such as %x or a mistaken %d, from showing
// the text.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		io.WriteString(f, s.GoString())
		return
	}
	io.WriteString(f, s.String())
}

// LogValue keeps the text out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps the text out of every encoding that asks for text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON keeps the text out of JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", s.String()), nil }

// MarshalYAML keeps the text out of YAML.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
