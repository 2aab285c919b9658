package jobs

import (
	"encoding/base64"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/keyjanitor/keyjanitor/deleter"
)

// Auditor keeps the record. It can veto: what it could not write is not done.
type Auditor interface {
	// Intents returns only when the entries would survive a crash.
	Intents([]Entry) error
	Results([]Entry) error
}

// Entry is one line of the audit: what is about to be done to a key and on
// what evidence, or what was done. Values that are not known are absent.
type Entry struct {
	Time      time.Time `json:"time"`
	Run       string    `json:"run"` // one id for all lines of a run
	Job       string    `json:"job,omitempty"`
	Target    string    `json:"target"`
	Shard     string    `json:"shard"`
	DB        int       `json:"db"`
	Kind      string    `json:"kind"` // intent, result, or the same of a page of small keys: intents, results
	Key       *string   `json:"key,omitempty"`
	KeyBase64 string    `json:"key_base64,omitempty"`
	Keys      []string  `json:"keys,omitempty"`        // of intents
	KeysBytes []string  `json:"keys_base64,omitempty"` // instead of Keys, where one of them is not UTF-8
	Type      string    `json:"type,omitempty"`
	Elements  *int64    `json:"elements,omitempty"`
	Bytes     *int64    `json:"bytes,omitempty"`
	Action    string    `json:"action,omitempty"` // of an intent: what is to be done, if not to delete
	Evidence  *Evidence `json:"rule,omitempty"`   // of an intent
	Count     *int64    `json:"count,omitempty"`  // of results: keys with this fate
	*Fate               // of a result
}

// Evidence is the part of a rule that is judged again at the act.
type Evidence struct {
	MinElements int64  `json:"min_elements,omitempty"`
	MinBytes    int64  `json:"min_bytes,omitempty"`
	NoTTL       bool   `json:"no_ttl,omitempty"`
	TTLUnder    string `json:"ttl_under,omitempty"`
	TTLOver     string `json:"ttl_over,omitempty"`
	Lasting     string `json:"ttl_over_or_none,omitempty"`
	IdleOver    string `json:"idle_over,omitempty"`
	FreqUnder   int64  `json:"freq_under,omitempty"`
}

// Fate is what became of a key.
type Fate struct {
	Outcome         string  `json:"outcome"`
	Method          string  `json:"method,omitempty"`
	ElementsRemoved int64   `json:"elements_removed"`
	BytesReleased   int64   `json:"bytes_released"`
	Batches         int64   `json:"batches"`
	TookMillis      float64 `json:"took_ms"`
	SlowestMillis   float64 `json:"slowest_ms"`
	Reason          string  `json:"reason,omitempty"`
}

// entry begins a line of the audit.
func (k *worker) entry(kind string, o *deleter.Order) Entry {
	e := Entry{
		Time: time.Now(), Run: k.id, Job: k.Job.Name, Target: k.Target.Name, Shard: k.shard.ID, DB: k.shard.DB,
		Kind: kind, Type: o.Type,
	}
	name := o.Key
	e.Key = &name
	if !utf8.ValidString(o.Key) {
		e.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(o.Key))
	}
	return e
}

func (k *worker) intent(o *deleter.Order) Entry {
	e := k.entry("intent", o)
	e.Elements, e.Bytes = optional(o.Elements), optional(o.Bytes)
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	v := &o.Evidence
	e.Evidence = &Evidence{v.MinElements, v.MinBytes, v.NoTTL, text(v.TTLUnder), text(v.TTLOver), text(v.Lasting), text(v.IdleOver), v.FreqUnder}
	e.Action = k.actionText()
	return e
}

func (k *worker) result(r *deleter.Result) Entry {
	e := k.entry("result", &r.Order)
	e.Fate = &Fate{
		Outcome: string(r.Outcome), Method: string(r.Method), ElementsRemoved: r.Elements, BytesReleased: r.Bytes,
		Batches: r.Batches, TookMillis: millis(r.Took), SlowestMillis: millis(r.Slowest), Reason: r.Reason,
	}
	return e
}

// small reports whether a key shares the lines of its page: a purge of
// millions of small keys would otherwise write 500 bytes for each.
func small(o *deleter.Order) bool { return o.Bytes < 1<<20 && o.Elements <= 1000 }

// intents is what is about to be done to a page of keys: one line for those
// that are small, one for each of the others.
func (k *worker) intents(orders []deleter.Order) []Entry {
	var lines []Entry
	var names []string
	var first *deleter.Order
	for i := range orders {
		o := &orders[i]
		if !small(o) {
			lines = append(lines, k.intent(o))
			continue
		}
		if first == nil {
			first = o
		}
		names = append(names, o.Key)
	}
	switch {
	case len(names) == 1:
		return append(lines, k.intent(first))
	case len(names) == 0:
		return lines
	}
	e := k.intent(&deleter.Order{Elements: deleter.Unknown, Bytes: deleter.Unknown, Evidence: first.Evidence})
	e.Kind, e.Key, e.Keys = "intents", nil, names
	if slices.ContainsFunc(names, func(name string) bool { return !utf8.ValidString(name) }) {
		e.Keys = nil
		for _, name := range names {
			e.KeysBytes = append(e.KeysBytes, base64.StdEncoding.EncodeToString([]byte(name)))
		}
	}
	return append(lines, e)
}

// results is what was done to a page of keys: one line for each that is not
// small or did not fare as it should, and one for all others of the same fate.
func (k *worker) results(all []deleter.Result) []Entry {
	var lines []Entry
	shared := map[deleter.Outcome]*Entry{}
	for i := range all {
		r := &all[i]
		if r.Outcome == deleter.Large {
			continue // an intent and a result of its own follow
		}
		if !small(&r.Order) || r.Outcome != deleter.Unlinked && r.Outcome != deleter.Deleted && r.Outcome != deleter.Expired {
			lines = append(lines, k.result(r))
			continue
		}
		sum := shared[r.Outcome]
		if sum == nil {
			e := k.result(r)
			e.Kind, e.Key, e.KeyBase64, e.Type, e.Count = "results", nil, "", "", new(int64)
			e.Fate = &Fate{Outcome: e.Outcome, Method: e.Method}
			sum = &e
			shared[r.Outcome] = sum
		}
		*sum.Count++
		sum.ElementsRemoved += r.Elements
		sum.BytesReleased += r.Bytes
		sum.Batches += r.Batches
		sum.SlowestMillis = max(sum.SlowestMillis, millis(r.Slowest))
	}
	for _, sum := range shared {
		lines = append(lines, *sum)
	}
	return lines
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// optional is a number as reports hold it: nil where it is not known.
func optional(n int64) *int64 {
	if n == deleter.Unknown {
		return nil
	}
	return &n
}
