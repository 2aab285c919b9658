package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// File is a report that was written as JSON.
type File struct {
	Runs    []*jobs.Summary
	Several bool // it is {"runs": […]}, of however many
}

// Read reads a report that Write or WriteRuns wrote as JSON. What is none is
// refused, as is one that says anything this program does not know: the error
// tells the line and the field.
func Read(r io.Reader) (*File, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	d := &decoder{data: data, json: json.NewDecoder(bytes.NewReader(data))}
	switch valid := utf8Prefix(data); {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("the file is empty")
	case valid < len(data):
		return nil, d.fail(int64(valid), "", "not UTF-8; a report in JSON is")
	}
	var runs struct {
		Runs []run `json:"runs"`
	}
	f := &File{Several: d.several()}
	if f.Several {
		err = d.object("", reflect.ValueOf(&runs).Elem())
	} else {
		runs.Runs = make([]run, 1)
		err = d.object("", reflect.ValueOf(&runs.Runs[0]).Elem())
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return nil, d.fail(d.json.InputOffset(), "", "after the report there is more; is it in JSON lines? Write it with --format json")
	}
	for i := range runs.Runs {
		s, err := runs.Runs[i].summary()
		if err != nil {
			return nil, err
		}
		f.Runs = append(f.Runs, s)
	}
	return f, nil
}

// utf8Prefix is how much of data is UTF-8.
func utf8Prefix(data []byte) int {
	for n := 0; n < len(data); {
		r, size := utf8.DecodeRune(data[n:])
		if r == utf8.RuneError && size == 1 {
			return n
		}
		n += size
	}
	return len(data)
}

// run is a summary as it is written.
type run struct {
	jobs.Summary
	Findings    []finding `json:"findings"` // these stand in for the summary's
	TopElements []finding `json:"top_elements,omitempty"`
}

// finding is a jobs.Finding as it is written.
type finding struct {
	Key       string  `json:"key"`
	KeyBase64 *string `json:"key_base64,omitempty"`
	jobs.Finding
}

func (r *run) summary() (*jobs.Summary, error) {
	s := r.Summary
	switch s.Mode {
	case "scan", "report", "execute":
	default:
		return nil, fmt.Errorf("mode is %q; a report is of a scan, a report or an execute", s.Mode)
	}
	if acts := s.ActSummary != nil; acts != (s.Mode != "scan") {
		return nil, fmt.Errorf("mode is %s, which does not go with what it says of outcomes", s.Mode)
	}
	var err error
	if s.Findings, err = named("findings", r.Findings); err != nil {
		return nil, err
	}
	s.TopElements, err = named("top_elements", r.TopElements)
	return &s, err
}

func named(where string, in []finding) ([]jobs.Finding, error) {
	var out []jobs.Finding
	for i, f := range in {
		f.Name = f.Key
		if f.KeyBase64 != nil {
			raw, err := base64.StdEncoding.DecodeString(*f.KeyBase64)
			if err != nil {
				return nil, fmt.Errorf("%s[%d].key_base64: %w", where, i, err)
			}
			f.Name = string(raw)
		}
		out = append(out, f.Finding)
	}
	return out, nil
}

// decoder reads JSON as strictly as encoding/json does not: no unknown field,
// none twice or in another case, none missing that is always written, no null.
type decoder struct {
	data []byte
	json *json.Decoder
}

// several reports whether this is {"runs": […]}. What is no JSON is for the
// reading proper to refuse.
func (d *decoder) several() bool {
	dec := json.NewDecoder(bytes.NewReader(d.data))
	if _, err := dec.Token(); err != nil {
		return false
	}
	key, err := dec.Token()
	return err == nil && key == "runs"
}

// fail says what is wrong, and in which line and field.
func (d *decoder) fail(at int64, where, format string, args ...any) error {
	if where != "" {
		where += ": "
	}
	line := 1 + bytes.Count(d.data[:min(at, int64(len(d.data)))], []byte("\n"))
	return fmt.Errorf("line %d: %s%s", line, where, fmt.Sprintf(format, args...))
}

// token reads the next token, of which is wanted says what it should be.
func (d *decoder) token(where, wanted string) (json.Token, error) {
	t, err := d.json.Token()
	if err != nil {
		return nil, d.broken(where, err)
	}
	if delim, is := t.(json.Delim); wanted != "" && (!is || delim.String() != wanted) {
		return nil, d.fail(d.json.InputOffset(), where, "%v where %s should be", t, map[string]string{
			"{": "an object", "}": "the object's end", "[": "a list", "]": "the list's end",
		}[wanted])
	}
	return t, nil
}

func (d *decoder) broken(where string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.fail(int64(len(d.data)), where, "the file ends in the middle; is it cut off?")
	}
	return d.fail(d.json.InputOffset(), where, "no JSON: %s", err)
}

// object reads an object into a struct.
func (d *decoder) object(where string, into reflect.Value) error {
	if _, err := d.token(where, "{"); err != nil {
		return err
	}
	fields := map[string]*field{}
	collect(into, nil, fields)
	for d.json.More() {
		t, err := d.token(where, "")
		if err != nil {
			return err
		}
		name := t.(string) // the decoder takes nothing else for a key
		f := fields[name]
		switch {
		case f == nil && where == "" && (name == "key" || name == "summary"):
			return d.fail(d.json.InputOffset(), "", "these are JSON lines, which are not read back; write the report with --format json")
		case f == nil:
			return d.fail(d.json.InputOffset(), where, "a report of this version has no %q", name)
		case f.seen:
			return d.fail(d.json.InputOffset(), where, "%q is there twice", name)
		}
		f.seen = true
		if f.part != nil {
			f.part.seen = true
		}
		path := name
		if where != "" {
			path = where + "." + name
		}
		if err := d.value(path, f.value); err != nil {
			return err
		}
	}
	if _, err := d.token(where, "}"); err != nil {
		return err
	}
	var missing []string
	for name, f := range fields {
		if f.required && !f.seen && (f.part == nil || f.part.seen) {
			missing = append(missing, name)
		}
		if f.part != nil && !f.part.seen {
			f.part.value.SetZero()
		}
	}
	if len(missing) > 0 {
		return d.fail(d.json.InputOffset(), where, "no report: %q is missing", slices.Min(missing))
	}
	return nil
}

// field is where one field of an object goes.
type field struct {
	value    reflect.Value
	required bool // it is always written
	seen     bool
	part     *field // the embedded pointer that it belongs to
}

// collect finds the fields of a struct by their names in JSON, those nearer to
// the surface first.
func collect(v reflect.Value, part *field, into map[string]*field) {
	var embedded []func()
	for i := range v.NumField() {
		f, at := v.Type().Field(i), v.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && at.Kind() == reflect.Pointer:
			p := &field{value: at}
			at.Set(reflect.New(f.Type.Elem()))
			embedded = append(embedded, func() { collect(at.Elem(), p, into) })
		case f.Anonymous:
			embedded = append(embedded, func() { collect(at, part, into) })
		case tag != "-" && into[tag] == nil:
			into[tag] = &field{value: at, required: options != "omitempty", part: part}
		}
	}
	for _, e := range embedded {
		e()
	}
}

// most bounds every count, so that those of any number of parts can be added.
const most = 1 << 56

// value reads any value.
func (d *decoder) value(where string, into reflect.Value) error {
	switch {
	case into.Kind() == reflect.Slice && into.Type().Elem().Kind() == reflect.Struct:
		if _, err := d.token(where, "["); err != nil {
			return err
		}
		for i := 0; d.json.More(); i++ {
			into.Grow(1)
			into.SetLen(i + 1)
			if err := d.value(fmt.Sprintf("%s[%d]", where, i), into.Index(i)); err != nil {
				return err
			}
		}
		_, err := d.token(where, "]")
		return err
	case into.Kind() == reflect.Struct && into.Type() != reflect.TypeFor[time.Time]():
		return d.object(where, into)
	}
	var raw json.RawMessage
	if err := d.json.Decode(&raw); err != nil {
		return d.broken(where, err)
	}
	at := d.json.InputOffset()
	if string(raw) == "null" {
		return d.fail(at, where, "null; what is not known is left out")
	}
	if err := json.Unmarshal(raw, into.Addr().Interface()); err != nil {
		if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is {
			return d.fail(at, where, "a JSON %s where %s should be", wrong.Value, article(wrong.Type))
		}
		return d.fail(at, where, "%s", err)
	}
	into = reflect.Indirect(into)
	if n := into; n.Kind() == reflect.Int64 && !strings.HasSuffix(where, ".ttl_ms") && (n.Int() < 0 || n.Int() > most) {
		return d.fail(at, where, "%d can't be", n.Int())
	}
	return nil
}

func article(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return "a text"
}
