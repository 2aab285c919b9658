package topology

import (
	"slices"
	"strings"
)

// The purposes an ACL rule is made for.
const (
	PurposeScan       = "scan"
	PurposeDelete     = "delete"
	PurposeTrim       = "trim"
	PurposeExpire     = "expire"
	PurposeDefuse     = "defuse"
	PurposePruneIndex = "prune_index"
)

// Purposes are all of them, in the order in which they are shown.
var Purposes = []string{PurposeScan, PurposeDelete, PurposeTrim, PurposeExpire, PurposeDefuse, PurposePruneIndex}

// grant is one command a user must be allowed. A subcommand is written
// "memory|usage"; Redis 6 takes that form for any command.
type grant struct {
	command string
	since   [3]int // the version that brought it; older ones refuse a rule that names it
}

// scanGrants are what opening a target and scanning it sends, health checks
// included. HELLO and AUTH need no grant.
var scanGrants = []grant{
	{command: "ping"}, {command: "info"}, {command: "select"}, {command: "dbsize"},
	{command: "cluster|slots"}, {command: "cluster|nodes"}, {command: "cluster|myid"},
	{command: "command|info"}, {command: "command|docs", since: [3]int{7, 0, 0}},
	{command: "client|no-touch", since: [3]int{7, 2, 0}},
	{command: "scan"}, {command: "type"}, {command: "pttl"},
	{command: "strlen"}, {command: "llen"}, {command: "hlen"}, {command: "scard"}, {command: "zcard"}, {command: "xlen"},
	{command: "object|encoding"}, {command: "object|idletime"}, {command: "object|freq"}, {command: "memory|usage"},
	{command: "eval"}, {command: "readonly"},
}

// deleteGrants come on top for removing keys, and for the lock of a job.
var deleteGrants = []grant{
	{command: "unlink"}, {command: "del"},
	{command: "watch"}, {command: "unwatch"}, {command: "multi"}, {command: "exec"}, {command: "discard"},
	{command: "evalsha"}, {command: "renamenx"}, {command: "persist"}, {command: "pexpire"},
	{command: "exists"}, {command: "time"}, {command: "get"}, {command: "set"},
	{command: "ltrim"}, {command: "zremrangebyscore"}, {command: "zremrangebyrank"}, {command: "zrange"},
	{command: "hscan"}, {command: "hkeys"}, {command: "hdel"}, {command: "sscan"}, {command: "srem"},
	{command: "xtrim"}, {command: "xinfo|groups"}, {command: "xpending"}, {command: "xack"}, {command: "xgroup|create"},
}

// actionGrants come on top of those for removing keys.
var actionGrants = map[string][]grant{
	PurposeDelete:     nil,
	PurposeTrim:       {{command: "xrange"}, {command: "zcount"}},
	PurposeExpire:     {{command: "pexpireat"}, {command: "config|get"}},
	PurposeDefuse:     nil,
	PurposePruneIndex: {{command: "hget"}, {command: "hset"}, {command: "zscore"}, {command: "zrem"}, {command: "zrangebyscore"}},
}

// ACLRule returns the rule, in the words of ACL SETUSER, under which nothing
// we send for the purpose is refused, written for this server's version. It
// is empty for a purpose that is not known and before Redis 6, which has no
// users, or where the version is unknown.
func (s *Shard) ACLRule(purpose string) string {
	grants := scanGrants
	if purpose != PurposeScan {
		more, known := actionGrants[purpose]
		if !known {
			return ""
		}
		grants = slices.Concat(scanGrants, deleteGrants, more)
	}
	if !s.Server.AtLeast(6, 0, 0) {
		return ""
	}
	rule := []string{"~*"}
	for _, g := range grants {
		if s.Server.AtLeast(g.since[0], g.since[1], g.since[2]) {
			rule = append(rule, "+"+g.command)
		}
	}
	return strings.Join(rule, " ")
}
