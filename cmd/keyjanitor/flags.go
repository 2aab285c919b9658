package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// Categories of flags in the help.
const (
	connecting = "Connection"
	selecting  = "Selection"
	acting     = "Acting"
	limiting   = "Limits"
	pacing     = "Pace"
	printing   = "Output"
)

// connectionFlags say which deployment, and as whom.
func connectionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "url", Category: connecting, Usage: "`URL` of the deployment: redis://, rediss://, unix://, redis+cluster://h1,h2; or set KEYJANITOR_URL"},
		configFlag(),
		&cli.StringFlag{Name: "target", Category: connecting, Usage: "the target `NAME` of the file to work on"},
		&cli.IntSliceFlag{Name: "db", Category: connecting, Usage: "database `N`; repeatable (default: every database that has keys)"},
		&cli.StringFlag{Name: "username", Category: connecting, Usage: "ACL user `NAME`; or set KEYJANITOR_USERNAME"},
		&cli.StringFlag{Name: "password-file", Category: connecting, Usage: "`FILE` with the password; or set KEYJANITOR_PASSWORD"},
	}
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Category: connecting, Usage: "configuration `FILE`"}
}

// texts is a repeatable flag whose values are taken as they are: names and
// globs may begin or end with a space, and hold commas.
func texts(name, category, usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Category: category, Usage: usage, KeepSpace: true}
}

// selectionFlags are the same everywhere.
func selectionFlags() []cli.Flag {
	return []cli.Flag{
		texts("match", selecting, "names that match `GLOB`; repeatable"),
		texts("prefix", selecting, "names that begin with `TEXT`, taken literally; repeatable"),
		texts("exclude", selecting, "not the names that match `GLOB`; repeatable"),
		texts("type", selecting, "keys of `TYPE`: string, list, set, zset, hash, stream; repeatable"),
		&cli.StringFlag{Name: "min-bytes", Category: selecting, Usage: "keys of at least `SIZE`, such as 1MiB, by MEMORY USAGE"},
		&cli.Int64Flag{Name: "min-elements", Category: selecting, Usage: "keys of at least `N` elements"},
		&cli.BoolFlag{Name: "no-ttl", Category: selecting, Usage: "keys without a TTL"},
		&cli.StringFlag{Name: "ttl-under", Category: selecting, Usage: "keys that live less than `DURATION`, such as 90s, 15m or 14d"},
		&cli.StringFlag{Name: "ttl-over", Category: selecting, Usage: "keys that live longer than `DURATION`"},
		&cli.StringFlag{Name: "idle-over", Category: selecting, Usage: "keys that nobody read or wrote for `DURATION`, on the primary or a replica"},
		&cli.Int64Flag{Name: "freq-under", Category: selecting, Usage: "keys that an LFU policy counts as used less than `N`, 1 to 255"},
		&cli.BoolFlag{Name: "idle-primary-only", Category: selecting, Usage: "judge idle time by the primary alone: reads served by replicas don't count"},
	}
}

// actionFlags say what to do with what was selected.
func actionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "execute", Category: acting, Usage: "act; without it everything is judged and reported only"},
		&cli.StringFlag{Name: "method", Category: acting, Value: "auto", Usage: "auto, unlink or drain"},
		&cli.StringFlag{Name: "keep-for", Category: acting, Usage: "set keys aside and remove them only after `DURATION`; until then trash restore gives them back"},
		&cli.BoolFlag{Name: "force-keep", Category: acting, Usage: "keep keys also where maxmemory-policy lets the server evict them from the trash"},
		&cli.BoolFlag{Name: "in-place", Category: acting, Usage: "drain keys under their own names where the server lets nothing be set aside"},
		&cli.StringFlag{Name: "allow-stall", Category: acting, Usage: "free strings that would stall the server for up to `DURATION` (default: 30ms)"},
		stateDirFlag(),
		okOnFlag(),
		&cli.Int64Flag{Name: "max-keys", Category: limiting, Usage: "end the run before key `N`+1"},
		&cli.StringFlag{Name: "max-bytes", Category: limiting, Usage: "end the run before more than `SIZE` is released"},
		&cli.StringFlag{Name: "max-percent", Category: limiting, Usage: "act on at most `P%` of a shard's keys"},
		&cli.StringFlag{Name: "time-limit", Category: limiting, Usage: "end the run after `DURATION`"},
	}
}

func stateDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "state-dir", Category: acting, Usage: "`DIR` for the audit and the trash journal (default: " + config.DefaultStateDir + ")"}
}

func okOnFlag() cli.Flag {
	return &cli.StringFlag{Name: "ok-on", Category: acting, Usage: "exit 0 also on `WHAT`: limit, busy, or both with a comma"}
}

// paceFlags bound what a run takes from the servers.
func paceFlags(alsoActs bool) []cli.Flag {
	d := config.DefaultPace()
	flags := []cli.Flag{
		&cli.StringFlag{Name: "target-latency", Category: pacing, Value: d.TargetLatency.String(), Usage: "server time one page or batch may take: `DURATION`"},
		&cli.StringFlag{Name: "scan-share", Category: pacing, Value: d.ScanShare.String(), Usage: "`SHARE` of a server's main thread for scanning"},
		&cli.Int64Flag{Name: "commands-per-second", Category: pacing, Usage: "at most `N` for the whole run; 0: no budget"},
		&cli.IntFlag{Name: "parallel", Category: pacing, Value: d.Parallel, Usage: "work on `N` shards at once"},
	}
	if !alsoActs {
		return flags
	}
	return append(flags,
		&cli.StringFlag{Name: "max-share", Category: pacing, Value: d.MaxShare.String(), Usage: "`SHARE` of a server's main thread for removing"},
		&cli.Int64Flag{Name: "elements-per-second", Category: pacing, Usage: "remove at most `N` for the whole run; 0: no budget"},
		&cli.StringFlag{Name: "bytes-per-second", Category: pacing, Usage: "release at most `SIZE` for the whole run; 0: no budget"},
	)
}

func outputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "format", Category: printing, Value: "table", Usage: "table, json, jsonl, csv or html"},
		&cli.StringFlag{Name: "output", Category: printing, Usage: "write the result to `FILE`, which appears when it is whole"},
		&cli.IntFlag{Name: "top", Category: printing, Value: 100, Usage: "show the `N` largest in table, json and html; jsonl and csv have all"},
		&cli.BoolFlag{Name: "quiet", Category: printing, Usage: "no progress on stderr"},
	}
}

// reader reads flags that have units and collects what is wrong with them.
type reader struct {
	c    *cli.Context
	errs []config.Problem
}

func (r *reader) fail(flag string, err error) {
	if err != nil {
		r.errs = append(r.errs, config.Problem{Path: "--" + flag, Message: err.Error()})
	}
}

func (r *reader) size(flag string) config.Size {
	if !r.c.IsSet(flag) {
		return 0
	}
	v, err := config.ParseSize(r.c.String(flag))
	r.fail(flag, err)
	return v
}

func (r *reader) duration(flag string) config.Duration {
	if r.c.String(flag) == "" && !r.c.IsSet(flag) {
		return 0
	}
	v, err := config.ParseDuration(r.c.String(flag))
	r.fail(flag, err)
	return v
}

func (r *reader) percent(flag string) config.Percent {
	if r.c.String(flag) == "" && !r.c.IsSet(flag) {
		return 0
	}
	v, err := config.ParsePercent(r.c.String(flag))
	r.fail(flag, err)
	return v
}

// check adds problems of a value built from flags, under the flags' names.
func (r *reader) check(problems []config.Problem, names map[string]string) {
	for _, p := range problems {
		field, _, _ := strings.Cut(p.Path, "[")
		if flag := names[field]; flag != "" {
			p.Path = "--" + flag
		} else {
			p.Path = ""
		}
		for field, flag := range names {
			if strings.Contains(field, "_") {
				p.Message = strings.ReplaceAll(p.Message, field, "--"+flag)
			}
		}
		for _, word := range []string{"all_keys", "keep_end", "older_than", "keep_for", "force_unacknowledged"} {
			p.Message = strings.ReplaceAll(p.Message, word, "--"+strings.ReplaceAll(word, "_", "-"))
		}
		r.errs = append(r.errs, p)
	}
}

// err is everything that was wrong, as one usage error.
func (r *reader) err() error { return joined(r.errs) }

func (r *reader) selection() config.Select {
	s := config.Select{
		Match: r.c.StringSlice("match"), Prefix: r.c.StringSlice("prefix"), Exclude: r.c.StringSlice("exclude"),
		Types: r.c.StringSlice("type"), MinElements: r.c.Int64("min-elements"), MinBytes: r.size("min-bytes"),
		NoTTL: r.c.Bool("no-ttl"), TTLUnder: r.duration("ttl-under"), TTLOver: r.duration("ttl-over"),
		IdleOver: r.duration("idle-over"), IdlePrimaryOnly: r.c.Bool("idle-primary-only"), FreqUnder: r.c.Int64("freq-under"),
		AllKeys: r.c.Bool("all-keys"),
	}
	return s
}

var selectionNames = map[string]string{
	"no_ttl": "no-ttl",
	"match":  "match", "prefix": "prefix", "exclude": "exclude", "types": "type", "min_elements": "min-elements",
	"min_bytes": "min-bytes", "ttl_under": "ttl-under", "ttl_over": "ttl-over",
	"idle_over": "idle-over", "idle_primary_only": "idle-primary-only", "freq_under": "freq-under",
}

func (r *reader) limits() config.Limits {
	l := config.Limits{
		MaxKeys: r.c.Int64("max-keys"), MaxBytes: r.size("max-bytes"),
		MaxPercent: float64(r.percent("max-percent")), Time: r.duration("time-limit"),
	}
	r.check(l.Problems(), map[string]string{
		"max_keys": "max-keys", "max_bytes": "max-bytes", "max_percent": "max-percent", "time": "time-limit",
	})
	return l
}

// pace is that of the configuration, overridden by the flags that are set.
func (r *reader) pace(base config.Pace) config.Pace {
	set, before := r.c.IsSet, len(r.errs)
	if set("target-latency") {
		base.TargetLatency = r.duration("target-latency")
	}
	if set("scan-share") {
		base.ScanShare = r.percent("scan-share")
	}
	if set("max-share") {
		base.MaxShare = r.percent("max-share")
	}
	if set("commands-per-second") {
		base.CommandsPerSecond = r.c.Int64("commands-per-second")
	}
	if set("elements-per-second") {
		base.ElementsPerSecond = r.c.Int64("elements-per-second")
	}
	if set("bytes-per-second") {
		base.BytesPerSecond = r.size("bytes-per-second")
	}
	if set("parallel") {
		base.Parallel = r.c.Int("parallel")
	}
	if len(r.errs) == before {
		r.check(base.Problems(), map[string]string{
			"target_latency": "target-latency", "scan_share": "scan-share", "max_share": "max-share",
			"commands_per_second": "commands-per-second", "elements_per_second": "elements-per-second",
			"bytes_per_second": "bytes-per-second", "parallel": "parallel",
		})
	}
	return base
}

// setup is what a one-off command works on.
type setup struct {
	config *config.Config
	target config.Target
}

// connection finds the target that the flags and the configuration name.
func (p process) connection(c *cli.Context) (setup, error) {
	s := setup{config: &config.Config{Pace: config.DefaultPace(), HoldWhen: config.DefaultHoldWhen(), StateDir: config.DefaultStateDir}}
	file, url, said := c.String("config"), c.String("url"), "--url"
	if file != "" {
		loaded, err := config.Load(file)
		if err != nil {
			return s, asUsage(err)
		}
		s.config = loaded
	}
	name := c.String("target")
	if !c.IsSet("url") && name == "" {
		url, said = p.getenv("KEYJANITOR_URL"), "KEYJANITOR_URL"
		if url != "" && len(s.config.Targets) > 0 {
			return s, usagef("KEYJANITOR_URL and --config both name a deployment; write --target NAME or --url URL")
		}
	}
	var err error
	switch {
	case url != "" && name != "":
		return s, usagef("--url and --target both name a deployment; give one of them")
	case url != "":
		s.target, err = config.ParseURL(url)
		if err != nil {
			return s, usagef("%s: %s", said, err)
		}
	case file == "":
		return s, usagef("which deployment? write --url redis://HOST:PORT, or --config FILE --target NAME")
	default:
		if s.target, err = s.named(name); err != nil {
			return s, err
		}
	}
	if dbs := c.IntSlice("db"); len(dbs) > 0 {
		s.target.DBs = dbs
	}
	if err := p.login(c, &s.target); err != nil {
		return s, err
	}
	if dir := c.String("state-dir"); dir != "" {
		s.config.StateDir = dir
	}
	return s, joined(s.target.Problems())
}

// named is the target of a name, or the only one.
func (s setup) named(name string) (config.Target, error) {
	names := make([]string, 0, len(s.config.Targets))
	for n := range s.config.Targets {
		names = append(names, n)
	}
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	t, ok := s.config.Targets[name]
	if !ok {
		return t, usagef("--target: write one of the targets of the file: %s", strings.Join(names, ", "))
	}
	return t, nil
}

// login takes user and password from flags and environment, which win over
// the URL and the file.
func (p process) login(c *cli.Context, t *config.Target) error {
	if name := p.getenv("KEYJANITOR_USERNAME"); name != "" {
		t.Username = name
	}
	if c.IsSet("username") {
		t.Username = c.String("username")
	}
	if password := p.getenv("KEYJANITOR_PASSWORD"); password != "" {
		t.Password = config.Secret(password)
	}
	if file := c.String("password-file"); file != "" {
		password, err := config.ReadPasswordFile(file)
		if err != nil {
			return usagef("--password-file: %s", err)
		}
		t.Password = password
	}
	return nil
}

// example formats the examples of a command's help.
func example(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return "Examples:\n" + strings.TrimSuffix(b.String(), "\n")
}

// lockWait is the default of --lock-wait: what a killed run's lock lives, and
// a little.
const lockWait = 20 * time.Second
