package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// link is the single connection over which a node is questioned when it is
// opened. It is thrown away afterwards, so nothing a probe leaves behind, a
// selected database or at worst an open MULTI, reaches a shard's client.
type link struct {
	dialer *dialer
	addr   string
	client *redis.Client
	conn   *redis.Conn
	in     atomic.Bool // the login is over
	spoke  bool        // the server answered a command

	// What was learned.
	server  Server
	mode    string        // as HELLO says it, where INFO is refused
	master  string        // of a replica, as it dials it; "" unknown
	linked  bool          // a replica in step with it
	sizes   map[int]int64 // keys per database by INFO keyspace; nil unknown
	can     Can
	why     map[string]string
	unknown []string
	byHello bool
}

// reach connects to a node and learns what it is.
//
// Sends: HELLO 2, AUTH where HELLO is unknown; INFO server, replication,
// memory, cluster, keyspace, or HELLO 2 where INFO is refused; O(1).
func reach(ctx context.Context, d *dialer, addr string) (*link, error) {
	l := &link{dialer: d, addr: addr, why: make(map[string]string)}
	o := d.options(addr, 0)
	o.PoolSize = 1
	o.OnConnect = func(context.Context, *redis.Conn) error {
		l.in.Store(true)
		return nil
	}
	l.client = redis.NewClient(o)
	l.conn = l.client.Conn()
	if err := l.learn(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *link) close() {
	l.conn.Close()
	l.client.Close()
}

// ask sends one command. A refusal in the server's words is for the caller to
// judge; err ends the questioning.
func (l *link) ask(ctx context.Context, args ...any) (reply any, refusal, err error) {
	reply, err = l.conn.Do(ctx, args...).Result()
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		l.spoke = true
		return reply, nil, nil
	case !isReply(err):
		if !l.spoke {
			err = ioHint(err)
		}
		return nil, nil, fmt.Errorf("%s: %v: %w", l.addr, args[0], err)
	case !l.in.Load(), redis.HasErrorPrefix(err, "NOAUTH "):
		// In the login a refusal is about AUTH, whatever it says: HELLO may
		// fail without harm, and nothing else is sent there.
		return nil, nil, l.dialer.authError(l.addr, err)
	case redis.HasErrorPrefix(err, "LOADING "), redis.HasErrorPrefix(err, "BUSY "):
		return nil, nil, fmt.Errorf("%s: %w", l.addr, err)
	}
	l.spoke = true
	return nil, err, nil
}

func (l *link) learn(ctx context.Context) error {
	reply, refusal, err := l.ask(ctx, "INFO", "server")
	if err != nil {
		return err
	}
	if refusal != nil {
		l.why[abilityInfo] = words(refusal)
		return l.learnByHello(ctx)
	}
	l.can.Info = true
	text, _ := reply.(string)
	for _, section := range []string{"replication", "memory", "cluster", "keyspace"} {
		reply, refusal, err := l.ask(ctx, "INFO", section)
		if err != nil {
			return err
		}
		if part, ok := reply.(string); ok && refusal == nil {
			text += "\r\n" + part
			if section == "keyspace" {
				l.sizes = keyspace(parseInfo(part))
			}
		}
	}
	fields := parseInfo(text)
	l.server.setFromInfo(fields)
	if fields["redis_mode"] == "sentinel" || fields["server_mode"] == "sentinel" {
		l.mode = "sentinel"
	}
	l.linked = fields["master_link_status"] == "up"
	if host := fields["master_host"]; host != "" {
		l.master = net.JoinHostPort(host, fields["master_port"])
	}
	return nil
}

func (l *link) learnByHello(ctx context.Context) error {
	reply, refusal, err := l.ask(ctx, "HELLO", "2")
	if err != nil || refusal != nil {
		return err
	}
	if l.mode, err = l.server.setFromHello(reply); err != nil {
		return nil // a proxy's own idea of HELLO teaches nothing
	}
	l.byHello = true
	return nil
}

// learnNodeID asks a cluster node who it is; unknown where it may not say.
//
// Sends: CLUSTER MYID (3.0); O(1).
func (l *link) learnNodeID(ctx context.Context) error {
	reply, _, err := l.ask(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	l.server.NodeID, _ = reply.(string)
	return nil
}

// shard makes a shard of what was learned.
func (l *link) shard(id string, db int, keys int64) *Shard {
	s := &Shard{
		ID: id, Addr: l.addr, DB: db, Keys: keys,
		Server: l.server, Can: l.can, Why: l.why, Unknown: l.unknown,
		want: identity{
			runID:   l.server.RunID,
			nodeID:  l.server.NodeID,
			role:    l.server.Role,
			byInfo:  l.can.Info,
			byHello: l.byHello,
			noTouch: l.can.NoTouch,
		},
	}
	s.connect(l.dialer)
	return s
}
