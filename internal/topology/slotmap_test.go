package topology

import (
	"fmt"
	"slices"
	"testing"
)

func TestParseSlotMap(t *testing.T) {
	entry := func(first, last int64, node ...any) any { return []any{first, last, node} }
	meta := func(pairs ...any) any { return pairs }
	for name, tc := range map[string]struct {
		reply any
		want  string // addrs, slots and whether the address is a guess
	}{
		"3.2, no ids, one node in two ranges": {
			[]any{entry(0, 9, "10.0.0.1", int64(7000)), entry(10, 19, "10.0.0.2", int64(7000)), entry(20, 16383, "10.0.0.1", int64(7000))},
			"[10.0.0.1:7000] [0-9 20-16383] false; [10.0.0.2:7000] [10-19] false; "},
		"unsorted": {
			[]any{entry(20, 29, "b", int64(1), "id2"), entry(10, 19, "a", int64(1), "id1"), entry(0, 9, "a", int64(1), "id1")},
			"[a:1] [0-9 10-19] false; [b:1] [20-29] false; "},
		"one node under two addresses is one": {
			[]any{entry(0, 9, "a", int64(1), "id1"), entry(10, 10, "b", int64(2), "id1")},
			"[a:1] [0-9 10] false; "},
		"IPv6": {
			[]any{entry(0, 9, "::1", int64(7000), "id")},
			"[[::1]:7000] [0-9] false; "},
		"empty host before any MEET": {
			[]any{entry(0, 9, "", int64(7000), "id")},
			"[seed:7000] [0-9] true; "},
		"NULL host: ours by the protocol, then the node's ip": {
			[]any{entry(0, 9, nil, int64(7000), "id", meta("ip", "10.0.0.1"))},
			"[seed:7000 10.0.0.1:7000] [0-9] true; "},
		"? host: the node's ip, then ours": {
			[]any{entry(0, 9, "?", int64(7000), "id", meta("ip", "10.0.0.1"))},
			"[10.0.0.1:7000 seed:7000] [0-9] true; "},
		"hostname with metadata": {
			[]any{entry(0, 9, "node-1.example", int64(7000), "id", meta("ip", "10.0.0.1"))},
			"[node-1.example:7000] [0-9] false; "},
	} {
		nodes, err := parseSlotMap(tc.reply, "seed")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got string
		for _, n := range nodes {
			got += fmt.Sprint(n.addrs, " ", n.slots, " ", n.guessed, "; ")
		}
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

func TestParseSlotMapRefuses(t *testing.T) {
	for name, reply := range map[string]any{
		"no masters":     []any{},
		"not a list":     "OK",
		"no node":        []any{[]any{int64(0), int64(1)}},
		"slot too high":  []any{[]any{int64(0), int64(16384), []any{"h", int64(1)}}},
		"port as text":   []any{[]any{int64(0), int64(1), []any{"h", "1"}}},
		"no host at all": []any{[]any{int64(0), int64(1), []any{nil, int64(1)}}},
	} {
		if nodes, err := parseSlotMap(reply, ""); err == nil {
			t.Errorf("%s: accepted as %v", name, nodes)
		}
	}
}

func TestUncovered(t *testing.T) {
	nodes := []clusterNode{{slots: []SlotRange{{100, 199}, {0, 9}}}, {slots: []SlotRange{{10, 20}, {22, 50}}}}
	want := []SlotRange{{21, 21}, {51, 99}, {200, 16383}}
	if got := uncovered(nodes); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := uncovered([]clusterNode{{slots: []SlotRange{{0, 16383}}}}); got != nil {
		t.Errorf("full cover has gaps %v", got)
	}
}
