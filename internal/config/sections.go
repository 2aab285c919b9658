package config

import "math"

func (d *decoder) config(n *node, c *Config) {
	d.mapping(n, "", "targets: {…} and jobs: […]", nil,
		key{"targets", func(n *node, path string) { c.Targets = d.targets(n, path) }},
		key{"protect", func(n *node, path string) { c.Protect = d.globs(n, path) }},
		key{"pace", func(n *node, path string) { d.pace(n, path, &c.Pace) }},
		key{"hold_when", func(n *node, path string) { d.signals(n, path, &c.HoldWhen) }},
		key{"stop_when", func(n *node, path string) { d.signals(n, path, &c.StopWhen) }},
		key{"state_dir", func(n *node, path string) { c.StateDir, _ = d.text(n, path) }},
		key{"jobs", func(n *node, path string) {
			const example = "jobs: [{name: NAME, target: NAME, select: {…}}], or [] for none"
			if n.kind == isText { // not a list of one: no job is a text
				d.enter(n, path)
				d.wrongKind(n, path, string(isList), example)
				return
			}
			d.each(n, path, example, func(n *node, path string) { c.Jobs = append(c.Jobs, d.job(n, path)) })
		}},
	)
}

// budget are the keys of a budget.
func (d *decoder) budget(b *Budget) []key {
	return []key{
		{"commands_per_second", func(n *node, path string) { b.CommandsPerSecond = d.count(n, path) }},
		{"elements_per_second", func(n *node, path string) { b.ElementsPerSecond = d.count(n, path) }},
		{"bytes_per_second", func(n *node, path string) { b.BytesPerSecond = d.size(n, path) }},
	}
}

func (d *decoder) pace(n *node, path string, p *Pace) {
	budget := d.budget(&p.Budget)
	d.mapping(n, path, "pace: {target_latency: 1ms}", nil,
		key{"target_latency", func(n *node, path string) { p.TargetLatency = d.duration(n, path) }},
		key{"max_share", func(n *node, path string) { p.MaxShare = d.percent(n, path) }},
		key{"scan_share", func(n *node, path string) { p.ScanShare = d.percent(n, path) }},
		budget[0], budget[1], budget[2],
		key{"per_shard", func(n *node, path string) {
			d.mapping(n, path, "per_shard: {elements_per_second: 10000}", nil, d.budget(&p.PerShard)...)
		}},
		key{"parallel", func(n *node, path string) { p.Parallel = int(d.integer(n, path, math.MaxInt32)) }},
	)
}

func (d *decoder) job(n *node, path string) Job {
	var j Job
	d.mapping(n, path, "{name: NAME, target: NAME, select: {…}}", []string{"jitter", "run_missed"},
		key{"name", func(n *node, path string) { j.Name, _ = d.text(n, path) }},
		key{"target", func(n *node, path string) { j.Target, _ = d.text(n, path) }},
		key{"schedule", func(n *node, path string) { j.Schedule, _ = d.text(n, path) }},
		key{"timezone", func(n *node, path string) { j.Timezone, _ = d.text(n, path) }},
		key{"select", func(n *node, path string) { d.selection(n, path, &j.Select) }},
		key{"action", func(n *node, path string) { d.action(n, path, &j.Action) }},
		key{"limits", func(n *node, path string) { d.limits(n, path, &j.Limits) }},
		key{"mode", func(n *node, path string) { j.Execute = d.choice(n, path, nil, "report", "execute") == "execute" }},
	)
	return j
}

func (d *decoder) selection(n *node, path string, s *Select) {
	before := len(d.problems)
	d.mapping(n, path, `select: {match: ["GLOB"]}`, nil,
		key{"match", func(n *node, path string) { s.Match = d.globs(n, path) }},
		key{"prefix", func(n *node, path string) { s.Prefix = d.texts(n, path) }},
		key{"exclude", func(n *node, path string) { s.Exclude = d.globs(n, path) }},
		key{"types", func(n *node, path string) { s.Types = d.texts(n, path) }},
		key{"min_elements", func(n *node, path string) { s.MinElements = d.count(n, path) }},
		key{"min_bytes", func(n *node, path string) { s.MinBytes = d.size(n, path) }},
		key{"no_ttl", func(n *node, path string) { s.NoTTL = d.boolean(n, path) }},
		key{"ttl_under", func(n *node, path string) { s.TTLUnder = d.duration(n, path) }},
		key{"ttl_over", func(n *node, path string) { s.TTLOver = d.duration(n, path) }},
		key{"idle_over", func(n *node, path string) { s.IdleOver = d.duration(n, path) }},
		key{"freq_under", func(n *node, path string) { s.FreqUnder = d.integer(n, path, 255) }},
		key{"idle_primary_only", func(n *node, path string) { s.IdlePrimaryOnly = d.boolean(n, path) }},
		key{"all_keys", func(n *node, path string) { s.AllKeys = d.boolean(n, path) }},
	)
	if len(d.problems) > before { // what the rule lacks may be what is wrong in it
		d.spoiled[path] = true
	}
}

func (d *decoder) action(n *node, path string, a *Action) {
	ok := d.mapping(n, path, "action: {delete: {method: auto}}", nil,
		key{"delete", func(n *node, path string) {
			a.Delete = &Delete{Method: MethodAuto}
			d.mapping(n, path, "delete: {method: auto}", nil,
				key{"method", func(n *node, path string) {
					a.Delete.Method = Method(d.choice(n, path, nil, string(MethodAuto), string(MethodUnlink), string(MethodDrain)))
				}},
				key{"keep_for", func(n *node, path string) { a.Delete.KeepFor = d.duration(n, path) }},
			)
		}},
		key{"trim", func(n *node, path string) { a.Trim = d.trim(n, path) }},
		key{"expire", func(n *node, path string) {
			a.Expire = &Expire{}
			d.mapping(n, path, "expire: {ttl: 30d}", nil,
				key{"ttl", func(n *node, path string) { a.Expire.TTL = d.duration(n, path) }},
				key{"jitter", func(n *node, path string) { a.Expire.Jitter = d.percentOrNone(n, path) }},
			)
		}},
		key{"defuse", func(n *node, path string) {
			a.Defuse = &Defuse{Lead: DefaultLead}
			d.mapping(n, path, "defuse: {lead: 2s}", nil,
				key{"lead", func(n *node, path string) { a.Defuse.Lead = d.duration(n, path) }},
			)
		}},
		key{"prune_index", func(n *node, path string) {
			a.PruneIndex = &PruneIndex{}
			d.mapping(n, path, "prune_index: {older_than: 14d, value: unix_seconds}", nil,
				key{"older_than", func(n *node, path string) { a.PruneIndex.OlderThan = d.duration(n, path) }},
				key{"value", func(n *node, path string) { a.PruneIndex.Value = d.choice(n, path, nil, UnixSeconds, UnixMillis) }},
				key{"also", func(n *node, path string) { a.PruneIndex.Also = d.texts(n, path) }},
			)
		}},
	)
	switch {
	case ok && a.Kind() == "" && !d.partial[path]:
		d.refuse(n, path, "no action; write action: {delete: {method: auto}}, or delete the key")
	case ok && len(n.fields) > 1 && !d.partial[path]:
		d.refuse(n, path, "more than one action; write a job of its own for each")
	}
	if d.partial[path] {
		d.spoiled[path] = true
	}
}

func (d *decoder) trim(n *node, path string) *Trim {
	t := &Trim{}
	before := len(d.problems)
	d.mapping(n, path, "trim: {keep: 10000, keep_end: tail}", nil,
		key{"keep", func(n *node, path string) { keep := d.count(n, path); t.Keep = &keep }},
		key{"keep_end", func(n *node, path string) {
			t.KeepEnd = d.choice(n, path, nil, KeepHead, KeepTail, KeepHighest, KeepLowest, KeepNewest)
		}},
		key{"older_than", func(n *node, path string) { t.OlderThan = d.duration(n, path) }},
		key{"score", func(n *node, path string) { t.Score = d.choice(n, path, nil, UnixSeconds, UnixMillis) }},
		key{"force_unacknowledged", func(n *node, path string) { t.ForceUnacknowledged = d.boolean(n, path) }},
	)
	if len(d.problems) > before { // what is missing may be what is wrong
		d.spoiled[path] = true
	}
	return t
}

// percentOrNone reads a percentage, or 0.
func (d *decoder) percentOrNone(n *node, path string) Percent {
	if n.kind == isText && (n.text == "0" || n.text == "0%") { // no Percent is 0
		d.places[path] = n.place
		return 0
	}
	return d.percent(n, path)
}

func (d *decoder) limits(n *node, path string, l *Limits) {
	d.mapping(n, path, "limits: {max_keys: 1000}", nil,
		key{"max_keys", func(n *node, path string) { l.MaxKeys = d.count(n, path) }},
		key{"max_bytes", func(n *node, path string) { l.MaxBytes = d.size(n, path) }},
		key{"max_percent", func(n *node, path string) { l.MaxPercent = float64(d.percentOrNone(n, path)) }},
		key{"time", func(n *node, path string) { l.Time = d.duration(n, path) }},
	)
}
