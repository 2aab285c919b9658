package topology

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// identity is what a node was when it was opened, and how to ask again. What
// it would not tell then is not asked again and counts as unchanged.
type identity struct {
	runID, nodeID, role string
	byInfo, byHello     bool
	noTouch             bool
	linked              bool // a replica that is read must have its primary
}

// unlinked says that a replica has lost its primary: what it has is old, for
// now.
type unlinked struct{}

func (u unlinked) Error() string { return "the replica that is read has lost its primary" }

// Refusal is what throttle.Refusal asks an error for.
func (u unlinked) Refusal() string { return u.Error() }

// check compares the node behind a connection with the one that was opened.
// An error of ours is always ErrIdentity or ErrRole; any other means that the
// node could not be asked, which is not a "yes" either.
//
// Sends: INFO server, INFO replication, CLUSTER MYID in a cluster, and where
// INFO is refused HELLO 2 (6.0) for the role; O(1), one round trip. With
// noTouch also CLIENT NO-TOUCH ON (7.2). PING where there is nothing to ask.
func (want identity) check(ctx context.Context, c redis.Cmdable, noTouch bool) error {
	pipe := c.Pipeline()
	var server, replication *redis.StringCmd
	var hello *redis.Cmd
	var myID *redis.Cmd
	switch {
	case want.byInfo:
		server = pipe.Info(ctx, "server")
		replication = pipe.Info(ctx, "replication")
	case want.byHello:
		hello = pipe.Do(ctx, "HELLO", "2")
	}
	if want.nodeID != "" {
		myID = pipe.Do(ctx, "CLUSTER", "MYID")
	}
	if noTouch {
		pipe.Do(ctx, "CLIENT", "NO-TOUCH", "ON")
	}
	if pipe.Len() == 0 {
		pipe.Ping(ctx)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}

	var is Server
	var link string
	switch {
	case want.byInfo:
		fields := parseInfo(server.Val())
		is.RunID = fields["run_id"]
		fields = parseInfo(replication.Val())
		is.Role, link = fields["role"], fields["master_link_status"]
	case want.byHello:
		if _, err := is.setFromHello(hello.Val()); err != nil {
			return err
		}
	}
	if myID != nil {
		is.NodeID, _ = myID.Val().(string)
	}
	switch {
	case want.runID != "" && is.RunID != want.runID:
		return fmt.Errorf("%w: run id is %q and was %q: restarted, or another server", ErrIdentity, is.RunID, want.runID)
	case want.nodeID != "" && is.NodeID != want.nodeID:
		return fmt.Errorf("%w: cluster node id is %q and was %q", ErrIdentity, is.NodeID, want.nodeID)
	case want.role != "" && is.Role != want.role:
		return fmt.Errorf("%w: is %q and was %q", ErrRole, is.Role, want.role)
	case want.linked && link == "down":
		return unlinked{}
	}
	return nil
}
