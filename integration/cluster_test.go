package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCluster runs the scenes of a standalone server on three masters with a
// replica each. One cluster serves them all: it takes seconds to build.
func TestCluster(t *testing.T) {
	eachServerThat(t, serverBinary.hasCluster, "has no cluster", func(t *testing.T, b serverBinary) {
		for _, f := range forms {
			if !f.offers(b) || f.user {
				continue
			}
			t.Run(f.name, func(t *testing.T) {
				d := startCluster(t, b, append(f.opts, slow20ms)...)
				t.Run("clean", func(t *testing.T) {
					cleanForm(t, d, f)
					replicasFollow(t, d)
				})
				if len(f.flags) > 0 {
					return // the same servers as those of the first form
				}
				d.flush(t)
				t.Run("feed back", func(t *testing.T) { feedBack(t, d); replicasFollow(t, d) })
				if len(f.opts) > 0 {
					d.flush(t)
					t.Run("kill -9", func(t *testing.T) { killRounds(t, d, max(2, size.bigKills/5)); replicasFollow(t, d) })
					return
				}
				d.flush(t)
				t.Run("scan", func(t *testing.T) { scanFindsTheBigKeys(t, d) })
				d.flush(t)
				t.Run("any node", func(t *testing.T) { anyNodeLeadsIn(t, d) })
				d.flush(t)
				t.Run("run", func(t *testing.T) { runInCluster(t, d) })
				d.flush(t)
				t.Run("trash", func(t *testing.T) { trashAndBack(t, d); replicasFollow(t, d) })
				d.flush(t)
				// The last one: it stops a node.
				t.Run("a node is down", func(t *testing.T) { oneNodeDown(t, d) })
			})
		}
	})
}

// replicasFollow waits until each replica has as many keys as its master:
// what was deleted on one and kept on the other would come back with a
// failover.
func replicasFollow(t *testing.T, d *deployment) {
	t.Helper()
	for i, m := range d.masters {
		eventually(t, 30*time.Second, "the replica of "+m.addr+" has the same keys", func() bool {
			return m.doInt(t, 0, "DBSIZE") == d.replicas[i].doInt(t, 0, "DBSIZE")
		})
	}
}

// anyNodeLeadsIn: the address that is given may be any node's, also a
// replica's.
func anyNodeLeadsIn(t *testing.T, d *deployment) {
	bystand(t, d, 0, 300)
	load(t, d, 0, "hash", "big:{x}", 20_000)
	before := digestOf(t, d)
	o := newOperator(t)
	for _, n := range append(append([]*server{}, d.masters...), d.replicas[0]) {
		for _, scheme := range []string{"redis://", "redis+cluster://"} {
			s := o.run(t, "scan", "--url", scheme+n.addr, "--min-elements", "10000", "--format", "json").exit(0).summary()
			s.complete(true)
			if s.KeysScanned != int64(len(before)) || s.KeysMatched != 1 {
				s.from.error("%d keys scanned of %d, %d matched", s.KeysScanned, len(before), s.KeysMatched)
			}
			for _, sh := range s.Shards {
				if sh.Role != "master" && sh.Role != "primary" {
					s.from.error("shard %s has role %q", sh.ID, sh.Role)
				}
			}
		}
	}
	mustEqual(t, before, digestOf(t, d))
	// A cluster has one database.
	o.run(t, "scan", "--url", d.url()+"/1").exit(1, 2)
	// One key, from a node that does not own it.
	for i, m := range d.masters {
		k := fmt.Sprintf("bystander:%d", i)
		s := o.run(t, "delete", "--url", m.url(), "--key", k, "--execute", "--format", "json").exit(0).summary()
		if s.removed() != 1 || len(s.Findings) != 1 || s.Findings[0].Slot == nil || *s.Findings[0].Slot != slotOf(k) {
			s.from.error("%s was to be removed in slot %d", k, slotOf(k))
		}
	}
	mustEqual(t, before, digestOf(t, d), keyID{0, "bystander:0"}, keyID{0, "bystander:1"}, keyID{0, "bystander:2"})
}

// runInCluster: a job takes its lock in the cluster and gives it back.
func runInCluster(t *testing.T, d *deployment) {
	bystand(t, d, 0, 100)
	var gone []keyID
	for i := range 60 {
		k := fmt.Sprintf("old:%d", i)
		load(t, d, 0, aggregates[i%4], k, 1200)
		gone = append(gone, keyID{0, k})
	}
	before := digestOf(t, d)
	o := newOperator(t)
	conf := o.config(t, d, "", job{name: "old", prefix: "old:", more: drains})
	s := o.run(t, "run", "--config", conf, "--all", "--format", "json").exit(0).runs()["old"]
	mustEqual(t, before, digestOf(t, d), gone...)
	if s.removed() != 60 {
		s.from.error("60 keys were to be removed")
	}
}

// oneNodeDown: the other nodes are scanned, and nobody is told that all is
// well.
func oneNodeDown(t *testing.T, d *deployment) {
	bystand(t, d, 0, 300)
	for i := range 30 {
		load(t, d, 0, "list", fmt.Sprintf("big:%d", i), 2000)
	}
	before := digestOf(t, d)
	dead := d.masters[2]
	dead.stop()
	alive := digest{}
	var gone []keyID
	for k, im := range before {
		if im.addr != dead.addr {
			alive[k] = im
			if strings.HasPrefix(k.name, "big:") {
				gone = append(gone, k)
			}
		}
	}
	living := &deployment{bin: d.bin, masters: d.masters[:2]}
	o := newOperator(t)
	check := func(s summary) {
		t.Helper()
		s.complete(false)
		if len(s.Shards) != 3 {
			s.from.error("%d shards, want 3", len(s.Shards))
		}
		for _, sh := range s.Shards {
			if (sh.Addr == dead.addr) != (sh.Error != "") {
				s.from.error("shard %s at %s: error %q; %s is down", sh.ID, sh.Addr, sh.Error, dead.addr)
			}
		}
		if s.KeysMatched != int64(len(gone)) {
			s.from.error("%d matched, %d are on living nodes", s.KeysMatched, len(gone))
		}
	}
	base := args("--url", d.url(), "--match", "big:*", "--format", "json")
	check(o.run(t, args("scan", base)...).exit(3).summary())
	mustEqual(t, alive, digestOf(t, living))
	check(o.run(t, args("clean", base, "--execute")...).exit(3).summary())
	mustEqual(t, alive, digestOf(t, living), gone...)
}
