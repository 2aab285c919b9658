package jobs

import (
	"encoding/json"
	"slices"
	"testing"
)

func keysOf(t *testing.T, v any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}

func has(t *testing.T, m map[string]any, want ...string) {
	t.Helper()
	var have []string
	for k := range m {
		have = append(have, k)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("fields %q\nwant   %q", have, want)
	}
}

// The names are a contract: scripts of others read them.
func TestSummaryJSON(t *testing.T) {
	scan := keysOf(t, newSummary(Request{Mode: Scan}))
	common := []string{
		"target", "mode", "started", "finished", "complete", "shards", "keys_scanned", "keys_matched", "bytes_matched",
		"findings", "types", "prefixes", "ttl", "sizes", "notes",
	}
	has(t, scan, common...)
	for _, list := range []string{"shards", "findings", "types", "prefixes", "ttl", "sizes", "notes"} {
		if v, ok := scan[list].([]any); !ok || len(v) != 0 {
			t.Errorf("%s is %v, want an empty list", list, scan[list])
		}
	}
	q := Request{Mode: Execute}
	q.Job.Name = "nightly"
	act := keysOf(t, newSummary(q))
	has(t, act, append(common, "job", "outcomes", "elements_removed", "bytes_released", "holds")...)
	outcomes, _ := act["outcomes"].(map[string]any)
	has(t, outcomes, "unlinked", "deleted", "drained", "trashed", "trimmed", "expired", "finished", "gone", "changed",
		"protected", "restored", "failed", "would_act") // zeros are there

	has(t, keysOf(t, ShardSummary{Role: "master", Server: "redis 7.0.15", KeysTotal: new(int64), Error: "x"}),
		"id", "addr", "db", "role", "server", "keys_total", "keys_scanned", "keys_matched", "bytes_matched", "error")
	has(t, keysOf(t, Group{Prefix: "a:", NoTTL: new(int64)}), "prefix", "keys", "bytes", "no_ttl")
	has(t, keysOf(t, Group{Prefix: "a:"}), "prefix", "keys", "bytes")
	has(t, keysOf(t, Hold{Signal: "cpu", Shard: "s"}), "signal", "shard", "reason", "seconds")
}

func TestFindingJSON(t *testing.T) {
	slot, ms := 12, 1.5
	has(t, keysOf(t, Finding{
		Name: "\xff", Shard: "s", Type: "hash", Encoding: "hashtable", Bytes: num(0), Elements: num(0), TTLMillis: num(-1),
		IdleSeconds: num(0), Slot: &slot, Outcome: "drained", Method: "drain", Batches: 2, TookMillis: &ms, SlowestMillis: &ms, Reason: "r",
	}), "key", "key_base64", "shard", "db", "type", "encoding", "bytes", "elements", "ttl_ms", "idle_seconds", "slot",
		"outcome", "method", "batches", "took_ms", "slowest_ms", "reason")

	// What is not known is absent.
	has(t, keysOf(t, Finding{Name: "a"}), "key", "shard", "db")
	for name, base64 := range map[string]any{"a": nil, "": nil, "é\n\x00": nil, "�": nil, "\xff": "/w==", "a\xc3": "YcM=", "\xed\xa0\x80": "7aCA"} {
		m := keysOf(t, Finding{Name: name})
		if m["key_base64"] != base64 {
			t.Errorf("%q: key_base64 is %v, want %v", name, m["key_base64"], base64)
		}
		if base64 == nil && m["key"] != name {
			t.Errorf("%q: key is %q", name, m["key"])
		}
	}
	// In a list the name is there too.
	m := keysOf(t, map[string][]Finding{"findings": {{Name: "a"}}})
	if f := m["findings"].([]any)[0].(map[string]any); f["key"] != "a" {
		t.Errorf("in a list a finding is %v", f)
	}
}
