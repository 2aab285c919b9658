package jobs

import (
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Summary is one run as every output format shows it. Its JSON form is a
// contract: names stay, and a value that is not known is absent, never 0.
type Summary struct {
	Job          string         `json:"job,omitempty"`
	Target       string         `json:"target"`
	Mode         string         `json:"mode"`           // scan, report or execute
	Part         string         `json:"part,omitempty"` // of the shards, such as 1-of-3
	Started      time.Time      `json:"started"`
	Finished     time.Time      `json:"finished"`
	Complete     bool           `json:"complete"` // every shard was scanned to its end
	Shards       []ShardSummary `json:"shards"`
	KeysScanned  int64          `json:"keys_scanned"`
	KeysMatched  int64          `json:"keys_matched"`
	BytesMatched int64          `json:"bytes_matched"` // estimate, of the matched keys whose size is known
	Findings     []Finding      `json:"findings"`      // the top N; all of them in the streaming formats
	TopElements  []Finding      `json:"top_elements,omitempty"`
	Types        []Group        `json:"types"`
	Prefixes     []Group        `json:"prefixes"`
	TTL          []Group        `json:"ttl"`
	Sizes        []Group        `json:"sizes"`
	Idle         []Group        `json:"idle,omitempty"` // where idle times are known
	Notes        []string       `json:"notes"`
	*ActSummary                 // nil for a scan
	Error        string         `json:"error,omitempty"`
}

// ActSummary is what a run that acts, or would act, adds to a scan.
type ActSummary struct {
	Outcomes        Outcomes `json:"outcomes"`
	ElementsRemoved int64    `json:"elements_removed"` // from replies; of unlinked and deleted keys too
	BytesReleased   int64    `json:"bytes_released"`   // estimate
	Holds           []Hold   `json:"holds"`
	StoppedBy       string   `json:"stopped_by,omitempty"`
}

// ShardSummary is one shard's part of a run.
type ShardSummary struct {
	ID          string `json:"id"`
	Addr        string `json:"addr"`
	DB          int    `json:"db"`
	Role        string `json:"role,omitempty"`
	Server      string `json:"server,omitempty"`     // "redis 7.0.15"
	KeysTotal   *int64 `json:"keys_total,omitempty"` // DBSIZE at the start; nil: unknown
	KeysScanned int64  `json:"keys_scanned"`
	// As in the summary, of this shard.
	KeysMatched  int64  `json:"keys_matched"`
	BytesMatched int64  `json:"bytes_matched"`
	Error        string `json:"error,omitempty"`
}

// Finding is one key that the rule selected. Pointers are nil where the
// value is not known.
type Finding struct {
	Name        string `json:"-"` // the raw bytes; written as key and, where it is not UTF-8, key_base64
	Shard       string `json:"shard"`
	Addr        string `json:"addr,omitempty"` // of the shard's node
	DB          int    `json:"db"`
	Type        string `json:"type,omitempty"`
	Encoding    string `json:"encoding,omitempty"`
	Bytes       *int64 `json:"bytes,omitempty"`
	Elements    *int64 `json:"elements,omitempty"`
	TTLMillis   *int64 `json:"ttl_ms,omitempty"` // -1: no TTL
	IdleSeconds *int64 `json:"idle_seconds,omitempty"`
	Freq        *int64 `json:"freq,omitempty"` // LFU counter
	Slot        *int   `json:"slot,omitempty"` // in a cluster

	// Only in runs over the trash.
	State string     `json:"state,omitempty"` // kept or draining
	Due   *time.Time `json:"due,omitempty"`   // when it may be removed
	Job   string     `json:"job,omitempty"`   // that set it aside
	Nonce string     `json:"nonce,omitempty"` // tells keys of the same name apart

	// Only in runs that act.
	Outcome       string   `json:"outcome,omitempty"`
	Method        string   `json:"method,omitempty"`
	Batches       int64    `json:"batches,omitempty"`
	Removed       int64    `json:"elements_removed,omitempty"`
	TookMillis    *float64 `json:"took_ms,omitempty"`
	SlowestMillis *float64 `json:"slowest_ms,omitempty"`
	Reason        string   `json:"reason,omitempty"` // why it failed, changed or was refused
}

// MarshalJSON writes the name as key, and as key_base64 too where it is not
// valid UTF-8 and key could not be turned back into the same bytes.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	out := struct {
		Key       string `json:"key"`
		KeyBase64 string `json:"key_base64,omitempty"`
		plain
	}{Key: f.Name, plain: plain(f)}
	if !utf8.ValidString(f.Name) {
		out.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(f.Name))
	}
	return json.Marshal(out)
}

// Group is one row of a table: a type, a prefix, or a band of TTLs, sizes or
// idle times. One of the three names is set.
type Group struct {
	Type   string `json:"type,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	Band   string `json:"band,omitempty"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	NoTTL  *int64 `json:"no_ttl,omitempty"` // nil where the TTL of one of them is not known
}

// Outcomes counts the keys of a run by what became of them.
type Outcomes struct {
	Unlinked  int64 `json:"unlinked"`
	Deleted   int64 `json:"deleted"`
	Drained   int64 `json:"drained"`
	Trashed   int64 `json:"trashed"`
	Trimmed   int64 `json:"trimmed"`
	Expired   int64 `json:"expired"`
	Finished  int64 `json:"finished"` // leftovers of earlier runs, drained to the end
	Restored  int64 `json:"restored"` // given back from the trash
	Gone      int64 `json:"gone"`
	Changed   int64 `json:"changed"`
	Protected int64 `json:"protected"`
	Failed    int64 `json:"failed"`
	WouldAct  int64 `json:"would_act"`
}

// Hold is one signal for which a shard's work waited.
type Hold struct {
	Signal  string  `json:"signal,omitempty"` // as hold_when calls it, or "paused"
	Shard   string  `json:"shard,omitempty"`
	Addr    string  `json:"addr,omitempty"` // of the shard's node
	Reason  string  `json:"reason"`         // the latest, in words
	Seconds float64 `json:"seconds"`
}
