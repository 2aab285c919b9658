package topology

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// probe learns what the node lets us do by doing it to a random key that does
// not exist. Each refusal counts in the server's error statistics, so there
// are few, once per node, and none that the version rules out.
// A reply that never comes is an error, not a "no".
//
// Sends: SCAN 0 COUNT 1 TYPE string, MEMORY USAGE, OBJECT ENCODING, EVAL of a
// constant script, CLIENT NO-TOUCH ON (from 7.2), COMMAND DOCS hscan (from
// 7.4); O(1). With writes UNLINK, RENAMENX, PERSIST, WATCH, MULTI, EXEC, and
// DISCARD or UNWATCH after a half-allowed transaction; otherwise COMMAND INFO.
func (l *link) probe(ctx context.Context, writes bool, slots []SlotRange) error {
	key := probeKey(slots)
	steps := []func(context.Context, string) error{
		l.probeScan, l.probeMemoryUsage, l.probeEncoding, l.probeNoTouch, l.probeNoValues, l.probeScript,
	}
	if writes {
		steps = append(steps, l.probeUnlink, l.probeRename, l.probeWatch)
	} else {
		steps = append(steps, l.lookUpWrites)
	}
	for _, step := range steps {
		if err := step(ctx, key); err != nil {
			return err
		}
	}
	slices.Sort(l.unknown)
	return nil
}

// probeKey names a key that nobody has. In a cluster its tag is the first
// number that hashes to a slot of the node, which would redirect it otherwise.
func probeKey(slots []SlotRange) string {
	s := Shard{Server: Server{Cluster: slots != nil}, Slots: slots}
	tag := 0
	for !s.Owns(Slot(strconv.Itoa(tag))) {
		tag++
	}
	return fmt.Sprintf("keyjanitor:probe:{%d}:%s", tag, rand.Text())
}

// record notes what a probe said about one ability.
func (l *link) record(ability string, have *bool, v verdict, reason string) {
	*have = v == yes
	if v == later {
		l.unknown = append(l.unknown, ability)
	}
	if v != yes {
		l.why[ability] = reason
	}
}

// try sends a probe and judges the reply.
func (l *link) try(ctx context.Context, args ...any) (reply any, v verdict, reason string, err error) {
	reply, refusal, err := l.ask(ctx, args...)
	if err != nil {
		return nil, no, "", err
	}
	if refusal != nil {
		reason = words(refusal)
	}
	return reply, judge(refusal), reason, nil
}

func (l *link) probeScan(ctx context.Context, _ string) error {
	_, v, reason, err := l.try(ctx, "SCAN", "0", "COUNT", "1", "TYPE", "string")
	if err != nil {
		return err
	}
	l.record(abilityScanType, &l.can.ScanType, v, reason)
	if strings.HasPrefix(reason, "ERR syntax error") {
		v, reason = yes, "" // SCAN is there, TYPE is not
	}
	l.record(abilityScan, &l.can.Scan, v, reason)
	return nil
}

func (l *link) probeMemoryUsage(ctx context.Context, key string) error {
	_, v, reason, err := l.try(ctx, "MEMORY", "USAGE", key)
	if err == nil {
		l.record(abilityMemoryUsage, &l.can.MemoryUsage, v, reason)
	}
	return err
}

func (l *link) probeEncoding(ctx context.Context, key string) error {
	_, v, reason, err := l.try(ctx, "OBJECT", "ENCODING", key)
	if err == nil {
		l.record(abilityEncoding, &l.can.Encoding, v, reason)
	}
	return err
}

func (l *link) probeNoTouch(ctx context.Context, _ string) error {
	if l.server.redisVersion() != "" && !l.server.AtLeast(7, 2, 0) {
		l.record(abilityNoTouch, &l.can.NoTouch, no, "needs Redis 7.2")
		return nil
	}
	_, v, reason, err := l.try(ctx, "CLIENT", "NO-TOUCH", "ON")
	if err == nil {
		l.record(abilityNoTouch, &l.can.NoTouch, v, reason)
	}
	return err
}

// probeNoValues cannot try HSCAN itself: on a key that does not exist every
// version answers before it reads the options. So the command's own
// documentation is asked, and the version believed where that is refused.
func (l *link) probeNoValues(ctx context.Context, _ string) error {
	known := l.server.redisVersion() != ""
	byVersion := l.server.AtLeast(7, 4, 0)
	if l.server.Name == "valkey" {
		byVersion = compareVersion(l.server.Version, 8, 0, 0)
	}
	if known && !byVersion {
		l.record(abilityNoValues, &l.can.NoValues, no, "needs Redis 7.4 or Valkey 8.0")
		return nil
	}
	reply, v, reason, err := l.try(ctx, "COMMAND", "DOCS", "hscan")
	if err != nil {
		return err
	}
	docs, _ := reply.([]any)
	switch {
	case v == yes && mentions(docs, "novalues"):
	case v == yes && len(docs) > 0:
		v, reason = no, "COMMAND DOCS hscan does not name NOVALUES"
	case known:
		l.can.NoValues = true
		l.why[abilityNoValues] = strings.TrimSpace(fmt.Sprintf("assumed of %s: COMMAND DOCS does not tell %s", l.server, reason))
		return nil
	default:
		v = later
	}
	l.record(abilityNoValues, &l.can.NoValues, v, reason)
	return nil
}

// mentions looks for a word anywhere in a nested reply.
func mentions(reply any, word string) bool {
	switch r := reply.(type) {
	case string:
		return strings.EqualFold(r, word)
	case []any:
		return slices.ContainsFunc(r, func(e any) bool { return mentions(e, word) })
	}
	return false
}

// effectsScript answers 1 where a script is replicated by its effects. From
// 3.2 redis.replicate_commands() switches to that and tells whether it could;
// were it ever dropped, redis.setresp (6.0) tells the new servers, which do
// nothing else, from 2.8, which has neither.
const effectsScript = `if redis.replicate_commands then return redis.replicate_commands() and 1 or 0 end
return redis.setresp and 1 or 0`

func (l *link) probeScript(ctx context.Context, _ string) error {
	reply, v, reason, err := l.try(ctx, "EVAL", effectsScript, "0")
	if err != nil {
		return err
	}
	if v == yes && reply != int64(1) {
		v, reason = no, "scripts are replicated as text, not by their effects"
	}
	l.record(abilityScript, &l.can.Script, v, reason)
	return nil
}

// tryWrite is try for a command that writes: no state of the server that
// comes after the permission check matters, except that it is a replica.
func (l *link) tryWrite(ctx context.Context, args ...any) (verdict, string, error) {
	_, refusal, err := l.ask(ctx, args...)
	if err != nil {
		return no, "", err
	}
	if redis.HasErrorPrefix(refusal, "READONLY ") {
		return no, "", fmt.Errorf("%s: %w: %w", l.addr, ErrRole, refusal)
	}
	if judge(refusal) == no {
		return no, words(refusal), nil
	}
	return yes, "", nil
}

func (l *link) probeUnlink(ctx context.Context, key string) error {
	v, reason, err := l.tryWrite(ctx, "UNLINK", key)
	if err == nil {
		l.record(abilityUnlink, &l.can.Unlink, v, reason)
	}
	return err
}

func (l *link) probeRename(ctx context.Context, key string) error {
	v, reason, err := l.tryWrite(ctx, "RENAMENX", key, key+":2")
	if err == nil && v == yes {
		v, reason, err = l.tryWrite(ctx, "PERSIST", key)
	}
	if err == nil {
		l.record(abilityRename, &l.can.Rename, v, reason)
	}
	return err
}

// probeWatch comes last and takes back what was only half allowed; what cannot
// be taken back ends with the link.
func (l *link) probeWatch(ctx context.Context, key string) error {
	steps := []struct{ do, undo []any }{
		{do: []any{"WATCH", key}},
		{do: []any{"MULTI"}, undo: []any{"UNWATCH"}},
		{do: []any{"EXEC"}, undo: []any{"DISCARD"}},
	}
	for _, step := range steps {
		v, reason, err := l.tryWrite(ctx, step.do...)
		if err != nil {
			return err
		}
		l.record(abilityWatch, &l.can.Watch, v, reason)
		if v == no {
			if step.undo != nil {
				_, _, err = l.ask(ctx, step.undo...)
			}
			return err
		}
	}
	return nil
}

// lookUpWrites learns about the commands that a read-only scan must not send
// from the command table, which knows what is absent or renamed but not what
// the user may do. Before 6.0 there are no users.
func (l *link) lookUpWrites(ctx context.Context, _ string) error {
	needs := []struct {
		ability  string
		have     *bool
		commands []string
	}{
		{abilityUnlink, &l.can.Unlink, []string{"unlink"}},
		{abilityRename, &l.can.Rename, []string{"renamenx", "persist"}},
		{abilityWatch, &l.can.Watch, []string{"watch", "multi", "exec"}},
	}
	ask := []any{"COMMAND", "INFO"}
	for _, n := range needs {
		for _, c := range n.commands {
			ask = append(ask, c)
		}
	}
	reply, v, reason, err := l.try(ctx, ask...)
	if err != nil {
		return err
	}
	table, readable := commandTable(reply, ask[2:])
	for _, n := range needs {
		missing := slices.IndexFunc(n.commands, func(c string) bool { return !table[c] })
		switch {
		case v != yes || !readable:
			l.record(n.ability, n.have, later, strings.TrimSpace("COMMAND INFO does not tell "+reason))
		case missing >= 0:
			l.record(n.ability, n.have, no, "the server has no command "+n.commands[missing])
		case l.server.redisVersion() != "" && !l.server.AtLeast(6, 0, 0):
			l.record(n.ability, n.have, yes, "")
		default:
			l.record(n.ability, n.have, later, "the server has it; whether the user may use it is not tried in a read-only run")
		}
	}
	return nil
}

// commandTable reads a COMMAND INFO reply: one entry per name, nil for a
// command that is not there. Imitations answer with their whole table.
func commandTable(reply any, names []any) (has map[string]bool, readable bool) {
	entries, ok := reply.([]any)
	if !ok || len(entries) != len(names) {
		return nil, false
	}
	has = make(map[string]bool)
	for i, e := range entries {
		if e == nil {
			continue
		}
		fields, ok := e.([]any)
		if !ok || len(fields) == 0 {
			return nil, false
		}
		name, _ := names[i].(string)
		if said, _ := fields[0].(string); !strings.EqualFold(said, name) {
			return nil, false
		}
		has[name] = true
	}
	return has, true
}
