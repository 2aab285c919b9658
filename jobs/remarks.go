package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// soon and manyElements say which keys are about to give a server trouble by
// expiring: freeing 10,000 elements takes its main thread some 3 ms (a hash of
// a million fields was seen to take 0.3 s), where it does not free lazily.
const (
	soon         = time.Hour
	manyElements = 10_000
)

func expiresSoon(f *Finding) bool {
	return f.TTLMillis != nil && *f.TTLMillis >= 0 && *f.TTLMillis < soon.Milliseconds() &&
		f.Elements != nil && *f.Elements > manyElements
}

// remarks are what a scan's numbers say, in words.
func (w *run) remarks(s *Summary) []string {
	var notes []string
	if note := skew(s); note != "" {
		notes = append(notes, note)
	}
	if g := w.tally.ttl["none"]; g != nil && !w.Job.Select.NoTTL {
		notes = append(notes, counted(g.Keys, "key", " without a TTL"))
	}
	if n := w.tally.expiring; n > 0 {
		verb := "expires"
		if n > 1 {
			verb = "expire"
		}
		notes = append(notes, counted(n, "oversized key", " "+verb+" within an hour")+
			"; where lazyfree-lazy-expire is off that stalls the server, and clean --action defuse avoids it")
	}
	return notes
}

func counted(n int64, noun, rest string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun + rest
}

// skew names a node that holds more than twice its even share of the matched
// bytes, and the key that most of it is; "" if there is none. A node's
// databases count together.
func skew(s *Summary) string {
	bytes, order := map[string]int64{}, []string{}
	var total int64
	for i := range s.Shards {
		sh := &s.Shards[i]
		if sh.Error != "" && sh.KeysScanned == 0 {
			continue // nothing is known of it
		}
		if _, there := bytes[sh.Addr]; !there {
			order = append(order, sh.Addr)
		}
		bytes[sh.Addr] += sh.BytesMatched
		total += sh.BytesMatched
	}
	most := ""
	for _, addr := range order {
		if bytes[addr] > bytes[most] {
			most = addr
		}
	}
	// Twice the even share: bytes > 2 * total / nodes.
	if len(order) < 2 || float64(bytes[most])*float64(len(order)) <= 2*float64(total) {
		return ""
	}
	note := fmt.Sprintf("node %s holds %s of the bytes of %d nodes", most, percent(bytes[most], total), len(order))
	var largest *Finding
	for i := range s.Findings {
		if f := &s.Findings[i]; f.Addr == most && (largest == nil || known(f.Bytes) > known(largest.Bytes)) {
			largest = f
		}
	}
	if largest != nil && known(largest.Bytes) > bytes[most]/10 {
		note += fmt.Sprintf("; %s of it is key %s", percent(*largest.Bytes, bytes[most]), legible(largest.Name))
	}
	return note
}

func percent(part, whole int64) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(whole))
}

// legible is a name within a sentence: quoted where it is not plain text, and
// cut where it is long.
func legible(name string) string {
	const longest = 60
	more := ""
	if len(name) > longest {
		text := utf8.ValidString(name)
		if name, more = name[:longest], "…"; text {
			name = strings.ToValidUTF8(name, "") // a rune may have been cut in two
		}
	}
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || name == "" {
		return quoted + more
	}
	return name + more
}
