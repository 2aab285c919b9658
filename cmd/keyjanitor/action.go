package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// actions are what clean can do to keys, and the flags that belong to each.
var actions = []struct {
	name  string
	flags []string
}{
	{"delete", []string{"method", "keep-for", "force-keep", "in-place", "allow-stall"}},
	{"trim", []string{"keep", "keep-end", "older-than", "score", "force-unacknowledged"}},
	{"expire", []string{"ttl", "jitter"}},
	{"defuse", []string{"lead"}},
	{"prune-index", []string{"older-than", "value", "also"}},
}

// cleanFlags say what clean does, and how.
func cleanFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "action", Category: acting, Value: "delete", Usage: "what to do: delete, trim, expire, defuse or prune-index"},
		&cli.Int64Flag{Name: "keep", Category: acting, Usage: "trim: entries that stay, `N`"},
		&cli.StringFlag{Name: "keep-end", Category: acting, Usage: "trim: at which `END` they stay: head or tail of a list, highest or lowest of a sorted set, newest of a stream"},
		&cli.StringFlag{Name: "older-than", Category: acting, Usage: "trim, prune-index: what is older than `DURATION` goes: by score, by value, or by a stream's ids"},
		&cli.StringFlag{Name: "score", Category: acting, Usage: "trim: the `UNIT` of a sorted set's scores: unix_seconds or unix_millis"},
		&cli.BoolFlag{Name: "force-unacknowledged", Category: acting, Usage: "trim: also entries that a group of the stream has not acknowledged"},
		&cli.StringFlag{Name: "ttl", Category: acting, Usage: "expire: keys that live longer, or forever, get this `DURATION`"},
		&cli.StringFlag{Name: "jitter", Category: acting, Usage: "expire: spread over up to `P%` more, by the key's name"},
		&cli.StringFlag{Name: "lead", Category: acting, Value: config.DefaultLead.String(), Usage: "defuse: set keys aside `DURATION` before they expire"},
		&cli.StringFlag{Name: "value", Category: acting, Usage: "prune-index: the `UNIT` of a hash's values, a sorted set's scores: unix_seconds or unix_millis"},
		texts("also", acting, "prune-index: also delete the key of this name, such as 'client:%entry%'; `TEMPLATE`; repeatable"),
	}
}

// action reads the action of clean; of delete it is the only one.
func (r *reader) action(s config.Select) config.Action {
	name := "delete"
	if r.c.String("action") != "" {
		name = r.c.String("action")
	}
	var a config.Action
	switch name {
	case "delete":
		a.Delete = &config.Delete{
			Method: config.Method(r.c.String("method")), KeepFor: r.duration("keep-for"),
			ForceKeep: r.c.Bool("force-keep"), InPlace: r.c.Bool("in-place"), AllowStall: r.duration("allow-stall"),
		}
	case "trim":
		a.Trim = &config.Trim{
			KeepEnd: r.c.String("keep-end"), OlderThan: r.duration("older-than"), Score: r.c.String("score"),
			ForceUnacknowledged: r.c.Bool("force-unacknowledged"),
		}
		if r.c.IsSet("keep") {
			keep := r.c.Int64("keep")
			a.Trim.Keep = &keep
		}
	case "expire":
		a.Expire = &config.Expire{TTL: r.duration("ttl"), Jitter: r.percentOrNone("jitter")}
	case "defuse":
		a.Defuse = &config.Defuse{Lead: r.duration("lead")}
	case "prune-index":
		a.PruneIndex = &config.PruneIndex{OlderThan: r.duration("older-than"), Value: r.c.String("value"), Also: r.c.StringSlice("also")}
	default:
		r.errs = append(r.errs, config.Problem{Path: "--action", Message: name + ": unknown action; write delete, trim, expire, defuse or prune-index"})
		return a
	}
	before := len(r.errs)
	r.strangers(name)
	if len(r.errs) == before {
		r.check(a.Problems(s), actionNames())
	}
	return a
}

// strangers are flags of other actions.
func (r *reader) strangers(action string) {
	var mine []string
	for _, a := range actions {
		if a.name == action {
			mine = a.flags
		}
	}
	owners := map[string][]string{}
	for _, a := range actions {
		for _, flag := range a.flags {
			owners[flag] = append(owners[flag], a.name)
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(owners)) {
		if r.c.IsSet(flag) && !slices.Contains(mine, flag) {
			r.errs = append(r.errs, config.Problem{Path: "--" + flag,
				Message: "belongs to --action " + strings.Join(owners[flag], " or ") + "; delete it, or write that action"})
		}
	}
}

// percentOrNone reads a percentage, or 0.
func (r *reader) percentOrNone(flag string) config.Percent {
	if text := r.c.String(flag); text == "0" || text == "0%" {
		return 0
	}
	return r.percent(flag)
}

// actionNames are the flags of the fields of an action.
func actionNames() map[string]string {
	names := maps.Clone(selectionNames) // some messages name its fields
	names["trim"], names["defuse"], names["prune_index"] = "action", "action", "action"
	for _, a := range actions {
		for _, flag := range a.flags {
			names[strings.ReplaceAll(a.name, "-", "_")+"."+strings.ReplaceAll(flag, "-", "_")] = flag
		}
	}
	return names
}
