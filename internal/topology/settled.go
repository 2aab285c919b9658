package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// SlotMap asks the shard's node, in a cluster, who owns which slots now: by
// the ID of each shard.
//
// Sends: CLUSTER SLOTS; O(nodes), on 800 nodes a reply of 100 KB.
func (s *Shard) SlotMap(ctx context.Context) (map[string][]SlotRange, error) {
	reply, err := s.client.Do(ctx, "CLUSTER", "SLOTS").Result()
	if err != nil {
		return nil, fmt.Errorf("ask for the slot map: %w", err)
	}
	host, _, _ := splitAddress(s.Addr) // "" for a Unix socket
	nodes, err := parseSlotMap(reply, host)
	if err != nil {
		return nil, err
	}
	slots := map[string][]SlotRange{}
	for _, n := range nodes {
		slots[n.shardID()] = n.slots
	}
	return slots, nil
}

// Importing reports whether the shard's node is taking over a slot from
// another, so that keys in it are neither here nor there.
//
// Sends: CLUSTER NODES; O(nodes).
func (s *Shard) Importing(ctx context.Context) (bool, error) {
	reply, err := s.client.Do(ctx, "CLUSTER", "NODES").Text()
	if err != nil {
		return false, fmt.Errorf("ask for slots that are moving: %w", err)
	}
	for line := range strings.Lines(reply) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") {
			continue
		}
		moving := func(slot string) bool { return strings.HasPrefix(slot, "[") && strings.Contains(slot, "-<-") }
		return slices.ContainsFunc(fields[8:], moving), nil
	}
	return false, nil
}
