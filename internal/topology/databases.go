package topology

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"
)

// database is one logical database of a standalone server.
type database struct {
	number int
	keys   int64 // -1 unknown
	err    error // SELECT refuses it
}

// guessedDatabases is how many databases are looked at where INFO is refused:
// what a server has unless configured otherwise.
const guessedDatabases = 16

// databases finds the databases to work on: the wanted ones, else those that
// have keys, else database 0. The note tells what could not be seen.
//
// Sends: SELECT and DBSIZE per database; O(1).
func (l *link) databases(ctx context.Context, wanted []int) (dbs []database, note string, err error) {
	search := len(wanted) == 0 && l.sizes == nil
	switch {
	case search:
		note = fmt.Sprintf("INFO is refused: databases above %d were not looked at", guessedDatabases-1)
		for n := range guessedDatabases {
			wanted = append(wanted, n)
		}
	case len(wanted) == 0 && len(l.sizes) == 0:
		wanted = []int{0}
	case len(wanted) == 0:
		wanted = slices.Sorted(maps.Keys(l.sizes))
	}
	for _, n := range slices.Compact(slices.Sorted(slices.Values(wanted))) {
		db := database{number: n, keys: -1}
		refusal, err := l.use(ctx, n)
		switch {
		case err != nil:
			return nil, "", err
		case refusal != nil && search && n > 0:
			return dbs, note, nil // beyond the last one, or SELECT is refused
		case redis.HasErrorPrefix(refusal, "NOPERM "):
			db.err = l.dialer.authError(l.addr, refusal)
		case refusal != nil:
			db.err = fmt.Errorf("%s: SELECT %d: %w", l.addr, n, refusal)
		default:
			if db.keys, err = l.size(ctx, n); err != nil {
				return nil, "", err
			}
		}
		if search && n > 0 && db.keys == 0 {
			continue
		}
		dbs = append(dbs, db)
	}
	if search && len(dbs) > 1 && dbs[0].keys == 0 {
		dbs = dbs[1:]
	}
	return dbs, note, nil
}

// use selects a database; every connection begins in database 0.
func (l *link) use(ctx context.Context, db int) (refusal, err error) {
	if db == 0 {
		return nil, nil
	}
	_, refusal, err = l.ask(ctx, "SELECT", db)
	return refusal, err
}

// size counts the keys of the selected database, -1 where it may not.
func (l *link) size(ctx context.Context, db int) (int64, error) {
	reply, refusal, err := l.ask(ctx, "DBSIZE")
	if err != nil {
		return 0, err
	}
	if keys, ok := reply.(int64); ok && refusal == nil {
		return keys, nil
	}
	if keys, ok := l.sizes[db]; ok {
		return keys, nil
	}
	return -1, nil
}
