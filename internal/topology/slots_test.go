package topology

import (
	"strconv"
	"testing"
)

func TestSlot(t *testing.T) {
	// The first four are the values that CLUSTER KEYSLOT answers for them.
	for key, want := range map[string]int{
		"123456789":            0x31C3 % slotCount,
		"foo":                  12182,
		"user1000":             3443,
		"":                     0,
		"{user1000}.following": 3443,
		"foo{user1000}{bar}":   3443,
		"{}user1000":           int(crc16("{}user1000")) % slotCount, // an empty tag is none
		"foo{}{bar}":           int(crc16("foo{}{bar}")) % slotCount,
		"foo{{bar}}zap":        int(crc16("{bar")) % slotCount,
		"a}b{c":                int(crc16("a}b{c")) % slotCount,
	} {
		if got := Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestProbeKeyReachesEverySlot(t *testing.T) {
	for slot := 0; slot < slotCount; slot += 61 {
		if got := Slot(probeKey([]SlotRange{{slot, slot}})); got != slot {
			t.Fatalf("the key for slot %d is in slot %d", slot, got)
		}
	}
}

func TestOwns(t *testing.T) {
	s := Shard{Server: Server{Cluster: true}, Slots: []SlotRange{{0, 10}, {20, 20}}}
	for slot, want := range map[int]bool{0: true, 10: true, 11: false, 20: true, 21: false} {
		if s.Owns(slot) != want {
			t.Errorf("Owns(%d) = %v", slot, !want)
		}
	}
	if !(&Shard{}).Owns(16383) {
		t.Error("a standalone server owns every slot")
	}
}

func BenchmarkSlot(b *testing.B) {
	for i := range b.N {
		Slot("mi:" + strconv.Itoa(i))
	}
}
