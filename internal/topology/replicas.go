package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replica is one replica of a shard's node.
type Replica struct {
	Addr   string // as the primary announces it
	Uptime time.Duration

	client *redis.Client
}

// Client reads from the replica, on the shard's database.
func (r *Replica) Client() *redis.Client { return r.client }

// Close ends its connections.
func (r *Replica) Close() { _ = r.client.Close() } // nothing was written that could be lost

// Uptime is how long the shard's server runs, by its own account.
//
// Sends: INFO server; O(1).
func (s *Shard) Uptime(ctx context.Context) (time.Duration, error) {
	return uptime(ctx, s.client)
}

func uptime(ctx context.Context, c *redis.Client) (time.Duration, error) {
	text, err := c.Info(ctx, "server").Result()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseInt(parseInfo(text)["uptime_in_seconds"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO server does not tell the uptime: %w", err)
	}
	return time.Duration(seconds) * time.Second, nil
}

// Replicas connects to the replicas of the shard's node, and to theirs, as they
// are named by the nodes, each checked to be a replica. One that can't be reached is an error:
// what it knows is then unknown.
//
// Sends: INFO replication to the primary; INFO server, INFO replication and,
// in a cluster, READONLY to each replica; O(1).
func (s *Shard) Replicas(ctx context.Context) ([]*Replica, error) {
	text, err := s.client.Info(ctx, "replication").Result()
	if err != nil {
		return nil, fmt.Errorf("ask for the replicas: %w", err)
	}
	var out []*Replica
	seen := map[string]bool{}
	for left := replicaAddrs(parseInfo(text)); len(left) > 0; left = left[1:] {
		addr := left[0]
		if seen[addr] {
			continue
		}
		seen[addr] = true
		r, more, err := s.replica(ctx, addr)
		left = append(left, more...)
		if err != nil {
			for _, r := range out {
				r.Close()
			}
			return nil, fmt.Errorf("replica %s: %w", addr, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// replicaAddrs reads slave0:ip=10.0.0.7,port=6379,state=online,… lines.
func replicaAddrs(fields map[string]string) []string {
	var addrs []string
	for i := 0; ; i++ {
		line, ok := fields["slave"+strconv.Itoa(i)]
		if !ok {
			return addrs
		}
		part := map[string]string{}
		for field := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(field, "=")
			part[name] = value
		}
		addrs = append(addrs, net.JoinHostPort(part["ip"], part["port"]))
	}
}

// replica connects to one, and says which replicas it has itself.
func (s *Shard) replica(ctx context.Context, addr string) (_ *Replica, more []string, _ error) {
	o := s.dialer.options(addr, s.DB)
	if s.Server.Cluster {
		// Without it a replica in a cluster answers each key with MOVED.
		o.OnConnect = func(ctx context.Context, c *redis.Conn) error { return c.Do(ctx, "READONLY").Err() }
	}
	r := &Replica{Addr: addr, client: redis.NewClient(o)}
	r.client.AddHook(stamped{})
	var err error
	if r.Uptime, err = uptime(ctx, r.client); err == nil {
		var text string
		text, err = r.client.Info(ctx, "replication").Result()
		info := parseInfo(text)
		if more = replicaAddrs(info); err == nil && info["role"] != RoleSlave {
			err = fmt.Errorf("%w: it is no replica", ErrRole)
		}
	}
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return r, more, nil
}

// LazyExpire reports whether the server frees keys that expire in the
// background; false also where it does not tell.
//
// Sends: CONFIG GET lazyfree-lazy-expire (4.0); O(1).
func (s *Shard) LazyExpire(ctx context.Context) bool {
	const name = "lazyfree-lazy-expire"
	got, err := s.client.ConfigGet(ctx, name).Result()
	return err == nil && got[name] == "yes"
}

// OpenReplica opens a replica of the shard to be read from: the first, as the
// primary names them, that can be reached and has what the primary has now, or
// gets it within three seconds. It has its own abilities and identity, and the
// shard's ID and slots; close it with CloseClient.
//
// Sends: INFO replication to the primary; READONLY in a cluster, what Open
// sends to a node that is only read, and INFO replication until it has caught
// up, to the replica.
func (s *Shard) OpenReplica(ctx context.Context) (*Shard, error) {
	text, err := s.client.Info(ctx, "replication").Result()
	if err != nil {
		return nil, fmt.Errorf("ask for the replicas: %w", err)
	}
	fields := parseInfo(text)
	offset, _ := strconv.ParseInt(fields["master_repl_offset"], 10, 64)
	addrs := replicaAddrs(fields)
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%s has no replica to read from", s.Addr)
	}
	var errs []error
	for _, addr := range addrs {
		r, err := s.openReplica(ctx, addr)
		if err == nil {
			if err = r.await(ctx, offset); err == nil {
				r.want.linked = true
				return r, nil
			}
			r.CloseClient()
		}
		errs = append(errs, fmt.Errorf("replica %s: %w", addr, err))
	}
	return nil, oneLine(errs)
}

func (s *Shard) openReplica(ctx context.Context, addr string) (*Shard, error) {
	l, err := reach(ctx, s.dialer, addr)
	if err != nil {
		return nil, err
	}
	defer l.close()
	switch {
	case l.server.Role != RoleSlave:
		return nil, fmt.Errorf("%w: it is no replica", ErrRole)
	case !l.linked:
		return nil, fmt.Errorf("it is not in step with its primary: master_link_status is not up")
	}
	if s.Server.Cluster {
		if _, refusal, err := l.ask(ctx, "READONLY"); err != nil || refusal != nil {
			return nil, errors.Join(err, refusal)
		}
		if err := l.learnNodeID(ctx); err != nil {
			return nil, err
		}
	}
	l.server.Cluster = s.Server.Cluster
	if err := l.probe(ctx, false, s.Slots); err != nil {
		return nil, err
	}
	r := l.shard(s.ID, s.DB, s.Keys)
	r.Slots, r.readOnly = s.Slots, s.Server.Cluster
	return r, nil
}

// How long a replica may take to catch up with what its primary had when it
// was opened, and how often it is asked.
const (
	catchUp     = 3 * time.Second
	catchUpStep = 50 * time.Millisecond
)

// await waits until a replica has all that its primary had at an offset.
func (s *Shard) await(ctx context.Context, offset int64) error {
	for deadline := time.Now().Add(catchUp); ; {
		text, err := s.client.Info(ctx, "replication").Result()
		if err != nil {
			return fmt.Errorf("ask how far it is: %w", err)
		}
		has, err := strconv.ParseInt(parseInfo(text)["slave_repl_offset"], 10, 64)
		switch {
		case err != nil || has >= offset: // or it does not tell
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("it is %d bytes behind its primary", offset-has)
		}
		select {
		case <-time.After(catchUpStep):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CloseClient ends the connections of a shard that OpenReplica opened.
func (s *Shard) CloseClient() { _ = s.client.Close() } // nothing was written that could be lost
