package topology

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
)

// clusterNode is a slot-owning master as one node of the cluster sees it.
type clusterNode struct {
	id string // "" before 4.0
	// addrs are where it may be reached, likeliest first: one, except where
	// the cluster does not say which host to use.
	addrs   []string
	guessed bool // addrs are ours, not the cluster's
	slots   []SlotRange
}

// shardID is the ID of the node's shard.
func (n clusterNode) shardID() string {
	if n.id == "" {
		return n.addrs[0] + "/0"
	}
	return n.id + "/0"
}

// parseSlotMap reads a CLUSTER SLOTS reply: who owns which slots, each master
// once. The client library's own parser fails on a NULL host and turns an
// empty one into localhost, hence this one.
//
// Hosts that are none:
//   - "" is a node that does not know its address yet, in practice the one we
//     asked: reach it as we reached it, with the port it gives.
//   - NULL (7.0, cluster-preferred-endpoint-type unknown-endpoint) means the
//     same by the protocol; the "ip" of the metadata is the second guess.
//   - "?" (7.0, type hostname without a hostname): the "ip" of the metadata
//     is the address, ours the second guess.
//
// A guess may be wrong, and even be another server, so a connection to it
// counts only when it answers with the node's id.
func parseSlotMap(reply any, seedHost string) ([]clusterNode, error) {
	entries, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("read CLUSTER SLOTS: not a list but %T", reply)
	}
	var nodes []clusterNode
	index := make(map[string]int)
	for _, e := range entries {
		entry, ok := e.([]any)
		if !ok || len(entry) < 3 {
			return nil, fmt.Errorf("read CLUSTER SLOTS: entry %v without a node", e)
		}
		first, ok1 := entry[0].(int64)
		last, ok2 := entry[1].(int64)
		if !ok1 || !ok2 || first < 0 || last < first || last >= slotCount {
			return nil, fmt.Errorf("read CLUSTER SLOTS: slots %v to %v", entry[0], entry[1])
		}
		node, err := parseNode(entry[2], seedHost)
		if err != nil {
			return nil, fmt.Errorf("read CLUSTER SLOTS: slots %d to %d: %w", first, last, err)
		}
		key := node.id
		if key == "" {
			key = node.addrs[0]
		}
		i, seen := index[key]
		if !seen {
			i = len(nodes)
			index[key] = i
			nodes = append(nodes, node)
		}
		nodes[i].slots = append(nodes[i].slots, SlotRange{int(first), int(last)})
	}
	if len(nodes) == 0 {
		return nil, errors.New("no node of the cluster owns a slot")
	}
	// Up to 6.x the reply goes node by node, in no order that lasts.
	for _, n := range nodes {
		slices.SortFunc(n.slots, byFirst)
	}
	slices.SortFunc(nodes, func(a, b clusterNode) int { return byFirst(a.slots[0], b.slots[0]) })
	return nodes, nil
}

func byFirst(a, b SlotRange) int { return a.First - b.First }

func parseNode(v any, seedHost string) (clusterNode, error) {
	fields, ok := v.([]any)
	if !ok || len(fields) < 2 {
		return clusterNode{}, fmt.Errorf("node %v", v)
	}
	port, ok := fields[1].(int64)
	if !ok {
		return clusterNode{}, fmt.Errorf("port %v", fields[1])
	}
	var n clusterNode
	if len(fields) > 2 {
		n.id, _ = fields[2].(string)
	}
	var ip string
	if len(fields) > 3 {
		if metadata, err := flatMap(fields[3]); err == nil {
			ip, _ = metadata["ip"].(string)
		}
	}
	var hosts []string
	switch host, _ := fields[0].(string); host {
	case "":
		n.guessed = true
		hosts = []string{seedHost, ip}
	case "?":
		n.guessed = true
		hosts = []string{ip, seedHost}
	default:
		hosts = []string{host}
	}
	for _, h := range hosts {
		addr := net.JoinHostPort(h, strconv.FormatInt(port, 10))
		if h != "" && !slices.Contains(n.addrs, addr) {
			n.addrs = append(n.addrs, addr)
		}
	}
	if len(n.addrs) == 0 {
		return clusterNode{}, fmt.Errorf("node %s announces no host", n.id)
	}
	return n, nil
}

// uncovered lists the slots that no node owns.
func uncovered(nodes []clusterNode) []SlotRange {
	var owned []SlotRange
	for _, n := range nodes {
		owned = append(owned, n.slots...)
	}
	slices.SortFunc(owned, byFirst)
	var gaps []SlotRange
	next := 0
	for _, r := range owned {
		if r.First > next {
			gaps = append(gaps, SlotRange{next, r.First - 1})
		}
		next = max(next, r.Last+1)
	}
	if next < slotCount {
		gaps = append(gaps, SlotRange{next, slotCount - 1})
	}
	return gaps
}

// String returns "0-5460", or "7" where the range is one slot.
func (r SlotRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}
