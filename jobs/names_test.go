package jobs

import (
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func collect(seq iter.Seq2[Named, error]) (names []Named, err error) {
	for n, e := range seq {
		if e != nil {
			return names, e
		}
		names = append(names, n)
	}
	return names, nil
}

func TestNamesFromJSON(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Named
		err        string // part of the error
	}{
		{"nothing", "", nil, ""},
		{"empty lines", "\n\r\n  \n", nil, ""},
		{"a name", `{"key":"a"}`, []Named{{"a", 7, ""}}, ""},
		{"database and type", `{"key":"a","db":3,"type":"hash"}` + "\n", []Named{{"a", 3, "hash"}}, ""},
		{"database 0 is not the default", `{"key":"a","db":0}`, []Named{{"a", 0, ""}}, ""},
		{"no name at all is a name", `{"key":""}`, []Named{{"", 7, ""}}, ""},
		{"escapes", `{"key":"a\nb\u0000c é\""}`, []Named{{"a\nb\x00c é\"", 7, ""}}, ""},
		{"base64 wins", `{"key":"\ufffd","key_base64":"/w=="}`, []Named{{"\xff", 7, ""}}, ""},
		{"base64 alone", `{"key_base64":""}`, []Named{{"", 7, ""}}, ""},
		{"CR LF", "{\"key\":\"a\"}\r\n{\"key\":\"b\"}\r\n", []Named{{"a", 7, ""}, {"b", 7, ""}}, ""},
		{"the summary", `{"key":"a"}` + "\n" + `{"summary":{"key":"b","keys_matched":1}}` + "\n", []Named{{"a", 7, ""}}, ""},
		{"other fields", `{"shard":"s/0","key":"a","bytes":12,"slot":3,"outcome":"gone"}`, []Named{{"a", 7, ""}}, ""},
		{"no end of the last line", "{\"key\":\"a\"}\n{\"key\":\"b\"}", []Named{{"a", 7, ""}, {"b", 7, ""}}, ""},
		{"a key named summary", `{"key":"summary","summary":1}`, []Named{{"summary", 7, ""}}, ""},

		{"an audit", `{"kind":"intents","db":2,"keys":["a","b"]}` + "\n" + `{"kind":"intents","keys_base64":["/w=="]}` + "\n" +
			`{"kind":"intent","key":"c","type":"hash"}` + "\n" + `{"kind":"result","key":"c"}` + "\n" + `{"kind":"results","count":2}`,
			[]Named{{"a", 2, ""}, {"b", 2, ""}, {"\xff", 7, ""}, {"c", 7, "hash"}}, ""},

		{"plain names", "a\nb\n", nil, "line 1: "},
		{"cut off", "{\"key\":\"a\"}\n\n{\"key\":\n", []Named{{"a", 7, ""}}, "line 3: "},
		{"no key", `{"db":1}`, nil, `line 1: an object without "key"`},
		{"null", `{"key":null}`, nil, `without "key"`},
		{"a list", `["a"]`, nil, "line 1: "},
		{"database of the wrong kind", `{"key":"a","db":"0"}`, nil, "line 1: "},
		{"broken base64", `{"key":"a","key_base64":"***"}`, nil, "line 1: key_base64"},
		{"not UTF-8", "{\"key\":\"a\xff\"}", nil, "line 1: key is not valid UTF-8"},
		{"half of a pair", `{"key":"\udcff"}`, nil, "line 1: key has half"},
		{"the character itself", `{"key":"\ufffd"}`, []Named{{"\uFFFD", 7, ""}}, ""},
		{"database below 0", `{"key":"a","db":-1}`, nil, "line 1: db is -1"},
		{"two on a line", `{"key":"a"}{"key":"b"}`, nil, "line 1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := collect(NamesFromJSON(strings.NewReader(c.text), 7))
			if !slices.Equal(got, c.want) {
				t.Errorf("names %v, want %v", got, c.want)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		})
	}
}

// What a report writes comes back as it was, whatever the name.
func TestNamesComeBack(t *testing.T) {
	var b strings.Builder
	var want []Named
	for i, name := range append(hostile, `"`, `\`, "\u2028", "<&>", "�") {
		line, err := json.Marshal(Finding{Name: name, DB: i, Type: "list", Bytes: num(5)})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
		want = append(want, Named{name, i, "list"})
	}
	got, err := collect(NamesFromJSON(iotest.OneByteReader(strings.NewReader(b.String())), 99))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("names came back as %.200v", got)
	}
}

func TestNamesFromNull(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
		err        string
	}{
		{"nothing", "", nil, ""},
		{"names", "a\x00b c\x00\n\x00\xff\x00", []string{"a", "b c", "\n", "\xff"}, ""},
		{"the empty name", "\x00a\x00\x00", []string{"", "a", ""}, ""},
		{"cut off", "a\x00bcd", []string{"a"}, `"bcd"`},
		{"no NUL anywhere", "a\nb\n", nil, "does not end in NUL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seq, err := collect(NamesFromNull(iotest.HalfReader(strings.NewReader(c.text)), 5))
			var got []string
			for _, n := range seq {
				if n.DB != 5 || n.Type != "" {
					t.Errorf("%+v, want database 5 and any type", n)
				}
				got = append(got, n.Name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("names %q, want %q", got, c.want)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		})
	}
}

// A file that can't be read to its end is an error, never a shorter list.
func TestNamesOfAFailingFile(t *testing.T) {
	broken := errors.New("the disk is gone")
	for name, read := range map[string]func(io.Reader, int) iter.Seq2[Named, error]{"json": NamesFromJSON, "null": NamesFromNull} {
		text := map[string]string{"json": "{\"key\":\"a\"}\n", "null": "a\x00"}[name]
		got, err := collect(read(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), 0))
		if len(got) != 1 || !errors.Is(err, broken) {
			t.Errorf("%s: names %v and error %v", name, got, err)
		}
	}
}

// The reader may stop at any name.
func TestNamesStop(t *testing.T) {
	for range NamesFromJSON(strings.NewReader("{\"key\":\"a\"}\n{\"key\":\"b\"}\n"), 0) {
		break
	}
	for range NamesFromNull(strings.NewReader("a\x00b\x00"), 0) {
		break
	}
}
