package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keyjanitor/keyjanitor/internal/topology"
)

// saveEvery is how often a shard's place in its scan is written down.
const saveEvery = 5 * time.Second

// checkpoint is how far the scan of one shard is, and what it found so far.
// It is written with gob: names are bytes.
type checkpoint struct {
	Saved                    time.Time
	RunID                    string // of the server's process: to no other does the cursor mean anything
	Cursor                   uint64
	Scanned, Acted, Trash    int64
	Orphans, Unmeasured      int64
	Matched, Bytes, Expiring int64
	Folded                   bool
	Largest, Longest         []Finding
	Types, Prefixes, TTL     groups
	Sizes, Idle              groups
}

// place identifies the scan that a checkpoint is of: another job, selection,
// action, mode or shard, or other slots, are another scan.
func (k *worker) place() string {
	text, err := json.Marshal(struct {
		Version            int
		Job, Target, Shard string
		Mode               Mode
		Top                int
		Select, Action     any
		Slots              []topology.SlotRange
		Replica            bool
	}{1, k.Job.Name, k.Target.Name, k.shard.ID, k.Mode, k.Top, k.Job.Select, k.Job.Action, k.shard.Slots, k.ReadReplica})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return filepath.Join(k.StateDir, "checkpoints", hex.EncodeToString(sum[:16]))
}

// keepsPlace reports whether the shard's scan can go on where it was.
func (k *worker) keepsPlace() bool {
	a := k.Job.Action
	return k.Checkpoints && k.Trash == nil && k.Keys == nil && a.Defuse == nil && a.PruneIndex == nil && k.reader.Server.RunID != ""
}

// resume takes up the scan where an earlier run left it, if there is such a
// place and the request says so.
func (k *worker) resume() {
	if !k.Resume || k.heir || !k.keepsPlace() {
		return
	}
	data, err := os.ReadFile(k.place())
	if err != nil {
		return
	}
	var c checkpoint
	sum := sha256.Sum256(data[min(len(data), sha256.Size):])
	if !bytes.Equal(sum[:], data[:min(len(data), sha256.Size)]) {
		err = errors.New("it is not as it was written")
	} else {
		err = gob.NewDecoder(bytes.NewReader(data[sha256.Size:])).Decode(&c)
	}
	if err != nil {
		k.Log.Warn("a checkpoint could not be read; the scan starts over", "shard", k.shard.ID, "reason", err)
		return
	}
	if c.RunID != k.reader.Server.RunID || c.Cursor == 0 {
		k.Log.Info("a checkpoint is of another process of the server; the scan starts over", "shard", k.shard.ID)
		return
	}
	k.from, k.cursor, k.behind = c.Cursor, c.Cursor, c.Scanned
	k.scanned, k.acted, k.trash, k.orphans, k.unmeasured = c.Scanned, c.Acted, c.Trash, c.Orphans, c.Unmeasured
	k.allow.resumed(c.Acted)
	k.Progress.KeysScanned.Add(c.Scanned)
	note := fmt.Sprintf("shard %s went on from where a run was at %s: %d keys had been scanned", k.shard.ID,
		c.Saved.UTC().Format(time.DateTime), c.Scanned)
	if k.Mode == Execute { // what that run did is its to tell
		note += fmt.Sprintf(", and %d acted on, which are not told here again but count against the limits", c.Acted)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.summary.Notes = append(k.summary.Notes, note)
	if k.Mode == Execute {
		return
	}
	t := k.tally
	t.matched, t.bytes, t.expiring, t.folded = c.Matched, c.Bytes, c.Expiring, c.Folded
	for _, f := range c.Largest {
		t.largest.add(f)
	}
	for _, f := range c.Longest {
		t.longest.add(f)
	}
	for into, from := range map[*groups]groups{&t.types: c.Types, &t.prefixes: c.Prefixes, &t.ttl: c.TTL, &t.sizes: c.Sizes, &t.idle: c.Idle} {
		into.merge(from)
	}
}

// reached notes that everything before a cursor was seen, and acted on, and
// writes it down now and then.
func (k *worker) reached(cursor uint64, scanned int64) {
	if k.cursor, k.behind = cursor, scanned; time.Since(k.saved) >= saveEvery {
		k.save()
	}
}

// save writes the shard's place down. Without it a later run starts over,
// which costs time and nothing else.
func (k *worker) save() {
	if !k.keepsPlace() || k.cursor == 0 {
		return
	}
	k.saved = time.Now()
	t := k.tally
	c := checkpoint{
		Saved: k.saved, RunID: k.reader.Server.RunID, Cursor: k.cursor,
		Scanned: k.behind, Acted: k.acted, Trash: k.trash, Orphans: k.orphans, Unmeasured: k.unmeasured,
		Matched: t.matched, Bytes: t.bytes, Expiring: t.expiring, Folded: t.folded,
		Largest: t.largest.items, Longest: t.longest.items,
		Types: t.types, Prefixes: t.prefixes, TTL: t.ttl, Sizes: t.sizes, Idle: t.idle,
	}
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(&c)
	path := k.place()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		sum := sha256.Sum256(b.Bytes())
		err = replaceFile(path, append(sum[:], b.Bytes()...))
	}
	if err != nil {
		k.Log.Warn("the place in the scan could not be written down", "shard", k.shard.ID, "reason", err)
	}
}

// unfinished is what a checkpoint is called until it is whole: always the
// same, so that a run that is killed leaves one at most.
func unfinished(path string) string { return path + ".new" }

// replaceFile writes a file that is there as a whole or not at all.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(unfinished(path), data, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished(path), path)
}

// arrived removes the place of a scan that came to its end.
func (k *worker) arrived() {
	if k.keepsPlace() {
		place := k.place()
		_, _ = os.Remove(place), os.Remove(unfinished(place)) // neither may be there
	}
}
