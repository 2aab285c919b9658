package report

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// full has a value in every field that a report can have.
func full(t *testing.T) *jobs.Summary {
	t.Helper()
	s := &jobs.Summary{}
	fill(t, reflect.ValueOf(s).Elem())
	s.Mode = "execute"
	return s
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("é\n")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.25)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0))
		fill(t, v.Index(1))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 30, 3, 0, 0, 123456789, time.FixedZone("", 8*3600))))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("a %s in a summary: how is it read back?", v.Kind())
	}
}

// What was read back and is written again is the same, byte for byte.
func TestRoundTrip(t *testing.T) {
	huge := full(t)
	huge.Findings[0].Name = strings.Repeat("\x00\xff<消", 1<<15)
	for name, runs := range map[string][]*jobs.Summary{
		"nothing": {scan(0)}, "one": {scan(1)}, "hostile": {scan(len(hostile))}, "act": {cluster("execute", 20)}, "report": {cluster("report", 3)},
		"full": {full(t)}, "huge": {huge}, "several": {scan(20), cluster("execute", 4)}, "none": {},
	} {
		text := render(t, JSON, runs)
		f, err := Read(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Several != (len(runs) != 1) || len(f.Runs) != len(runs) {
			t.Errorf("%s: %d runs, several %v", name, len(f.Runs), f.Several)
		}
		if again := render(t, JSON, f.Runs); !bytes.Equal(again, text) {
			t.Errorf("%s comes back as\n%.3000s\nwant\n%.3000s", name, again, text)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(&compact); err != nil {
			t.Errorf("%s on one line: %v", name, err)
		}
	}
	s := full(t)
	f, err := Read(bytes.NewReader(render(t, JSON, []*jobs.Summary{s})))
	if err != nil || !reflect.DeepEqual(f.Runs[0].Findings, s.Findings) {
		t.Errorf("findings %+v, want %+v (%v)", f.Runs[0].Findings, s.Findings, err)
	}
}

func TestReadRefuses(t *testing.T) {
	good := string(render(t, JSON, []*jobs.Summary{scan(2)}))
	act := string(render(t, JSON, []*jobs.Summary{cluster("execute", 2)}))
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %s in\n%s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", " \n", "the file is empty"},
		{"no JSON", "Scan on msg: complete", "line 1: no JSON: invalid character 'S'"},
		{"a list", "[]", "line 1: [ where an object should be"},
		{"another object", `{"a": 1}`, `line 1: a report of this version has no "a"`},
		{"nothing in it", "{}", `line 1: no report: "bytes_matched" is missing`},
		{"JSON lines", `{"key":"a","shard":"s","db":0}` + "\n", "line 1: these are JSON lines"},
		{"the last of JSON lines", `{"summary":{}}`, "line 1: these are JSON lines"},
		{"two reports", good + good, "after the report there is more"},
		{"cut off", good[:len(good)/2], "the file ends in the middle; is it cut off?"},
		{"cut off at the end", strings.TrimSuffix(good, "}\n"), "the file ends in the middle"},
		{"not UTF-8", swap(`"msg"`, "\"m\xff\""), "line 2: not UTF-8"},
		{"an unknown field", swap(`"target"`, `"tarjet"`), `line 2: a report of this version has no "tarjet"`},
		{"another case", swap(`"target"`, `"Target"`), `line 2: a report of this version has no "Target"`},
		{"twice", swap(`"target": "msg",`, `"target": "msg", "target": "x",`), `line 2: "target" is there twice`},
		{"null", swap(`"complete": true`, `"complete": null`), "line 6: complete: null; what is not known is left out"},
		{"a null list", swap(`"notes": []`, `"notes": null`), "notes: null"},
		{"a missing field", swap(`"complete": true,`, ``), `no report: "complete" is missing`},
		{"an unknown field of a key", swap(`"encoding"`, `"encodign"`), `findings[0]: a report of this version has no "encodign"`},
		{"a missing field of a key", swap(`"key": "mi:1",`, ``), `findings[1]: no report: "key" is missing`},
		{"a text for a number", swap(`"bytes": 209715200`, `"bytes": "200M"`), `findings[0].bytes: a JSON string where a whole number should be`},
		{"half a byte", swap(`"bytes": 209715200`, `"bytes": 0.5`), `findings[0].bytes: a JSON number 0.5 where a whole number should be`},
		{"a negative count", swap(`"keys_scanned": 500004,`, `"keys_scanned": -1,`), `keys_scanned: -1 can't be`},
		{"too large a count", swap(`"keys": 300000`, `"keys": 9000000000000000000`), `types[0].keys: 9000000000000000000 can't be`},
		{"a bad time", swap(`"2026-11-30T03:00:00Z"`, `"yesterday"`), `line 4: started: `},
		{"bad base64", swap(`"key": "mi:0"`, `"key": "mi:0", "key_base64": "*"`), `findings[0].key_base64: illegal base64`},
		{"an object for a list", swap(`"shards": [`, `"shards": {`), "where a list should be"},
		{"a mode that is none", swap(`"scan"`, `"watch"`), `mode is "watch"`},
		{"a mode without its outcomes", swap(`"scan"`, `"execute"`), "mode is execute, which does not go with"},
		{"outcomes of a scan", strings.Replace(act, `"execute"`, `"scan"`, 1), "mode is scan, which does not go with"},
		{"outcomes without a part", strings.Replace(act, `"failed": 5,`, ``, 1), `outcomes: no report: "failed" is missing`},
		{"no outcomes but holds", strings.Replace(act, `"elements_removed": 3500000,`, ``, 1), `"elements_removed" is missing`},
		{"runs and more", `{"runs": [], "more": 1}`, `has no "more"`},
		{"runs that are no list", `{"runs": {}}`, "runs: { where a list should be"},
		{"deep", strings.Repeat("[", 1<<16), "where an object should be"},
	} {
		_, err := Read(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// Whatever is in a file, reading it ends with a report or an error.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"", "{", `{"runs":[{}]}`, `{"findings":[{"key":"a"}]}`, `{"started":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Read(strings.NewReader(text))
		if (file == nil) == (err == nil) {
			t.Errorf("%v, %v", file, err)
		}
	})
}
