package scanner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Abilities is what the shard's server lets a scan ask.
type Abilities struct {
	MemoryUsage bool // since 4.0
	Encoding    bool // OBJECT ENCODING
	NoTouch     bool // what this connection asks leaves idle times as they are (7.2)
	TypeTouches bool // TYPE and PTTL reset a key's idle time (before 3.2)
}

// probe is one question about a key.
type probe int

const (
	askType     probe = iota // TYPE: O(1)
	askBytes                 // MEMORY USAGE: O(samples) with the server's default of 5; since 4.0
	askTTL                   // PTTL: O(1)
	askEncoding              // OBJECT ENCODING: O(1)
	askIdle                  // OBJECT IDLETIME: O(1); not under an LFU policy
	askFreq                  // OBJECT FREQ: O(1); only under one (4.0)
	askLength                // LLEN, HLEN, SCARD, ZCARD, XLEN, STRLEN by the type: O(1)
)

// page is what one SCAN returned.
type page struct {
	names []string
	next  uint64
	// Of a page that a script measured:
	bytes []int64       // of each name, which are large enough or ours
	seen  int           // keys that there were
	took  time.Duration // that it took
}

// errGone is the reply to a probe of a key that is no more, or is another.
var errGone = errors.New("key is gone or has another type")

// ask puts the probes of all keys and, if cursor is given, the SCAN of the
// next page into one pipeline: one round trip, and the server is never asked
// for a value. lost holds, for each key, why it could not be measured: errGone
// or the first reply that refused it. Any other reply (LOADING, NOAUTH, …)
// and any failure of the connection ends the walk.
//
// Sends: OBJECT IDLETIME or FREQ, TYPE, MEMORY USAGE, PTTL, OBJECT ENCODING and the length command of
// the key's type as probes say, and SCAN cursor COUNT count.
func ask(ctx context.Context, rdb redis.Cmdable, keys []*Key, probes []probe, cursor *uint64, count int) (p page, lost []error, err error) {
	pipe := rdb.Pipeline()
	cmds := make([]redis.Cmder, 0, len(keys)*len(probes))
	for _, k := range keys {
		for _, what := range probes {
			cmds = append(cmds, send(ctx, pipe, k, what))
		}
	}
	var scan *redis.ScanCmd
	if cursor != nil {
		scan = pipe.Scan(ctx, *cursor, "", int64(count))
	}
	_, _ = pipe.Exec(ctx) // each reply is looked at below

	lost = make([]error, len(keys))
	for i, cmd := range cmds {
		k := keys[i/len(probes)]
		switch err := take(k, probes[i%len(probes)], cmd); {
		case err == nil:
		case aboutKey(err):
			if lost[i/len(probes)] == nil {
				lost[i/len(probes)] = err
			}
		default:
			return page{}, nil, fmt.Errorf("probe keys: %w", err)
		}
	}
	if scan != nil {
		p.names, p.next, err = scan.Result()
		if err != nil {
			return page{}, nil, fmt.Errorf("scan from cursor %d: %w", *cursor, err)
		}
	}
	return p, lost, nil
}

func send(ctx context.Context, pipe redis.Pipeliner, k *Key, what probe) redis.Cmder {
	switch what {
	case askBytes:
		return pipe.MemoryUsage(ctx, k.Name)
	case askTTL:
		// Not the typed call: it turns the reply into a time.Duration, which
		// a TTL of 300 years overflows.
		cmd := redis.NewIntCmd(ctx, "pttl", k.Name)
		_ = pipe.Process(ctx, cmd)
		return cmd
	case askEncoding:
		return pipe.ObjectEncoding(ctx, k.Name)
	case askIdle, askFreq:
		// Not the typed call: it turns seconds into a time.Duration.
		cmd := redis.NewIntCmd(ctx, "object", map[probe]string{askIdle: "idletime", askFreq: "freq"}[what], k.Name)
		_ = pipe.Process(ctx, cmd)
		return cmd
	case askLength:
		switch k.Type {
		case "list":
			return pipe.LLen(ctx, k.Name)
		case "hash":
			return pipe.HLen(ctx, k.Name)
		case "set":
			return pipe.SCard(ctx, k.Name)
		case "zset":
			return pipe.ZCard(ctx, k.Name)
		case "stream":
			return pipe.XLen(ctx, k.Name)
		}
		return pipe.StrLen(ctx, k.Name)
	}
	return pipe.Type(ctx, k.Name)
}

// take stores a reply in k. Its error is errGone, a reply of the server, or
// whatever kept the reply from arriving.
func take(k *Key, what probe, cmd redis.Cmder) error {
	if err := cmd.Err(); err != nil {
		if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE") ||
			redis.HasErrorPrefix(err, "no such key") {
			return errGone
		}
		return err
	}
	switch what {
	case askType:
		typ := cmd.(*redis.StatusCmd).Val()
		if typ == None {
			return errGone
		}
		k.Type = typ
	case askEncoding:
		k.Encoding = cmd.(*redis.StringCmd).Val()
	case askIdle:
		k.Idle = cmd.(*redis.IntCmd).Val()
	case askFreq:
		k.Freq = cmd.(*redis.IntCmd).Val()
	case askBytes:
		k.Bytes = cmd.(*redis.IntCmd).Val()
	case askTTL:
		ttl := cmd.(*redis.IntCmd).Val()
		if ttl < NoTTL {
			return errGone
		}
		k.TTL = ttl
	case askLength:
		n := cmd.(*redis.IntCmd).Val()
		switch {
		case counts(k.Type):
			if k.Elements = n; n == 0 && k.Type != "stream" {
				return errGone
			}
		case k.Bytes == Unknown:
			k.Bytes = n
		}
	}
	return nil
}

// aboutKey reports whether err concerns one key and not the whole shard: it
// is gone, the user may not touch it, or its slot lives or moves elsewhere.
func aboutKey(err error) bool {
	return errors.Is(err, errGone) || redis.HasErrorPrefix(err, "NOPERM") || moved(err)
}

func moved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ") ||
		redis.HasErrorPrefix(err, "TRYAGAIN")
}

// IdleTimes is how long one server, a replica perhaps, saw no read or write of
// keys, in seconds; Unknown of a key that it does not have.
//
// Sends: OBJECT IDLETIME of each key, in one pipeline; O(1) each.
func IdleTimes(ctx context.Context, rdb redis.Cmdable, keys []Key) ([]int64, error) {
	asked := make([]*Key, len(keys))
	for i := range keys {
		k := blank(keys[i].Name)
		asked[i] = &k
	}
	_, lost, err := ask(ctx, rdb, asked, []probe{askIdle}, nil, 0)
	if err != nil {
		return nil, err
	}
	idle := make([]int64, len(keys))
	for i, k := range asked {
		if lost[i] != nil && !errors.Is(lost[i], errGone) {
			return nil, lost[i]
		}
		idle[i] = k.Idle
	}
	return idle, nil
}
