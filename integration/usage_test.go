package integration

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	if r := o.run(t, "version").exit(0); strings.TrimSpace(r.stdout) == "" {
		r.error("no version")
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for _, c := range []string{"scan", "clean", "delete", "report", "run", "daemon", "check", "demo"} {
		r := o.run(t, c, "--help").exit(0)
		if !strings.Contains(r.stdout, "keyjanitor "+c) {
			r.error("no example of %s", c)
		}
	}
	o.run(t, "no-such-command").exit(2)
	o.run(t, "scan", "--no-such-flag").exit(2)
	o.run(t, "scan", "stray").exit(2)
	o.run(t, "clean", "--url", "redis://127.0.0.1:1", "stray", "--execute").exit(2)
}

// The demo needs no server and no network.
func TestDemo(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	r := o.run(t, "demo").exit(0)
	if len(strings.Split(r.stdout, "\n")) < 8 {
		r.error("shows nothing")
	}
}

// A wrong file is refused, with the place of every mistake and what to write.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const good = `targets:
  here: {addresses: ["127.0.0.1:1"]}
state_dir: ./state
jobs:
  - name: old
    target: here
    schedule: "@daily"
    select: {prefix: ["old:"]}
    limits: {time: 2h}
    action: {delete: {method: auto}}
    mode: execute
`
	edit := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("no %q", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for _, c := range []struct {
		name string
		text string
		at   []string // line:column of each mistake
		says []string
	}{
		{"unknown key", edit(`    schedule:`, `    shedule:`), []string{"7:5"}, []string{"shedule", "schedule"}},
		{"unknown key at the top", edit(`state_dir:`, `state_dri:`), []string{"3:1"}, []string{"state_dri", "state_dir"}},
		{"bare duration", edit(`time: 2h`, `time: 7200`), []string{"9:20"}, []string{"7200", "s"}},
		{"bare size", edit(`time: 2h`, `max_bytes: 1000`), []string{"9:25"}, []string{"1000", "KiB"}},
		{"unquoted star", edit(`prefix: ["old:"]`, `match: [*]`), []string{"8:22"}, []string{`"*"`}},
		{"unquoted glob", edit(`prefix: ["old:"]`, `match: [*:old]`), []string{"8:22"}, []string{`"*:old"`}},
		{"twice", edit(`    target: here`, "    target: here\n    target: here"), []string{"7:5"}, []string{"target"}},
		{"wrong type", edit(`prefix: ["old:"]`, `prefix: {a: b}`), []string{"8:22"}, []string{"prefix"}},
		{"unknown type of key", edit(`prefix: ["old:"]`, `prefix: ["old:"], types: [hashes]`), []string{"8:40"}, []string{"hashes", "hash"}},
		{"no condition", edit(`{prefix: ["old:"]}`, `{}`), []string{"8:"}, []string{"all_keys"}},
		{"acts on everything", edit(`{prefix: ["old:"]}`, `{min_elements: 1000}`), []string{"8:"}, []string{"all_keys"}},
		{"only anything", edit(`{prefix: ["old:"]}`, `{match: ["*"]}`), []string{"8:"}, []string{"all_keys"}},
		{"unknown target", edit(`target: here`, `target: there`), []string{"6:13"}, []string{"there", "here"}},
		{"bad schedule", edit(`"@daily"`, `"61 * * * *"`), []string{"7:15"}, []string{"61"}},
		{"never", edit(`"@daily"`, `"0 0 30 2 *"`), []string{"7:15"}, nil},
		{"bad zone", edit(`    schedule: "@daily"`, "    schedule: \"@daily\"\n    timezone: Asia/Shangai"), []string{"8:15"}, []string{"Shangai"}},
		{"bad method", edit(`method: auto`, `method: fast`), []string{"10:31"}, []string{"fast", "drain"}},
		{"bad mode", edit(`mode: execute`, `mode: exec`), []string{"11:11"}, []string{"exec"}},
		{"two at once", strings.Replace(edit(`time: 2h`, `time: 7200`), `    schedule:`, `    shedule:`, 1),
			[]string{"7:5", "9:20"}, []string{"shedule", "7200"}},
		{"not YAML", "targets: [\n", nil, nil},
		{"empty", "", nil, nil},
	} {
		for _, command := range [][]string{{"check"}, {"run", "--all"}, {"daemon"}} {
			t.Run(c.name+"/"+command[0], func(t *testing.T) {
				conf := o.file(t, strings.ReplaceAll(c.name, " ", "-")+".yaml", c.text)
				r := o.run(t, args(command, "--config", conf)...).exit(2)
				all := r.stderr + r.stdout
				for _, at := range c.at {
					if !regexp.MustCompile(`\b` + regexp.QuoteMeta(at)).MatchString(all) {
						r.error("does not point at %s", at)
					}
				}
				for _, word := range c.says {
					if !strings.Contains(all, word) {
						r.error("does not say %q", word)
					}
				}
			})
		}
	}
	o.run(t, "run", "--all", "--config", "absent.yaml").exit(2)
}

// What cannot be reached is said so, with the address, without the password.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		o := newOperator(t)
		dead := fmt.Sprintf("127.0.0.1:%d", freePort(t))
		for _, c := range [][]string{{"scan"}, {"clean", "--prefix", "x:", "--execute"}, {"delete", "--key", "x", "--execute"}, {"check"}} {
			r := o.run(t, args(c, "--url", "redis://:hush-hush@"+dead)...).exit(1, 3)
			if !strings.Contains(r.stderr+r.stdout, dead) {
				r.error("does not name %s", dead)
			}
			if r.took > 20*time.Second {
				r.error("took %v", r.took)
			}
			mustNotLeak(t, r, "hush-hush")
		}
		d := standalone(t, b, needPass("right-one"))
		for url, why := range map[string]string{
			"redis://:wrong-one@" + d.masters[0].addr: "wrong-one",
			d.url(): "right-one",
		} {
			r := o.run(t, "scan", "--url", url, "--format", "json").exit(1)
			mustNotLeak(t, r, why)
			if !regexp.MustCompile(`(?i)pass|auth`).MatchString(r.stderr) {
				r.error("does not say that it is about the password")
			}
		}
		for _, ok := range []func() result{
			func() result {
				return o.run(t, "scan", "--url", "redis://:right-one@"+d.masters[0].addr, "--format", "json")
			},
			func() result {
				return o.run(t, "scan", "--url", d.url(), "--password-file", o.file(t, "secret", "right-one\n"), "--format", "json")
			},
			func() result {
				return newOperator(t, "KEYJANITOR_PASSWORD=right-one").run(t, "scan", "--url", d.url(), "--format", "json")
			},
		} {
			r := ok().exit(0)
			r.summary().complete(true)
			mustNotLeak(t, r, "right-one")
		}
		for _, url := range []string{"127.0.0.1", "http://127.0.0.1:6379", "redis://127.0.0.1:99999", "redis://127.0.0.1:1/x", ""} {
			o.run(t, "scan", "--url", url).exit(2)
		}
	})
}

func mustNotLeak(t *testing.T, r result, secret string) {
	t.Helper()
	if strings.Contains(strings.ReplaceAll(r.stderr+r.stdout, strings.Join(r.args, " "), ""), secret) {
		r.error("shows a password")
	}
}

// checked is what `check --format json` writes.
type checked struct {
	Shards []struct {
		ID     string          `json:"id"`
		Addr   string          `json:"addr"`
		Server string          `json:"server"`
		Can    map[string]bool `json:"can"`
	} `json:"shards"`
	ACL  map[string]string `json:"acl"`
	Jobs []struct {
		Name string      `json:"name"`
		Next []time.Time `json:"next"`
	} `json:"jobs"`
	Problems []any `json:"problems"`
}

func (r result) checked() (c checked) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		r.fatal("not what check writes: %v", err)
	}
	return c
}

func TestCheck(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		for _, f := range forms[:3] {
			if !f.offers(b) {
				continue
			}
			t.Run(f.name, func(t *testing.T) {
				d := standalone(t, b, f.opts...)
				bystand(t, d, 0, 20)
				before := digestOf(t, d)
				url := d.url()
				if f.user {
					url = strings.Replace(url, "redis://", "redis://"+noUnlinkU+":"+noUnlinkP+"@", 1)
				}
				o := newOperator(t)
				w := observe(t, d)
				r := o.run(t, "check", "--url", url, "--format", "json").exit(0, 3)
				w.nothingForbidden(t)
				mustEqual(t, before, digestOf(t, d))
				c := r.checked()
				if len(c.Shards) != 1 || c.Shards[0].Addr != d.masters[0].addr {
					r.fatal("want one shard at %s", d.masters[0].addr)
				}
				can, known := c.Shards[0].Can["unlink"]
				want := b.hasUnlink() && f.name == "as it is"
				if !known || can != want {
					r.error("can.unlink is %v, want %v", can, want)
				}
			})
		}
		t.Run("jobs", func(t *testing.T) {
			d := standalone(t, b)
			bystand(t, d, 0, 5)
			o := newOperator(t)
			conf := o.config(t, d, "", job{name: "nightly", schedule: "0 3 * * *", prefix: "a:", more: append([]string{"timezone: Asia/Shanghai"}, executes...)})
			r := o.run(t, "check", "--config", conf, "--format", "json").exit(0)
			c := r.checked()
			if len(c.Jobs) != 1 || c.Jobs[0].Name != "nightly" || len(c.Jobs[0].Next) != 3 {
				r.fatal("want the next three times of one job")
			}
			for i, at := range c.Jobs[0].Next {
				if u := at.UTC(); u.Hour() != 19 || u.Minute() != 0 || time.Until(u) > time.Duration(i+1)*24*time.Hour || time.Until(u) < 0 {
					r.error("03:00 in Shanghai is 19:00 UTC; time %d is %v", i+1, u)
				}
			}
			if len(c.Problems) != 0 {
				r.error("problems: %v", c.Problems)
			}
		})
	})
}

// The rule that check prints is enough: a run under exactly that rule is not
// refused a single command.
func TestCheckACL(t *testing.T) {
	t.Parallel()
	offers := func(b serverBinary) bool { return b.hasACL() && b.hasErrorStats() }
	eachServerThat(t, offers, "does not count refusals", func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		o := newOperator(t)
		seed(t, d, 500)
		rules := o.run(t, "check", "--url", d.url(), "--format", "json").exit(0).checked().ACL
		user := func(name, rule string) string {
			t.Helper()
			if rule == "" {
				t.Fatalf("check prints no ACL rule for %s: %v", name, rules)
			}
			words := []any{"ACL", "SETUSER", name, "reset", "on", ">pw"}
			for _, f := range strings.Fields(rule) {
				words = append(words, f)
			}
			m.do(t, 0, words...)
			return strings.Replace(d.url(), "redis://", "redis://"+name+":pw@", 1)
		}
		refusals := func() (out []string) {
			for k, v := range m.info(t, "errorstats") {
				if strings.Contains(k, "NOPERM") {
					out = append(out, k+" "+v)
				}
			}
			if b.since(7, 0) {
				for k, v := range m.info(t, "commandstats") {
					if !strings.Contains(v, "rejected_calls=0") && strings.Contains(v, "rejected_calls=") {
						out = append(out, k+" "+v)
					}
				}
			}
			slices.Sort(out)
			return out
		}
		t.Run("scan", func(t *testing.T) {
			url := user("looker", rules["scan"])
			for _, flags := range [][]string{{"--min-elements", "10000"}, {"--min-bytes", "1MB"}, {"--no-ttl", "--type", "hash"}, {}} {
				m.do(t, 0, "CONFIG", "RESETSTAT")
				r := o.run(t, args("scan", "--url", url, flags, "--format", "json")...).exit(0)
				r.summary().complete(true)
				if got := refusals(); len(got) > 0 {
					r.error("refused: %q", got)
				}
			}
		})
		t.Run("delete", func(t *testing.T) {
			url := user("sweeper", rules["delete"])
			before := digestOf(t, d)
			var gone []keyID
			for i, flags := range [][]string{{"--match", "big:hash"}, {"--match", "big:set", "--method", "drain"},
				{"--match", "big:list", "--method", "drain", "--min-elements", "100"},
				{"--match", "big:zset", "--method", "drain", "--min-bytes", "10KB", "--no-ttl"}, {"--prefix", "small:hash:"}} {
				m.do(t, 0, "CONFIG", "RESETSTAT")
				r := o.run(t, args("clean", "--url", url, flags, "--execute", "--format", "json")...).exit(0)
				if got := refusals(); len(got) > 0 {
					r.error("refused: %q", got)
				}
				if i < 4 {
					k := strings.TrimPrefix(flags[1], "big:")
					gone = append(gone, keyID{map[string]int{"list": 3, "zset": 9}[k], flags[1]})
				}
				if s := r.summary(); s.removed() == 0 {
					r.error("nothing was removed")
				}
			}
			for k := range before {
				if strings.HasPrefix(k.name, "small:hash:") {
					gone = append(gone, k)
				}
			}
			mustEqual(t, before, digestOf(t, d), gone...)
		})
	})
}
