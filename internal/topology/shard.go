package topology

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Shard is one logical database on one node: the unit of scanning, pacing and
// checkpointing. Its fields are facts from the moment of opening and do not
// change; they are safe to read from any goroutine.
type Shard struct {
	// ID names the shard over runs. Standalone: the configured address and
	// the database, "10.0.0.5:6379/0". Cluster: the node id and /0, for
	// addresses of cluster nodes come and go; before 4.0, where the slot map
	// has no ids, the address instead. A failover makes another master the
	// owner and so another ID.
	ID     string
	Addr   string // as configured, or as the cluster announces it
	DB     int
	Server Server
	Can    Can
	// Why has the server's words for each ability that is missing, and for
	// one that is assumed by version the reason why it was not asked.
	Why     map[string]string
	Unknown []string    // abilities that could not be learned; Can says false
	Keys    int64       // at opening; -1 unknown
	Slots   []SlotRange // cluster only
	// Err says why there is no talking to this shard. Client is nil then.
	Err error

	client   *redis.Client
	dialer   *dialer
	want     identity
	readOnly bool // a cluster's replica, which otherwise answers with MOVED
}

// poolSize bounds a shard's connections: the scan's, the act's, one for what
// the worker asks meanwhile, and the sampler's.
const poolSize = 4

// Owns reports whether keys of that slot belong here. Outside a cluster every
// key does.
func (s *Shard) Owns(slot int) bool {
	if !s.Server.Cluster {
		return true
	}
	for _, r := range s.Slots {
		if r.First <= slot && slot <= r.Last {
			return true
		}
	}
	return false
}

// Client returns the client to exactly this node and database. It follows no
// redirect and sends nothing twice. Each of its connections was checked to
// reach the process that was opened, in the role it had; a command whose
// connection is not returns ErrIdentity or ErrRole. nil where Err is set.
//
// A cancelled context does not interrupt a reply that is being awaited, a
// deadline does; otherwise the read timeout bounds the wait.
func (s *Shard) Client() *redis.Client { return s.client }

// Verify asks whether this is still the process that was opened, the same
// cluster node and in the same role: ErrIdentity or ErrRole where not. What
// the node would not tell at opening is taken as unchanged.
//
// Sends: INFO server, INFO replication, CLUSTER MYID in a cluster; where INFO
// is refused HELLO 2 (6.0); O(1), one round trip.
func (s *Shard) Verify(ctx context.Context) error {
	if s.Err != nil {
		return s.Err
	}
	var err error
	// After a restart every pooled connection first fails with EOF. Asking
	// is harmless to repeat, so go through them to a new one, which is
	// checked as it connects.
	for range poolSize + 1 {
		err = s.want.check(ctx, s.client, false)
		if err == nil || isReply(err) || isDialError(err) || ctx.Err() != nil ||
			errors.Is(err, ErrIdentity) || errors.Is(err, ErrRole) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("verify %s: %w", s.Addr, err)
	}
	return nil
}

// connect gives the shard its client; it dials when it is first used.
//
// Sends, on each new connection: HELLO 2, AUTH where HELLO is unknown, SELECT
// for a database other than 0, then what Verify sends and, where the server
// has it, CLIENT NO-TOUCH ON (7.2). READONLY to a cluster's replica.
func (s *Shard) connect(d *dialer) {
	s.dialer = d
	o := d.options(s.Addr, s.DB)
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		if err := s.want.check(ctx, c, s.want.noTouch); err != nil {
			// The library strips one layer of what comes from here.
			return fmt.Errorf("connect: %w", fmt.Errorf("%s: %w", s.Addr, err))
		}
		if s.readOnly {
			return c.Do(ctx, "READONLY").Err()
		}
		return nil
	}
	s.client = redis.NewClient(o)
	s.client.AddHook(stamped{})
}
