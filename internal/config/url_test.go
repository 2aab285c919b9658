package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	plain := func(address string) Target {
		return Target{Name: address, Addresses: []string{address}, Mode: ModeAuto}
	}
	with := func(t Target, change func(*Target)) Target { change(&t); return t }
	login := func(user, password string) Target {
		return with(plain("h:1"), func(t *Target) { t.Username, t.Password = user, Secret(password) })
	}
	db := func(t Target, n int) Target { t.DBs = []int{n}; return t }
	for raw, want := range map[string]Target{
		"redis://h:1":                    plain("h:1"),
		"REDIS://h":                      plain("h:6379"),
		"redis://h/":                     plain("h:6379"),
		"redis://h:1/3":                  db(plain("h:1"), 3),
		"redis://10.0.0.1":               plain("10.0.0.1:6379"),
		"redis://[::1]":                  plain("[::1]:6379"),
		"redis://[fe80::1%eth0]:1":       {}, // a zone needs a %, which no address may hold
		"redis://[::1]:7000/1":           db(plain("[::1]:7000"), 1),
		"redis://u:p@h:1":                login("u", "p"),
		"redis://u@h:1":                  login("u", ""),
		"redis://:p@h:1":                 login("", "p"),
		"redis://:p@ss@h:1":              login("", "p@ss"),
		"redis://:p@ss:w/o?r#d@h:1":      login("", "p@ss:w/o?r#d"),
		"redis://u:12%^x@h:1":            login("u", "12%^x"),
		"redis://u:100%@h:1":             login("u", "100%"),
		"redis://u:p%40s%2f@h:1":         login("u", "p@s/"),
		"redis://u:%2541@h:1":            login("u", "%41"),
		"redis://u:$Q${HOME}@h:1":        login("u", "$Q${HOME}"),
		"redis://a%40b:p@h:1":            login("a@b", "p"),
		"redis://u:p@h:1/2":              db(login("u", "p"), 2),
		"rediss://h:1":                   with(plain("h:1"), func(t *Target) { t.TLS = &TLS{} }),
		"redis://h1,h2:2":                {Name: "h1:6379", Addresses: []string{"h1:6379", "h2:2"}, Mode: ModeAuto},
		"redis+cluster://h1,h2":          {Name: "h1:6379", Addresses: []string{"h1:6379", "h2:6379"}, Mode: ModeCluster},
		"rediss+cluster://u:p@h1/0":      {Name: "h1:6379", Addresses: []string{"h1:6379"}, Mode: ModeCluster, TLS: &TLS{}, Username: "u", Password: "p", DBs: []int{0}},
		"unix:///run/redis.sock":         plain("/run/redis.sock"),
		"unix:///run/a@b/redis.sock":     plain("/run/a@b/redis.sock"),
		"unix:///run/redis.sock?db=2":    db(plain("/run/redis.sock"), 2),
		"unix://u:p@ss@/run/redis.sock":  with(plain("/run/redis.sock"), func(t *Target) { t.Username, t.Password = "u", "p@ss" }),
		"unix://:p@/run/redis.sock?db=0": db(with(plain("/run/redis.sock"), func(t *Target) { t.Password = "p" }), 0),
	} {
		got, err := ParseURL(raw)
		if want.Name == "" {
			if err == nil {
				t.Errorf("%s: accepted as %+v", raw, got)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v (%q), %v", raw, got, got.Password.Reveal(), err)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                "no scheme",
		"h:6379":                          "no scheme",
		"u:hunter2@h:6379":                "no scheme",
		"http://u:hunter2@h":              "HTTP",
		"ftp://u:hunter2@h":               "unknown scheme",
		"redis+sentinel://h1,h2/master":   "redis+sentinel:// is not supported by this version",
		"redis+sharded://u:hunter2@h1,h2": "redis+sharded:// is not supported by this version",
		"redis://":                        "empty address",
		"redis://u:hunter2@":              "empty address",
		"redis://u:hunter2":               "the port is no number",
		"redis://:hunter2":                "no host",
		"redis://u:hunter2@h:x":           "the port is no number",
		"redis://u:hunter2@h:0":           "1 to 65535",
		"redis://u:hunter2@h:70000":       "1 to 65535",
		"redis://u:hunter2@h:1/x":         "the database",
		"redis://u:hunter2@h:1/-1":        "the database",
		"redis://u:hunter2@h:1/1/2":       "the database",
		"redis://u:hun/ter2":              "the database",
		"redis://u:hunter2@h:1?db=2":      "no parameters",
		"redis://h:1,,g:1":                "empty address",
		"redis://a:1 b:1":                 "write a list",
		"redis://::1":                     "brackets",
		"redis://::1:6379":                "brackets",
		"redis://[::1":                    "no port",
		"redis://[h]:1":                   "brackets",
		"redis+cluster://u:hunter2@h/1":   "a cluster has no database 1",
		"unix://run/redis.sock":           "absolute path",
		"unix://u:hunter2@run/redis.sock": "absolute path",
		"unix:///":                        "absolute path",
		"unix:///x?hunter2":               "?db=N",
		"unix:///x?db=-1":                 "the database",
	} {
		got, err := ParseURL(raw)
		if err == nil {
			t.Errorf("%s: accepted as %+v", raw, got)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hun") {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}
