package integration

import (
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// atLeast is a threshold as the command line takes it.
func atLeast(n int) []string { return []string{"--min-elements", strconv.Itoa(n)} }

// args joins what a command line is made of.
func args(parts ...any) (out []string) {
	for _, p := range parts {
		switch v := p.(type) {
		case []string:
			out = append(out, v...)
		default:
			out = append(out, fmt.Sprint(v))
		}
	}
	return out
}

func TestScanStandalone(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, slow20ms)
		scanFindsTheBigKeys(t, d)
	})
}

// scanFindsTheBigKeys is the first sentence of the main job: exactly the four
// big keys, with exact counts and their place, and nothing is written.
func scanFindsTheBigKeys(t *testing.T, d *deployment) {
	t.Helper()
	set := seed(t, d, size.small)
	before := digestOf(t, d)
	o := newOperator(t)
	w := observe(t, d)
	r := o.run(t, args("scan", "--url", d.url(), atLeast(size.threshold), "--format", "json")...).exit(0)
	w.nothingForbidden(t)
	w.wroteNothing(t, "unlink")
	mustEqual(t, before, digestOf(t, d))

	s := r.summary()
	s.complete(true)
	mustFindBig(t, d, set, s)
	if s.KeysScanned != int64(len(before)) {
		r.error("keys_scanned is %d, there are %d keys", s.KeysScanned, len(before))
	}
	if s.Outcomes != nil {
		r.error("a scan has outcomes")
	}
	if s.Started.IsZero() || s.Finished.Before(s.Started) {
		r.error("started %v, finished %v", s.Started, s.Finished)
	}
	var total, scanned int64
	for _, sh := range s.Shards {
		total += sh.KeysTotal
		scanned += sh.KeysScanned
		if sh.Error != "" {
			r.error("shard %s: %s", sh.ID, sh.Error)
		}
		if !strings.Contains(sh.Server, fmt.Sprintf("%s %d.%d.%d", d.bin.product, d.bin.major, d.bin.minor, d.bin.patch)) {
			r.error("shard %s says its server is %q, it is %s", sh.ID, sh.Server, d.bin)
		}
	}
	if total != int64(len(before)) || scanned != s.KeysScanned {
		r.error("the shards add up to %d keys, %d scanned; there are %d", total, scanned, len(before))
	}
	want := 3
	if len(s.Shards) != want {
		r.error("%d shards, want %d", len(s.Shards), want)
	}
}

// mustFindBig checks that the findings are exactly the big keys.
func mustFindBig(t *testing.T, d *deployment, set dataSet, s summary) {
	t.Helper()
	r := s.from
	addr := map[string]shard{}
	for _, sh := range s.Shards {
		if _, twice := addr[sh.ID]; twice {
			r.error("two shards are called %q", sh.ID)
		}
		addr[sh.ID] = sh
	}
	if s.KeysMatched != int64(len(set.big)) {
		r.error("keys_matched is %d, want %d", s.KeysMatched, len(set.big))
	}
	found := map[keyID]finding{}
	for _, f := range s.Findings {
		found[f.id(t)] = f
	}
	if len(s.Findings) != len(set.big) {
		r.error("%d findings, want %d", len(s.Findings), len(set.big))
	}
	for _, k := range set.big {
		f, ok := found[k.keyID]
		if !ok {
			r.error("%v was not found", k)
			continue
		}
		if f.Type != k.kind {
			r.error("%v has type %q, want %q", k, f.Type, k.kind)
		}
		if f.Elements == nil || *f.Elements != k.elements {
			r.error("%v: elements are not %d", k, k.elements)
		}
		if f.TTL == nil || *f.TTL != -1 {
			r.error("%v: ttl_ms is not -1", k)
		}
		if got := addr[f.Shard]; got.Addr != d.owner(k.name).addr || got.DB != k.db {
			r.error("%v is said to be on shard %q (%s, db %d); it is on %s", k, f.Shard, got.Addr, got.DB, d.owner(k.name).addr)
		}
		if d.cluster && (f.Slot == nil || *f.Slot != slotOf(k.name)) {
			r.error("%v: slot is not %d", k, slotOf(k.name))
		}
		if !d.cluster && f.Slot != nil {
			r.error("%v has a slot on a standalone server", k)
		}
	}
}

// foundNames runs a scan and returns the names it found, sorted.
func foundNames(t *testing.T, o *operator, d *deployment, flags ...string) []string {
	t.Helper()
	r := o.run(t, args("scan", "--url", d.url(), "--format", "json", flags)...).exit(0)
	s := r.summary()
	s.complete(true)
	var out []string
	for _, f := range s.Findings {
		out = append(out, f.name(t))
	}
	if int64(len(out)) != s.KeysMatched {
		r.error("%d findings, keys_matched %d", len(out), s.KeysMatched)
	}
	slices.Sort(out)
	return out
}

func mustFind(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %.300q\nwant  %.300q", got, want)
	}
}

func TestScanByName(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		for _, n := range []string{"cache[ab]:1", "cachea:1", "cacheb:1", "cache*:1", "cacheX:1", "cache?:1", `back\slash`, "backslash",
			"user:1:cart", "user:2:cart", "user:22:cart", "User:1:cart", "user:1:name", "other",
			" lead", "lead", "tail ", "tail", "com,ma", "com"} {
			m.do(t, 0, "SET", n, "x")
		}
		o := newOperator(t)
		for _, c := range []struct {
			flags []string
			want  []string
		}{
			// A prefix is literal, whatever it looks like.
			{[]string{"--prefix", "cache[ab]:"}, []string{"cache[ab]:1"}},
			{[]string{"--prefix", "cache*"}, []string{"cache*:1"}},
			{[]string{"--prefix", "cache?"}, []string{"cache?:1"}},
			{[]string{"--prefix", `back\`}, []string{`back\slash`}},
			{[]string{"--prefix", " lead"}, []string{" lead"}},
			{[]string{"--prefix", "tail "}, []string{"tail "}},
			{[]string{"--prefix", "com,"}, []string{"com,ma"}},
			{[]string{"--match", "* "}, []string{"tail "}},
			{[]string{"--match", "* ", "--match", "c*,*"}, []string{"com,ma", "tail "}},
			{[]string{"--match", "*lead", "--exclude", " *"}, []string{"lead"}},
			{[]string{"--prefix", "user:2"}, []string{"user:2:cart", "user:22:cart"}},
			// A match is Redis' own glob.
			{[]string{"--match", "cache[ab]:*"}, []string{"cachea:1", "cacheb:1"}},
			{[]string{"--match", `cache\[ab\]:*`}, []string{"cache[ab]:1"}},
			{[]string{"--match", `cache\*:*`}, []string{"cache*:1"}},
			{[]string{"--match", "user:?:cart"}, []string{"user:1:cart", "user:2:cart"}},
			{[]string{"--match", "[Uu]ser:1:*"}, []string{"User:1:cart", "user:1:cart", "user:1:name"}},
			{[]string{"--match", "user:[^2]*:cart"}, []string{"user:1:cart"}},
			{[]string{"--match", "user:[0-1]:*"}, []string{"user:1:cart", "user:1:name"}},
			{[]string{"--match", "user:1:*", "--match", "oth*"}, []string{"user:1:cart", "user:1:name", "other"}},
			{[]string{"--match", "user:*", "--exclude", "*:cart"}, []string{"user:1:name"}},
			{[]string{"--prefix", "user:", "--exclude", "user:2*", "--exclude", "*name"}, []string{"user:1:cart"}},
			{[]string{"--match", "nothing*"}, nil},
		} {
			t.Run(strings.Join(c.flags, " "), func(t *testing.T) {
				mustFind(t, foundNames(t, o, d, c.flags...), c.want...)
			})
		}
	})
}

func TestScanByTypeAndTTL(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		m := d.masters[0]
		for _, kind := range kinds {
			load(t, d, 0, kind, "t:"+kind, 5)
		}
		if b.since(5, 0) {
			m.do(t, 0, "XADD", "t:stream", "*", "f", "v")
		}
		m.do(t, 0, "SETEX", "e:minute", "60", "x")
		m.do(t, 0, "SETEX", "e:hours", strconv.Itoa(3*3600), "x")
		m.do(t, 0, "SETEX", "e:days", strconv.Itoa(40*24*3600), "x")
		m.do(t, 0, "SET", "e:never", "x")
		o := newOperator(t)
		mustFind(t, foundNames(t, o, d, "--type", "hash"), "t:hash")
		mustFind(t, foundNames(t, o, d, "--type", "set", "--type", "zset"), "t:set", "t:zset")
		mustFind(t, foundNames(t, o, d, "--type", "string", "--prefix", "t:"), "t:string")
		if b.since(5, 0) {
			mustFind(t, foundNames(t, o, d, "--type", "stream"), "t:stream")
		}
		mustFind(t, foundNames(t, o, d, "--prefix", "e:", "--no-ttl"), "e:never")
		mustFind(t, foundNames(t, o, d, "--ttl-under", "15m"), "e:minute")
		mustFind(t, foundNames(t, o, d, "--ttl-over", "1h"), "e:hours", "e:days")
		mustFind(t, foundNames(t, o, d, "--ttl-over", "1h", "--ttl-under", "1d"), "e:hours")
		mustFind(t, foundNames(t, o, d, "--ttl-over", "30d"), "e:days")
		// A word that is no type is a mistake, not an empty result.
		o.run(t, "scan", "--url", d.url(), "--type", "hashes", "--format", "json").exit(2)
		for _, wrong := range [][]string{{"--ttl-under", "15"}, {"--min-bytes", "1000"}, {"--min-bytes", "1XB"}, {"--min-elements", "x"},
			{"--min-elements", "-1"}, {"--format", "xml"}, {"--no-such-flag"}, {"--no-ttl", "--ttl-under", "1h"}} {
			o.run(t, args("scan", "--url", d.url(), wrong)...).exit(2)
		}
	})
}

func TestScanByBytes(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		bystand(t, d, 0, size.bystanders)
		load(t, d, 0, "string", "huge:string", 3_000_000)
		load(t, d, 2, "hash", "huge:hash", 60_000)
		load(t, d, 2, "hash", "small:hash", 600)
		before := digestOf(t, d)
		o := newOperator(t)
		if !b.hasMemoryUsage() {
			// Without MEMORY USAGE the report has to say in words what the
			// figures are, or refuse.
			r := o.run(t, "scan", "--url", d.url(), "--min-bytes", "1MB", "--format", "json").exit(0, 1, 2, 3)
			if r.code == 0 || r.code == 3 {
				s := r.summary()
				for _, f := range s.Findings {
					if !strings.HasPrefix(f.name(t), "huge:") {
						r.error("%q is not over 1 MB", f.name(t))
					}
				}
				if len(s.Notes) == 0 {
					r.error("no note says how bytes were counted without MEMORY USAGE")
				}
			} else if r.stderr == "" {
				r.error("refused without a word")
			}
			return
		}
		r := o.run(t, "scan", "--url", d.url(), "--min-bytes", "1MB", "--format", "json").exit(0)
		s := r.summary()
		s.complete(true)
		var sum int64
		want := []string{"huge:hash", "huge:string"}
		var got []string
		for _, f := range s.Findings {
			got = append(got, f.name(t))
			if f.Bytes == nil {
				r.error("%q has no bytes", f.name(t))
				continue
			}
			sum += *f.Bytes
			there := d.masters[0].doInt(t, f.DB, "MEMORY", "USAGE", f.name(t), "SAMPLES", "0")
			if off := float64(*f.Bytes) / float64(there); off < 0.75 || off > 1.33 {
				r.error("%q: bytes %d, the server counts %d", f.name(t), *f.Bytes, there)
			}
		}
		slices.Sort(got)
		mustFind(t, got, want...)
		if s.Bytes != sum {
			r.error("bytes_matched %d, the findings add up to %d", s.Bytes, sum)
		}
		mustFind(t, foundNames(t, o, d, "--min-bytes", "2MiB", "--type", "string"), "huge:string")
		mustFind(t, foundNames(t, o, d, "--min-bytes", "10GiB"))
		mustFind(t, foundNames(t, o, d, "--min-bytes", "1MB", "--min-elements", "1000"), "huge:hash")
		mustEqual(t, before, digestOf(t, d))
	})
}

func TestScanTopAndFormats(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		const n = 40
		for i := 1; i <= n; i++ {
			load(t, d, i%3, "list", fmt.Sprintf("list:%02d", i), 1000+100*i)
		}
		bystand(t, d, 0, size.bystanders)
		o := newOperator(t)
		base := args("scan", "--url", d.url(), atLeast(1000))

		t.Run("top", func(t *testing.T) {
			r := o.run(t, args(base, "--top", 3, "--format", "json")...).exit(0)
			s := r.summary()
			var got []string
			for _, f := range s.Findings {
				got = append(got, f.name(t))
			}
			if !slices.Equal(got, []string{"list:40", "list:39", "list:38"}) {
				r.error("the top three are %q", got)
			}
			if s.KeysMatched != n {
				r.error("keys_matched is %d, want %d", s.KeysMatched, n)
			}
		})
		t.Run("jsonl", func(t *testing.T) {
			// A stream names every finding, however small --top is.
			found, s := o.run(t, args(base, "--top", 3, "--format", "jsonl")...).exit(0).stream()
			seen := map[keyID]bool{}
			for _, f := range found {
				seen[f.id(t)] = true
			}
			if len(found) != n || len(seen) != n || s.KeysMatched != n {
				t.Errorf("%d lines, %d keys, keys_matched %d; want %d", len(found), len(seen), s.KeysMatched, n)
			}
		})
		t.Run("csv", func(t *testing.T) {
			r := o.run(t, args(base, "--top", 3, "--format", "csv")...).exit(0)
			rows, err := csv.NewReader(strings.NewReader(r.stdout)).ReadAll()
			if err != nil {
				r.fatal("not CSV: %v", err)
			}
			col := map[string]int{}
			for i, name := range rows[0] {
				col[name] = i
			}
			for _, name := range []string{"key", "shard", "db", "type", "elements", "bytes", "ttl_ms"} {
				if _, ok := col[name]; !ok {
					r.fatal("the header %q has no %s", rows[0], name)
				}
			}
			if len(rows) != n+1 {
				r.error("%d rows, want %d", len(rows), n+1)
			}
			for _, row := range rows[1:] {
				i, _ := strconv.Atoi(strings.TrimPrefix(row[col["key"]], "list:"))
				if row[col["elements"]] != strconv.Itoa(1000+100*i) || row[col["type"]] != "list" || row[col["db"]] != strconv.Itoa(i%3) {
					r.error("row %q", row)
				}
			}
		})
		t.Run("table", func(t *testing.T) {
			r := o.run(t, args(base, "--top", 3)...).exit(0)
			for _, text := range []string{"list:40", "list:39", "list:38", "5000"} {
				if !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(r.stdout, ",", ""), " ", ""), text) {
					r.error("the table does not show %q", text)
				}
			}
			if strings.Contains(r.stdout, "\x1b") {
				r.error("colours where there is no terminal")
			}
		})
		t.Run("output", func(t *testing.T) {
			r := o.run(t, args(base, "--format", "json", "--output", "found.json")...).exit(0)
			if r.stdout != "" {
				r.error("--output, and yet something on standard output")
			}
			if s := r.decode(o.read(t, "found.json")); s.KeysMatched != n {
				r.error("keys_matched %d in the file, want %d", s.KeysMatched, n)
			}
		})
		t.Run("db", func(t *testing.T) {
			// One database by flag or by URL.
			for _, where := range [][]string{{"--url", d.url(), "--db", "1"}, {"--url", d.masters[0].url(1)}} {
				s := o.run(t, args("scan", where, atLeast(1000), "--format", "json")...).exit(0).summary()
				if len(s.Shards) != 1 || s.Shards[0].DB != 1 || s.KeysMatched != 14 {
					s.from.error("want one shard with database 1 and 14 findings")
				}
			}
			s := o.run(t, args("scan", "--url", d.url(), "--db", 1, "--db", 2, atLeast(1000), "--format", "json")...).exit(0).summary()
			if s.KeysMatched != 27 {
				s.from.error("two databases have 27 such keys, keys_matched %d", s.KeysMatched)
			}
		})
	})
}

// Any name survives every format that can be fed back.
func TestScanHostileNames(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		want := map[string]bool{}
		for _, n := range hostileNames() {
			d.masters[0].do(t, 0, "SET", n, "x")
			want[n] = true
		}
		o := newOperator(t)
		check := func(t *testing.T, found []finding) {
			t.Helper()
			got := map[string]bool{}
			for _, f := range found {
				n := f.name(t)
				if got[n] {
					t.Errorf("%.60q is there twice", n)
				}
				got[n] = true
				if !want[n] {
					t.Errorf("%.60q is no key", n)
				}
			}
			for n := range want {
				if !got[n] {
					t.Errorf("%.60q was not found", n)
				}
			}
		}
		t.Run("json", func(t *testing.T) {
			check(t, o.run(t, "scan", "--url", d.url(), "--type", "string", "--top", "1000", "--format", "json").exit(0).summary().Findings)
		})
		t.Run("jsonl", func(t *testing.T) {
			found, _ := o.run(t, "scan", "--url", d.url(), "--type", "string", "--format", "jsonl").exit(0).stream()
			check(t, found)
		})
		t.Run("csv", func(t *testing.T) {
			r := o.run(t, "scan", "--url", d.url(), "--type", "string", "--format", "csv").exit(0)
			rows, err := csv.NewReader(strings.NewReader(r.stdout)).ReadAll()
			if err != nil || len(rows) != len(want)+1 {
				r.error("%d rows, want %d: %v", len(rows), len(want)+1, err)
			}
		})
		t.Run("table", func(t *testing.T) {
			r := o.run(t, "scan", "--url", d.url(), "--type", "string", "--top", "1000").exit(0)
			if regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f]`).MatchString(r.stdout) {
				r.error("a name reached the terminal with control bytes")
			}
		})
	})
}

func TestScanOfNothing(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b)
		o := newOperator(t)
		s := o.run(t, "scan", "--url", d.url(), "--format", "json").exit(0).summary()
		s.complete(true)
		if s.KeysScanned != 0 || s.Findings == nil {
			s.from.error("an empty server: keys_scanned 0 and findings []")
		}
	})
}
