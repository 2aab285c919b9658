package integration

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// deployment is what one scan covers: a standalone server or a cluster.
type deployment struct {
	bin      serverBinary
	masters  []*server
	replicas []*server
	cluster  bool
}

const slots = 16384

func standalone(t *testing.T, b serverBinary, opts ...option) *deployment {
	t.Helper()
	return &deployment{bin: b, masters: []*server{startServer(t, b, opts...)}}
}

// startCluster builds three masters with a replica each, by CLUSTER commands
// alone: redis-cli --cluster needs Redis 5 and its Ruby forerunner is gone.
func startCluster(t *testing.T, b serverBinary, opts ...option) *deployment {
	t.Helper()
	return startMixedCluster(t, b, func(int) []option { return opts })
}

// startMixedCluster is startCluster with options of its own for each node;
// the masters come first.
func startMixedCluster(t *testing.T, b serverBinary, optsOf func(node int) []option) *deployment {
	t.Helper()
	return buildCluster(t, b, 3, optsOf)
}

// startMasters is startCluster without replicas: nobody takes over from a
// master that is down.
func startMasters(t *testing.T, b serverBinary, opts ...option) *deployment {
	t.Helper()
	return buildCluster(t, b, 0, func(int) []option { return opts })
}

func buildCluster(t *testing.T, b serverBinary, replicas int, optsOf func(node int) []option) *deployment {
	t.Helper()
	const masters = 3
	var nodes []*server
	for len(nodes) < masters+replicas {
		opts := optsOf(len(nodes))
		s, err := tryServer(t, b, true, opts)
		if err != nil {
			t.Logf("starting a node of %s again: %v", b, err)
			if s, err = tryServer(t, b, true, opts); err != nil {
				t.Fatal(err)
			}
		}
		nodes = append(nodes, s)
	}
	d := &deployment{bin: b, masters: nodes[:masters], replicas: nodes[masters:], cluster: true}
	// Slots come before the meeting, so that the very first packets carry them.
	for i, m := range d.masters {
		args := []any{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / masters; slot < (i+1)*slots/masters; slot++ {
			args = append(args, slot)
		}
		m.do(t, 0, args...)
	}
	for i, n := range nodes {
		n.do(t, 0, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	// Everyone meets everyone: gossip alone takes seconds to spread the news.
	for _, a := range nodes {
		for _, z := range nodes {
			if a != z {
				host, port, _ := net.SplitHostPort(z.addr)
				a.do(t, 0, "CLUSTER", "MEET", host, port)
			}
		}
	}
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		ids[i] = myID(t, n)
	}
	knows := func(n *server) bool {
		text := fmt.Sprint(n.do(t, 0, "CLUSTER", "NODES"))
		for _, id := range ids {
			if !strings.Contains(text, id) {
				return false
			}
		}
		return !strings.Contains(text, "handshake")
	}
	for _, n := range nodes {
		eventually(t, time.Minute, n.addr+" knows all nodes", func() bool { return knows(n) })
	}
	for i, r := range d.replicas {
		eventually(t, time.Minute, r.addr+" follows its master", func() bool {
			return r.client(0).Do(t.Context(), "CLUSTER", "REPLICATE", ids[i]).Err() == nil
		})
	}
	for _, n := range nodes {
		eventually(t, time.Minute, n.addr+" says cluster_state:ok", func() bool {
			text := fmt.Sprint(n.do(t, 0, "CLUSTER", "INFO"))
			return strings.Contains(text, "cluster_state:ok") && strings.Contains(text, "cluster_slots_ok:16384") &&
				strings.Contains(text, "cluster_size:3") && replicasIn(fmt.Sprint(n.do(t, 0, "CLUSTER", "NODES"))) == replicas
		})
	}
	for _, r := range d.replicas {
		eventually(t, time.Minute, r.addr+" is in step", func() bool {
			return r.info(t, "replication")["master_link_status"] == "up"
		})
	}
	return d
}

func myID(t *testing.T, n *server) string {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(n.do(t, 0, "CLUSTER", "NODES"))) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[2], "myself") {
			return f[0]
		}
	}
	t.Fatalf("%s does not know itself", n.addr)
	return ""
}

func replicasIn(nodes string) int {
	n := 0
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[2], "slave") {
			n++
		}
	}
	return n
}

// url leads to one node; the rest is found out by the binary.
func (d *deployment) url() string { return d.masters[0].url() }

// owner is the server that holds a key.
func (d *deployment) owner(key string) *server {
	if !d.cluster {
		return d.masters[0]
	}
	s, n := slotOf(key), len(d.masters)
	for i := range n {
		if s < (i+1)*slots/n {
			return d.masters[i]
		}
	}
	panic("slot out of range")
}

// on is the test's own connection to a key's server and database.
func (d *deployment) on(db int, key string) *redis.Client { return d.owner(key).client(db) }

// db is the database to use: a cluster has only one.
func (d *deployment) db(n int) int {
	if d.cluster {
		return 0
	}
	return n
}

// flush empties a deployment between tests that share it.
func (d *deployment) flush(t *testing.T) {
	t.Helper()
	for _, m := range d.masters {
		m.do(t, 0, "FLUSHALL")
	}
}

// size counts the keys of every database, as the servers count them.
func (d *deployment) size(t *testing.T) int64 {
	t.Helper()
	var n int64
	for _, m := range d.masters {
		for _, db := range m.databases(t) {
			n += m.doInt(t, db, "DBSIZE")
		}
	}
	return n
}

// databases lists the databases that have keys.
func (s *server) databases(t *testing.T) []int {
	t.Helper()
	var out []int
	for k := range s.info(t, "keyspace") {
		var n int
		if _, err := fmt.Sscanf(k, "db%d", &n); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// slotOf is the cluster's own rule: CRC16 (XMODEM) of the name, or of what
// stands in its first braces if that is not empty.
func slotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}
