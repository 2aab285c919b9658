package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func noenv(string) string { return "" }

func TestReferenceHoldsTheDefaults(t *testing.T) {
	data, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("config.yaml", data, noenv)
	if err != nil {
		t.Fatal(err)
	}
	keep := int64(10000)
	actions := []Action{
		{Trim: &Trim{Keep: &keep, KeepEnd: KeepTail}},
		{Trim: &Trim{OlderThan: Duration(24 * time.Hour), Score: UnixSeconds}},
		{Trim: &Trim{OlderThan: Duration(7 * 24 * time.Hour)}},
		{Expire: &Expire{TTL: Duration(30 * 24 * time.Hour)}},
		{Defuse: &Defuse{Lead: DefaultLead}},
		{PruneIndex: &PruneIndex{OlderThan: Duration(14 * 24 * time.Hour), Value: UnixSeconds}},
	}
	for i, j := range got.Jobs[1:] {
		if !reflect.DeepEqual(j.Action, actions[i]) {
			t.Errorf("job %s: action %s, want %s", j.Name, j.Action.Kind(), actions[i].Kind())
		}
	}
	got.Jobs = got.Jobs[:1]
	want := &Config{
		Targets: map[string]Target{
			"msg":     {Name: "msg", Addresses: []string{"127.0.0.1:7000"}, Mode: ModeAuto, AddressMap: map[string]string{}},
			"msg-tls": {Name: "msg-tls", Addresses: []string{"redis.example.com:6380"}, Mode: ModeAuto, TLS: &TLS{}},
		},
		Pace:     DefaultPace(),
		HoldWhen: DefaultHoldWhen(),
		StateDir: DefaultStateDir,
		Jobs: []Job{{
			Name:   "old-messages",
			Target: "msg",
			Select: Select{Match: []string{"mi:*"}, MinElements: 10000},
			Action: Action{Delete: &Delete{Method: MethodAuto}},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	// What a file says nothing about has the same values.
	short, err := Parse("short.yaml", []byte(`{targets: {msg: {addresses: "127.0.0.1:7000"}}, jobs: [
		{name: old-messages, target: msg, select: {match: "mi:*", min_elements: 10000}, action: {delete: {}}}]}`), noenv)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(short.Jobs, got.Jobs) || short.Pace != got.Pace || short.StateDir != got.StateDir {
		t.Errorf("defaults\n%+v\ndiffer from the reference\n%+v", short, got)
	}
}

// The message for an unknown key names the keys there are: each must be in
// the reference.
func TestReferenceHasEveryKey(t *testing.T) {
	data, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("x", []byte(`{zzzzzz: 1, pace: {zzzzzz: 1}, hold_when: {zzzzzz: 1}, targets: {a: {zzzzzz: 1, tls: {zzzzzz: 1}}},
		jobs: [{zzzzzz: 1, select: {zzzzzz: 1}, action: {zzzzzz: 1, delete: {zzzzzz: 1}, trim: {zzzzzz: 1}, expire: {zzzzzz: 1}, defuse: {zzzzzz: 1}, prune_index: {zzzzzz: 1}}, limits: {zzzzzz: 1}}]}`), noenv)
	lists := regexp.MustCompile(`the keys here are (.*)`).FindAllStringSubmatch(err.Error(), -1)
	if len(lists) != 14 {
		t.Fatalf("%d lists of keys, want 14:\n%v", len(lists), err)
	}
	for _, list := range lists {
		for key := range strings.SplitSeq(list[1], ", ") {
			if !regexp.MustCompile(`(?m)^[ -]*` + key + `:`).Match(data) {
				t.Errorf("config.yaml lacks %s", key)
			}
		}
	}
}

func TestFullFile(t *testing.T) {
	env := map[string]string{"HOST": "10.0.0.1", "USER_NAME": "janitor", "DIR": "testdata"}
	got, err := Parse("x", []byte(`---
targets:
  prod:
    addresses:
    - "${HOST}:7000"
    - "[::1]:7001"
    mode: cluster
    username: ${USER_NAME}
    password_file: ${DIR}/password
    db: 0
    tls: {ca_file: /ca.pem, cert_file: /c.pem, key_file: /k.pem, server_name: redis}
    address_map: {"10.1.1.1:7000": "nat:17000"}
  sock: {addresses: [/run/redis.sock], mode: standalone, db: [0, 3], password: "a$Q${x-y}b"}
protect: "session:*"
pace: {target_latency: 500us, max_share: 12.5%, scan_share: "100%", commands_per_second: 10, elements_per_second: 20, bytes_per_second: 1MB, parallel: 1, per_shard: {commands_per_second: 5, elements_per_second: 6, bytes_per_second: 7KB}}
hold_when: {replica_lag: 10s, snapshot: false, flag_file: /run/hold, only_between: "22:30-05:00"}
stop_when: {memory: 99%, evictions: 100}
state_dir: /var/lib/keyjanitor
jobs:
  - name: all
    target: prod
    schedule: 0 3 * * *
    timezone: Asia/Shanghai
    select: {match: ["${HOST}*"], prefix: "cache[ab]:", exclude: ['a\*'], types: [hash, ReJSON-RL], min_elements: 5,
             min_bytes: 1.5KiB, ttl_under: 1h30m, ttl_over: 15m, all_keys: true}
    action: {delete: {method: drain}}
    limits: {max_keys: 7, max_bytes: 10GiB, max_percent: 5%, time: 2h}
    mode: execute
`), func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	hold := DefaultHoldWhen() // what is not written stays as it is
	hold.ReplicaLag, hold.Snapshot, hold.FlagFile = Duration(10*time.Second), false, "/run/hold"
	hold.OnlyBetween = []Window{{From: 22*time.Hour + 30*time.Minute, To: 5 * time.Hour}}
	want := &Config{
		HoldWhen: hold,
		StopWhen: Signals{Memory: 99, Evictions: 100},
		Targets: map[string]Target{
			"prod": {
				Name: "prod", Addresses: []string{"10.0.0.1:7000", "[::1]:7001"}, Mode: ModeCluster,
				Username: "janitor", Password: "p@$Q${HOME}%%", DBs: []int{0},
				TLS:        &TLS{CAFile: "/ca.pem", CertFile: "/c.pem", KeyFile: "/k.pem", ServerName: "redis"},
				AddressMap: map[string]string{"10.1.1.1:7000": "nat:17000"},
			},
			"sock": {Name: "sock", Addresses: []string{"/run/redis.sock"}, Mode: ModeStandalone, DBs: []int{0, 3}, Password: "a$Q${x-y}b"},
		},
		Protect: []string{"session:*"},
		Pace: Pace{
			TargetLatency: Duration(500 * time.Microsecond), MaxShare: 12.5, ScanShare: 100,
			Budget: Budget{CommandsPerSecond: 10, ElementsPerSecond: 20, BytesPerSecond: 1e6}, Parallel: 1,
			PerShard: Budget{CommandsPerSecond: 5, ElementsPerSecond: 6, BytesPerSecond: 7000},
		},
		StateDir: "/var/lib/keyjanitor",
		Jobs: []Job{{
			Name: "all", Target: "prod", Schedule: "0 3 * * *", Timezone: "Asia/Shanghai",
			Select: Select{
				Match: []string{"${HOST}*"}, Prefix: []string{"cache[ab]:"}, Exclude: []string{`a\*`}, Types: []string{"hash", "ReJSON-RL"},
				MinElements: 5, MinBytes: 1536, TTLUnder: Duration(90 * time.Minute), TTLOver: Duration(15 * time.Minute), AllKeys: true,
			},
			Action:  Action{Delete: &Delete{Method: MethodDrain}},
			Limits:  Limits{MaxKeys: 7, MaxBytes: 10 << 30, MaxPercent: 5, Time: Duration(2 * time.Hour)},
			Execute: true,
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if p := got.Targets["prod"].Password.Reveal(); p != "p@$Q${HOME}%%" {
		t.Errorf("password %q", p)
	}
}

// The parser's own reading of a colon within brackets is not YAML's.
func TestColonsWithinBrackets(t *testing.T) {
	got, err := Parse("x", []byte(`targets: {a: {addresses: [h:1, g:2 ], username: u:v, password: p:q, address_map: {10.0.0.1:7000: h:3, k:4 : "x:1"}}}
protect: [mi:x, a:b:c]
`), noenv)
	if err != nil {
		t.Fatal(err)
	}
	want := Target{
		Name: "a", Addresses: []string{"h:1", "g:2"}, Mode: ModeAuto, Username: "u:v", Password: "p:q",
		AddressMap: map[string]string{"10.0.0.1:7000": "h:3", "k:4": "x:1"},
	}
	if !reflect.DeepEqual(got.Targets["a"], want) || !slices.Equal(got.Protect, []string{"mi:x", "a:b:c"}) {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsLegal(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}", "jobs: []\n", "\ufeffjobs: []\r\n", "targets: {a: {addresses: ['h:1']}}"} {
		c, err := Parse("x", []byte(text), noenv)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if c.Pace != DefaultPace() || c.StateDir != DefaultStateDir || len(c.Jobs) > 0 {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	t.Setenv("KEYJANITOR_TEST_HOST", "h")
	if err := os.WriteFile(path, []byte(`targets: {a: {addresses: "${KEYJANITOR_TEST_HOST}:1"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil || !slices.Equal(c.Targets["a"].Addresses, []string{"h:1"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.WriteFile(path, []byte("a: 1\nb: 2"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(path)
	var all *Error
	if !errors.As(err, &all) || len(all.Problems) != 2 || all.Problems[1].Line != 2 || all.Problems[1].File != path {
		t.Errorf("got %v", err)
	}
}

// However wrong the file, what may be a password shows in no message.
func TestPasswordInNoError(t *testing.T) {
	const secret = "hunter2"
	for _, line := range []string{
		"password: *hunter2", "password: &hunter2", "password: !hunter2 x", "password: @hunter2", "password: `hunter2",
		"password: %hunter2", "password: |hunter2", "password: [hunter2]", "password: {hunter2: x}", "password: \"hunter2",
		"password: 'hunter2", `password: "\qhunter2"`, "password: a: hunter2", "password:hunter2", "password=hunter2", "password hunter2",
		"passwrd: hunter2", "passwrd: *hunter2", "password: [hunter2", "password: hunter2}\n    db: x", "password: \"hunter2\"x",
		"password: hunter2\n    password: hunter2", "password: hunter2\n    password_file: x", "password: {x: *hunter2}",
		"username: u\n    password: hunter2\n   db: 1", "password: hunter2\n    db: -1", "password: a\"hunter2\" # \"",
		"password: !hunter2 {}", "password: !hunter2\n      x: y", "password: [x]hunter2",
	} {
		for _, format := range []string{"targets:\n  msg:\n    LINE\n    addresses: [h]\n", "targets:\n  msg: {LINE, addresses: [h]}\n"} {
			text := strings.Replace(format, "LINE", line, 1)
			_, err := Parse("x", []byte(text), noenv)
			if err == nil {
				t.Errorf("no error for %q", text)
			} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "unter") {
				t.Errorf("%q shows the password:\n%v", text, err)
			}
		}
	}
}

func TestPasswordFile(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"a$Q$\n": "a$Q$", "${HOME}": "${HOME}", "a\r\n": "a", "a\n\n": "a\n", " a ": " a ", "a\r": "a\r", "%41@:/": "%41@:/",
	} {
		path := filepath.Join(dir, "p")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPasswordFile(path); err != nil || got.Reveal() != want {
			t.Errorf("%q: %q, %v", content, got.Reveal(), err)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, dir, filepath.Join(dir, "none"), os.DevNull} {
		if _, err := ReadPasswordFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range append(files, "../../config.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{"? a\n: b\n", "a: &", "*", "[", "{", "- - -", "a: |\n  x\n *y", "a: [*x\n, &y]", "\t", "'", "a: \"\\\n", ": :", "!", "<<: 1", "jobs:\n- x\n-", "a: >-\n", "\u2026"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), "password_file") {
			t.Skip() // a fuzzer must not read files by name
		}
		c, err := Parse("fuzz.yaml", data, noenv)
		if err == nil {
			if ps := c.Problems(); len(ps) > 0 {
				t.Errorf("accepted, yet %v", ps)
			}
			return
		}
		for _, p := range err.(*Error).Problems {
			if p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}
