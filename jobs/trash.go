package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyjanitor/keyjanitor/deleter"
	"github.com/keyjanitor/keyjanitor/scanner"
)

// TrashVerb is what is done to keys of the trash.
type TrashVerb string

// The verbs.
const (
	List    TrashVerb = "list"
	Restore TrashVerb = "restore"
	Purge   TrashVerb = "purge"
)

// Trash says which keys of the trash a run is about, and what to do to them.
// Every condition that is set must hold.
type Trash struct {
	Verb TrashVerb
	Keys []string // original names; empty: any
	Job  string   // that set them aside; "": any
	// Nonce tells keys of one name apart; "": any.
	Nonce string
	Due   bool    // only those whose time to be kept is over
	As    *string // restore under this name; nil: the original
	Swap  bool    // set aside what has the name
}

// wants reports whether a key of the trash is meant.
func (t *Trash) wants(key *deleter.Trash, now time.Time) bool {
	named := len(t.Keys) == 0
	for _, name := range t.Keys {
		named = named || name == key.Original
	}
	return named && (t.Job == "" || t.Job == key.Job) && (t.Nonce == "" || t.Nonce == key.Nonce) && (!t.Due || key.Due <= now.UnixMilli())
}

// sort does to those names of a page that are meant what the run is for.
func (k *worker) sort(ctx context.Context, own []string) error {
	var names []string
	var keys []deleter.Trash
	for _, name := range own {
		t, ours := k.namer.Parse(name)
		if ours && k.Trash.wants(&t, k.clock()) && (k.del == nil || !k.del.Swapped(name)) {
			names, keys = append(names, name), append(keys, t)
		}
	}
	if len(names) == 0 {
		return nil
	}
	k.Progress.KeysMatched.Add(int64(len(names)))
	facts, err := k.scan.Measure(ctx, names)
	if err != nil {
		return err
	}
	for i, t := range keys {
		if facts[i].Type == scanner.None {
			continue
		}
		if err := k.handle(ctx, names[i], &t, &facts[i]); err != nil {
			return err
		}
	}
	return nil
}

// handle lists, restores or purges one key of the trash.
func (k *worker) handle(ctx context.Context, name string, t *deleter.Trash, facts *scanner.Key) error {
	facts.Name, facts.TTL = t.Original, t.TTL
	f := k.finding(facts)
	f.State, f.Job, f.Nonce = "draining", t.Job, t.Nonce
	if t.State == deleter.Kept {
		f.State = "kept"
		if due := time.UnixMilli(t.Due).UTC(); due.Year() <= 9999 { // later is never
			f.Due = &due
		}
	}
	if k.Trash.Verb == List {
		k.found(f)
		return nil
	}
	o := deleter.Order{Key: t.Original, Type: facts.Type, Elements: facts.Elements, Bytes: facts.Bytes}
	if k.Mode == Execute {
		if err := k.Audit.Intents([]Entry{k.intent(&o)}); err != nil {
			return err
		}
	}
	var r deleter.Result
	var err error
	if k.Trash.Verb == Restore {
		as := t.Original
		if k.Trash.As != nil {
			as = *k.Trash.As
		}
		r, err = k.del.Restore(ctx, name, as, k.Trash.Swap)
	} else {
		r, err = k.purge(ctx, name)
	}
	if r.Outcome == "" {
		return err
	}
	k.count(&r)
	k.judge(&f, &r)
	k.found(f)
	if k.Mode == Execute {
		err = errors.Join(err, k.Audit.Results([]Entry{k.result(&r)}))
	}
	return err
}

func (k *worker) purge(ctx context.Context, name string) (deleter.Result, error) {
	if k.Mode == Execute {
		return k.del.Purge(ctx, name)
	}
	return deleter.Result{Outcome: deleter.WouldAct, Method: deleter.Drain}, nil
}

// clock is the shard's time.
func (k *worker) clock() time.Time { return time.Now().Add(k.ahead) }

// due reports whether a kept key is this job's to remove now.
func (k *worker) due(t *deleter.Trash) bool {
	return t.Job == orDash(k.Job.Name) && t.Due <= k.clock().UnixMilli()
}

func orDash(job string) string {
	if job == "" {
		return "-"
	}
	return job
}

// keepFor is how long keys are kept before they are removed; 0: not at all.
func (k *worker) keepFor() time.Duration {
	if d := k.Job.Action.Delete; d != nil {
		return time.Duration(d.KeepFor)
	}
	return 0
}

// allowStall is how long freeing one string may stall the server; 0: the
// deleter's default.
func (k *worker) allowStall() time.Duration {
	if d := k.Job.Action.Delete; d != nil {
		return time.Duration(d.AllowStall)
	}
	return 0
}

// inPlace is the consent to drain keys under their own names.
func (k *worker) inPlace() bool {
	d := k.Job.Action.Delete
	return d != nil && d.InPlace
}

// clockSkew is how far a shard's clock may be from ours.
const clockSkew = time.Minute

// prepareClock learns the shard's time, by which keys become due and entries
// old, and refuses a shard on which what is kept would not be safe.
//
// Sends: TIME (2.6), O(1).
func (k *worker) prepareClock(ctx context.Context) error {
	now, err := k.shard.Client().Time(ctx).Result()
	if err != nil {
		if needsClock(k.Job.Action) == "" && k.Trash == nil {
			return nil // nothing is due here
		}
		return fmt.Errorf("ask the server for its time: %w", err)
	}
	k.ahead = time.Until(now)
	what := needsClock(k.Job.Action)
	if what != "" && k.ahead.Abs() > clockSkew {
		return fmt.Errorf("the server's clock is %s from ours; set them right before %s", k.ahead.Round(time.Second), what)
	}
	if k.keepFor() == 0 {
		return nil
	}
	if policy := k.shard.Server.Policy; len(policy) > 8 && policy[:8] == "allkeys-" && !k.Job.Action.Delete.ForceKeep {
		return fmt.Errorf("keys can't be kept here: under maxmemory-policy %s the server may evict them from the trash; delete without keeping them, or keep them all the same with --force-keep", policy)
	}
	return nil
}
