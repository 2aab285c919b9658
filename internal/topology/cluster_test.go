package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

func TestCluster(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		start(t, binary).needs(3, 2)
		nodes := cluster(t, binary, 3)
		ctx := context.Background()
		for i := range 300 {
			key := fmt.Sprintf("k%d", i)
			nodes[owner(Slot(key), 3)].do("SET " + key + " v")
		}
		for _, writes := range []bool{false, true} {
			top := mustOpen(t, nodes[1].target(), Options{Writes: writes})
			if !top.Cluster || len(top.Shards()) != 3 || len(top.Notes) != 0 {
				t.Fatalf("cluster %v, %d shards, notes %v", top.Cluster, len(top.Shards()), top.Notes)
			}
			var keys int64
			for i, s := range top.Shards() {
				keys += s.Keys
				if s.Err != nil || s.Addr != nodes[i].addr() || !s.Server.Cluster || len(s.Server.NodeID) != 40 {
					t.Errorf("shard %d: %+v", i, s)
				}
				for slot := range slotCount {
					if s.Owns(slot) != (owner(slot, 3) == i) {
						t.Fatalf("shard %d and slot %d: %v", i, slot, s.Owns(slot))
					}
				}
				if err := s.Verify(ctx); err != nil {
					t.Error(err)
				}
				if writes && (!s.Can.Watch || !s.Can.Rename || len(s.Unknown) > 0) {
					t.Errorf("%s, unknown %v, why %v", abilities(s), s.Unknown, s.Why)
				}
				if s.Server.AtLeast(4, 0, 0) && s.ID != s.Server.NodeID+"/0" {
					t.Errorf("id %s", s.ID)
				}
			}
			if keys != 300 {
				t.Errorf("%d keys", keys)
			}
		}
		_, err := Open(ctx, nodes[0].target(), Options{Databases: []int{1}})
		if err == nil || !strings.Contains(err.Error(), "database 0 only") {
			t.Errorf("database 1: %v", err)
		}
		alone := nodes[0].target()
		alone.Mode = config.ModeStandalone
		if _, err := Open(ctx, alone, Options{}); err == nil || !strings.Contains(err.Error(), "in a cluster") {
			t.Errorf("mode standalone: %v", err)
		}

		// One node down: the others go on.
		top := mustOpen(t, nodes[0].target(), Options{})
		nodes[2].stop()
		down := mustOpen(t, nodes[0].target(), Options{})
		s := down.Shards()[2]
		if s.Err == nil || s.Client() != nil || s.Keys != -1 || down.Shards()[0].Err != nil || s.ID != top.Shards()[2].ID {
			t.Errorf("shard of the dead node: %+v", s)
		}
		for _, want := range []string{nodes[2].addr(), "announced by " + nodes[0].addr(), "address_map"} {
			if !strings.Contains(fmt.Sprint(s.Err), want) {
				t.Errorf("no word of %q in: %v", want, s.Err)
			}
		}
		nodes[2].run()
		if err := verifyReached(top.Shards()[2]); !errors.Is(err, ErrIdentity) {
			t.Errorf("restarted node: %v", err)
		}
	})
}

func TestClusterAddressMap(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		p.needs(4, 0)
		other := start(t, binary)
		nodes := cluster(t, binary, 2)
		// As if the second node announced an address of its own network, and
		// then one where another server answers.
		target := nodes[0].target()
		target.AddressMap = map[string]string{"10.99.99.99:1": nodes[1].addr()}
		d, err := newDialer(target, Options{DialTimeout: time.Second, ReadTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		seed, err := reach(context.Background(), d, nodes[0].addr())
		if err != nil {
			t.Fatal(err)
		}
		defer seed.close()
		id := fmt.Sprint(nodes[1].do("CLUSTER MYID"))
		s := openNode(context.Background(), Options{}, seed, clusterNode{id: id, addrs: []string{"10.99.99.99:1"}, slots: []SlotRange{{slotCount / 2, slotCount - 1}}})
		if s.Err != nil || s.Addr != "10.99.99.99:1" || s.Verify(context.Background()) != nil {
			t.Errorf("mapped: %+v", s)
		} else {
			defer s.client.Close()
		}
		for _, wrong := range []*process{nodes[0], other} {
			s = openNode(context.Background(), Options{}, seed, clusterNode{id: id, addrs: []string{wrong.addr()}, guessed: true, slots: []SlotRange{{0, 1}}})
			if !errors.Is(s.Err, ErrIdentity) || s.Client() != nil {
				t.Errorf("another server was taken for the node: %v", s.Err)
			}
		}
	})
}

func TestClusterOfOneThatKnowsNoAddress(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		start(t, binary).needs(3, 2)
		p := start(t, binary, "cluster-enabled yes")
		if _, err := Open(context.Background(), p.target(), Options{}); err == nil || !strings.Contains(err.Error(), "owns a slot") {
			t.Errorf("without slots: %v", err)
		}
		p.do("CLUSTER ADDSLOTS 0 1 2")
		top := mustOpen(t, p.target(), Options{})
		s := top.Shards()[0]
		if s.Addr != p.addr() || s.Verify(context.Background()) != nil {
			t.Errorf("%+v", s)
		}
		if !slices.Equal(top.Notes, []string{"no node serves the slots [3-16383]"}) {
			t.Errorf("notes %v", top.Notes)
		}
	})
}

func TestClusterOfUnknownEndpoints(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		start(t, binary).needs(7, 0)
		for _, kind := range []string{"unknown-endpoint", "hostname"} {
			nodes := cluster(t, binary, 2, "cluster-preferred-endpoint-type "+kind)
			top := mustOpen(t, nodes[0].target(), Options{Writes: true})
			for i, s := range top.Shards() {
				if s.Err != nil || s.Addr != nodes[i].addr() || s.Verify(context.Background()) != nil {
					t.Errorf("%s: %+v", kind, s)
				}
			}
		}
	})
}

func TestClusterWithoutInfo(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		start(t, binary).needs(3, 2)
		p := start(t, binary, "cluster-enabled yes", `rename-command INFO ""`)
		p.do("CLUSTER ADDSLOTS 0 1 2")
		top := mustOpen(t, p.target(), Options{Writes: true})
		s := top.Shards()[0]
		if !top.Cluster || s.Err != nil || s.Server.NodeID == "" || s.Verify(context.Background()) != nil {
			t.Errorf("%v %+v", top.Cluster, s)
		}
	})
}

func TestClusterACLRule(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		start(t, binary).needs(6, 0)
		nodes := cluster(t, binary, 2)
		rule := mustOpen(t, nodes[0].target(), Options{}).Shards()[0].ACLRule(PurposeDelete)
		for _, p := range nodes {
			p.do("ACL SETUSER jan on >secret " + rule)
		}
		target := nodes[0].target()
		target.Username, target.Password = "jan", "secret"
		for _, s := range mustOpen(t, target, Options{Writes: true}).Shards() {
			if s.Err != nil || s.Verify(context.Background()) != nil || len(s.Unknown) > 0 {
				t.Errorf("%+v", s)
			}
		}
		for _, p := range nodes {
			if n, refused := p.info("errorstats")["errorstat_NOPERM"]; refused {
				t.Errorf("refusals: %s", n)
			}
			if log, _ := p.do("ACL LOG").([]any); len(log) > 0 {
				t.Errorf("ACL LOG has %v", log)
			}
		}
		p := nodes[0].admin(redis.Options{})
		p.Do(context.Background(), "ACL", "SETUSER", "jan", "-cluster")
		if _, err := Open(context.Background(), target, Options{}); !errors.Is(err, ErrAuth) {
			t.Errorf("without CLUSTER SLOTS: %v", err)
		}
	})
}
