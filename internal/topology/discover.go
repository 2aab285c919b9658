package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// openSeed finds the shards behind one configured address.
func openSeed(ctx context.Context, d *dialer, mode config.Mode, o Options, addr string) (*Topology, error) {
	seed, err := reach(ctx, d, addr)
	if err != nil {
		return nil, err
	}
	defer seed.close()
	if seed.mode == "sentinel" {
		return nil, fmt.Errorf("%s is a sentinel and holds no keys", addr)
	}
	cluster, err := seed.isCluster(ctx, mode)
	if err != nil {
		return nil, err
	}
	if !cluster {
		return openStandalone(ctx, o, seed)
	}
	if slices.ContainsFunc(o.Databases, func(db int) bool { return db != 0 }) {
		return nil, fmt.Errorf("%s is in a cluster, which has database 0 only", addr)
	}
	return openCluster(ctx, o, seed)
}

// isCluster decides by what INFO or HELLO said. Only where both are refused,
// INFO by the user's permissions or a rename, HELLO by its age, does the node
// id decide. The slot map would not: some servers that are no cluster have one.
func (l *link) isCluster(ctx context.Context, mode config.Mode) (bool, error) {
	switch {
	case mode == config.ModeCluster:
		return true, nil
	case mode == config.ModeStandalone && l.server.Cluster:
		return false, fmt.Errorf("%s is in a cluster: use mode auto or cluster", l.addr)
	case mode == config.ModeStandalone, l.can.Info, l.byHello:
		return l.server.Cluster, nil
	}
	why := l.why[abilityInfo]
	if !strings.HasPrefix(why, "NOPERM ") && !strings.HasPrefix(why, "ERR unknown command") {
		return false, nil
	}
	_, refusal, err := l.ask(ctx, "CLUSTER", "MYID")
	return refusal == nil, err
}

// openStandalone makes a shard of each database.
func openStandalone(ctx context.Context, o Options, l *link) (*Topology, error) {
	top := &Topology{}
	if l.server.Role == RoleSlave {
		if o.Writes {
			return nil, fmt.Errorf("%s: %w: it is a replica of %s, name that one instead", l.addr, ErrRole, l.primary())
		}
		top.Notes = append(top.Notes, fmt.Sprintf("%s is a replica of %s", l.addr, l.primary()))
	}
	dbs, note, err := l.databases(ctx, o.Databases)
	if err != nil {
		return nil, err
	}
	if note != "" {
		top.Notes = append(top.Notes, note)
	}
	if err := l.probe(ctx, o.Writes, nil); err != nil {
		return nil, err
	}
	var errs []error
	for _, db := range dbs {
		id := fmt.Sprintf("%s/%d", l.addr, db.number)
		if db.err != nil {
			errs = append(errs, db.err)
			top.shards = append(top.shards, &Shard{
				ID: id, Addr: l.addr, DB: db.number, Server: l.server, Keys: -1, Err: db.err})
			continue
		}
		top.shards = append(top.shards, l.shard(id, db.number, db.keys))
	}
	if len(errs) == len(dbs) {
		return nil, oneLine(errs)
	}
	return top, nil
}

// openCluster makes a shard of each master that owns slots, as one node, the
// seed, tells it.
//
// Sends: CLUSTER SLOTS (3.0); O(nodes), on 800 nodes a reply of 100 KB.
func openCluster(ctx context.Context, o Options, seed *link) (*Topology, error) {
	reply, refusal, err := seed.ask(ctx, "CLUSTER", "SLOTS")
	switch {
	case err != nil:
		return nil, err
	case redis.HasErrorPrefix(refusal, "NOPERM "):
		return nil, seed.dialer.authError(seed.addr, refusal)
	case refusal != nil:
		return nil, fmt.Errorf("%s: CLUSTER SLOTS: %w", seed.addr, refusal)
	}
	host, _, _ := splitAddress(seed.addr) // "" for a Unix socket
	nodes, err := parseSlotMap(reply, host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", seed.addr, err)
	}
	if err := seed.learnNodeID(ctx); err != nil {
		return nil, err
	}

	top := &Topology{Cluster: true, shards: make([]*Shard, len(nodes))}
	if gaps := uncovered(nodes); len(gaps) > 0 {
		top.Notes = append(top.Notes, fmt.Sprintf("no node serves the slots %v", gaps))
	}
	var g errgroup.Group
	g.SetLimit(o.Parallel)
	for i, n := range nodes {
		g.Go(func() error {
			top.shards[i] = openNode(ctx, o, seed, n)
			return nil
		})
	}
	g.Wait()

	var errs []error
	for _, s := range top.shards {
		if s.Err != nil {
			errs = append(errs, s.Err)
		}
	}
	if len(errs) == len(nodes) {
		return nil, oneLine(errs)
	}
	return top, nil
}

// openNode makes the shard of a cluster node, with Err where it cannot be
// reached or is not what the slot map says.
func openNode(ctx context.Context, o Options, seed *link, n clusterNode) *Shard {
	id := n.shardID()
	var errs []error
	for _, addr := range n.addrs {
		s, err := openAt(ctx, o, seed, n, addr, id)
		if err == nil {
			return s
		}
		err = fmt.Errorf("%w (announced by %s)", err, seed.addr)
		if isDialError(err) {
			err = fmt.Errorf("%w; address_map replaces an announced address that cannot be reached from here", err)
		}
		errs = append(errs, err)
	}
	return &Shard{
		ID: id, Addr: n.addrs[0], Slots: n.slots, Keys: -1,
		Server: Server{NodeID: n.id, Cluster: true},
		Err:    oneLine(errs),
	}
}

func openAt(ctx context.Context, o Options, seed *link, n clusterNode, addr, id string) (*Shard, error) {
	l, err := reach(ctx, seed.dialer, addr)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.learnNodeID(ctx); err != nil {
		return nil, err
	}
	want := n.id
	if want == "" && n.guessed {
		want = seed.server.NodeID // before 4.0 only the node we ask has no host
	}
	switch is := l.server.NodeID; {
	case is == "" && n.guessed:
		return nil, fmt.Errorf("%s: %w: its address is a guess and it does not tell its cluster id", addr, ErrIdentity)
	case is != "" && want != "" && is != want:
		return nil, fmt.Errorf("%s: %w: cluster node id is %q and should be %q", addr, ErrIdentity, is, want)
	case l.server.Role == RoleSlave:
		return nil, fmt.Errorf("%s: %w: the slot map names it as a master, it says it is a replica of %s", addr, ErrRole, l.primary())
	}
	l.server.Cluster = true
	keys, err := l.size(ctx, 0)
	if err != nil {
		return nil, err
	}
	if err := l.probe(ctx, o.Writes, n.slots); err != nil {
		return nil, err
	}
	s := l.shard(id, 0, keys)
	s.Slots = n.slots
	return s, nil
}

// primary names the master of a replica, for messages.
func (l *link) primary() string {
	if l.master == "" {
		return "a server it does not name"
	}
	return l.master
}
