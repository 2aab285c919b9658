package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/scanner"
)

// settle makes of a job what is carried out: a trim that keeps nothing is a
// delete of the keys that it would trim. The note says so; it is "" where
// nothing was changed.
func settle(j config.Job) (_ config.Job, note string) {
	t := j.Action.Trim
	if t == nil || t.Keep == nil || *t.Keep != 0 {
		return j, ""
	}
	j.Select.Types = []string{t.Type(j.Select.Types)}
	j.Action = config.Action{Delete: &config.Delete{Method: config.MethodAuto}}
	return j, "a trim that keeps 0 entries removes keys whole: they are deleted"
}

// ruleOf is what a key must meet: what the rule says, and what the action can
// do anything about.
func ruleOf(s config.Select, a config.Action) scanner.Rule {
	r := scanner.Rule{
		Match: s.Match, Prefix: s.Prefix, Exclude: s.Exclude, Types: s.Types,
		MinElements: s.MinElements, MinBytes: int64(s.MinBytes),
		NoTTL: s.NoTTL, TTLUnder: time.Duration(s.TTLUnder), TTLOver: time.Duration(s.TTLOver),
		IdleOver: time.Duration(s.IdleOver), FreqUnder: s.FreqUnder,
	}
	switch {
	case a.Trim != nil:
		r.Types = []string{a.Trim.Type(s.Types)}
		if a.Trim.Keep != nil {
			r.MinElements = max(r.MinElements, *a.Trim.Keep+1)
		}
	case a.Expire != nil:
		r.Lasting = longest(a.Expire)
	case a.Defuse != nil && len(r.Types) == 0: // what is freed element by element
		r.Types = []string{"list", "set", "zset", "hash", "stream"}
	case a.PruneIndex != nil && len(r.Types) == 0:
		r.Types = []string{"hash", "zset"}
	}
	return r
}

// longest is the longest TTL that a key keeps.
func longest(e *config.Expire) time.Duration { return stretch(e, 1) }

// stretch is the TTL with a part of its jitter, from 0 to 1.
func stretch(e *config.Expire, part float64) time.Duration {
	ttl := time.Duration(e.TTL)
	more := float64(ttl) * float64(e.Jitter) / 100 * part
	if more > float64(math.MaxInt64-ttl) {
		return math.MaxInt64
	}
	return ttl + time.Duration(more)
}

// ttlOf is the TTL that a key gets: the same at each run, so that runs
// converge.
func ttlOf(e *config.Expire, name string) time.Duration {
	h := sha256.Sum256([]byte(name))
	return stretch(e, float64(binary.BigEndian.Uint64(h[:])>>11)/(1<<53))
}

// trimOf is a trim as the deleter takes it; by age, the age as of now.
func trimOf(t *config.Trim, types []string, now time.Time) *deleter.Trim {
	out := &deleter.Trim{Unacknowledged: t.ForceUnacknowledged}
	if t.Keep != nil {
		out.Keep, out.End = *t.Keep, deleter.End(t.KeepEnd)
		if out.End == "" && t.Type(types) == "stream" {
			out.End = deleter.Newest
		}
		return out
	}
	before := now.Add(-time.Duration(t.OlderThan))
	out.Before, out.Millis = before.UnixMilli(), t.Score == config.UnixMillis
	if t.Score == config.UnixSeconds {
		out.Before = before.Unix()
	}
	return out
}

// needsClock says for what the action needs the time; "" if it doesn't.
func needsClock(a config.Action) string {
	switch {
	case a.Delete != nil && a.Delete.KeepFor > 0:
		return "keys are kept for a time"
	case a.Trim != nil && a.Trim.OlderThan > 0:
		return "anything is trimmed by its age"
	case a.Expire != nil:
		return "keys are given a TTL"
	case a.Defuse != nil:
		return "keys are watched until they expire"
	case a.PruneIndex != nil:
		return "an index is pruned by age"
	}
	return ""
}

// prepareIdle refuses a shard whose idle times say nothing, and connects to
// its replicas, which know of reads that the primary does not.
func (k *worker) prepareIdle(ctx context.Context) error {
	sel := k.Job.Select
	over := time.Duration(sel.IdleOver)
	if policy := k.shard.Server.Policy; sel.FreqUnder > 0 && !strings.HasSuffix(policy, "-lfu") {
		return fmt.Errorf("frequencies are not tracked under maxmemory-policy %q; delete freq_under", policy)
	}
	if sel.FreqUnder > 0 {
		return k.deferTouching()
	}
	if over == 0 {
		return nil
	}
	if policy := k.shard.Server.Policy; strings.HasSuffix(policy, "-lfu") {
		return fmt.Errorf("idle times are not tracked under maxmemory-policy %s; delete idle_over", policy)
	}
	young := func(who string, up time.Duration) error {
		if up >= over {
			return nil
		}
		return fmt.Errorf("idle times over %s are unknown: %s is up for %s only", sel.IdleOver, who, up)
	}
	up, err := k.shard.Uptime(ctx)
	if err == nil {
		err = young(k.shard.Addr, up)
	}
	if err != nil {
		return fmt.Errorf("judge idle time: %w", err)
	}
	if err := k.deferTouching(); err != nil {
		return err
	}
	if sel.IdlePrimaryOnly {
		return nil
	}
	k.replicas, err = k.shard.Replicas(ctx)
	if err != nil {
		return fmt.Errorf("judge idle time: %w; --idle-primary-only (idle_primary_only) goes by the primary alone", err)
	}
	for _, r := range k.replicas {
		if err := young("replica "+r.Addr, r.Uptime); err != nil {
			return err
		}
	}
	return nil
}

// deferTouching leaves to the act what can't be asked without resetting what
// the rule is about; a scan, which has no act, refuses it.
func (k *worker) deferTouching() error {
	rule := &k.rule
	if rule.Deferred = !k.reader.Can.NoTouch; rule.Deferred && k.Mode == Scan &&
		(rule.MinElements > 0 || k.typeTouches() && (len(rule.Types) > 0 || rule.NoTTL || rule.TTLUnder > 0 || rule.TTLOver > 0)) {
		return errors.New("this server has no CLIENT NO-TOUCH: to ask for type, TTL or number of elements would reset the idle time or frequency; select by min_bytes and names")
	}
	return nil
}

// typeTouches: before 3.2 TYPE and TTL reset a key's idle time.
func (k *worker) typeTouches() bool { return !k.shard.Server.AtLeast(3, 2, 0) }

// idleEverywhere leaves the keys that no replica served reads of either. One
// that a replica does not have is left out: what it knew is unknown.
//
// Sends, to each replica, and to the primary where a replica was scanned: OBJECT IDLETIME of each key, in one pipeline; O(1).
func (k *worker) idleEverywhere(ctx context.Context, keys []scanner.Key) ([]scanner.Key, error) {
	type server struct {
		addr   string
		client *redis.Client
	}
	var servers []server
	for _, r := range k.replicas {
		servers = append(servers, server{r.Addr, r.Client()})
	}
	if k.rule.IdleOver > 0 && k.reader != k.shard {
		servers = append(servers, server{k.shard.Addr, k.shard.Client()})
	}
	for _, s := range servers {
		if len(keys) == 0 {
			break
		}
		idle, err := scanner.IdleTimes(ctx, s.client, keys)
		if err != nil {
			return nil, fmt.Errorf("judge idle time: %s: %w", s.addr, err)
		}
		left := keys[:0]
		for i := range keys {
			if keys[i].Idle = min(keys[i].Idle, idle[i]); k.rule.Selects(&keys[i]) {
				left = append(left, keys[i])
			}
		}
		keys = left
	}
	return keys, nil
}

// actionText is the action in the words of the audit; "" for a delete.
func (k *worker) actionText() string {
	switch a := k.Job.Action; {
	case a.Trim != nil && a.Trim.Keep != nil:
		return fmt.Sprintf("trim: keep %d %s", *a.Trim.Keep, a.Trim.KeepEnd)
	case a.Trim != nil:
		return fmt.Sprintf("trim: older than %s %s", a.Trim.OlderThan, a.Trim.Score)
	case a.PruneIndex != nil:
		return fmt.Sprintf("prune_index: older than %s %s", a.PruneIndex.OlderThan, a.PruneIndex.Value)
	case a.Defuse != nil:
		return fmt.Sprintf("defuse: %s before it expires", a.Defuse.Lead)
	case a.Expire != nil:
		return fmt.Sprintf("expire: %s, jitter %s", a.Expire.TTL, a.Expire.Jitter)
	}
	return ""
}
