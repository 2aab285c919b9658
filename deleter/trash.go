package deleter

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
)

// trashPrefix begins the name of everything that was set aside. It holds no
// brace, so that the tag after it decides the slot.
const trashPrefix = "keyjanitor:trash:{"

// trashVersion is the layout below. A later layout takes another number, and
// a name of a number that is not known is nobody's leftover.
const trashVersion = "1"

// State says what a key in the trash waits for.
type State string

// The states. A draining key is never given back; a kept one waits until it
// is due.
const (
	Draining State = "d"
	Kept     State = "k"
)

// Trash is a key that was set aside. Its name is a journal that survives us:
//
//	keyjanitor:trash:{tag}:1:state:due:ttl:job:nonce:original name
//
// The tag puts it into the slot of the original name, whatever that is made
// of; due is Unix milliseconds (0: at once), ttl the milliseconds that the key
// still had to live (−1: no TTL).
type Trash struct {
	State    State
	Due      int64
	TTL      int64
	Job      string // "-" for a run without a job
	Nonce    string // 16 hexadecimal digits: no two keys that were set aside share a name
	Original string // any bytes, also none
}

// Namer makes and reads the names of the trash.
type Namer struct {
	slot func(name string) int
	tags []string // by slot
}

// slots is the number of hash slots of a cluster.
const slots = 16384

// NewNamer returns a namer for a way to compute a name's hash slot (CRC16 of
// the hash tag, modulo 16384).
func NewNamer(slot func(name string) int) *Namer {
	n := &Namer{slot: slot, tags: make([]string, slots)}
	// Counting in base 36, every slot is met within some 160,000 numbers:
	// four characters.
	for i, left := int64(0), slots; left > 0; i++ {
		tag := strconv.FormatInt(i, 36)
		if s := slot(tag); n.tags[s] == "" {
			n.tags[s] = tag
			left--
		}
	}
	return n
}

// Tag is a hash tag for a slot.
func (n *Namer) Tag(slot int) string { return n.tags[slot] }

// name is where a key goes when it is set aside to be drained.
func (n *Namer) name(job, original string) string {
	return n.format(Trash{State: Draining, TTL: NoTTL, Job: job, Nonce: nonce(), Original: original})
}

// kept is where a key goes that waits until it is due.
func (n *Namer) kept(job, original string, due time.Time, ttl int64) string {
	return n.format(Trash{State: Kept, Due: max(0, due.UnixMilli()), TTL: max(NoTTL, ttl), Job: job, Nonce: nonce(), Original: original})
}

// draining is where a kept key goes when it is to be removed.
func (n *Namer) draining(t Trash) string {
	t.State, t.Due, t.TTL = Draining, 0, NoTTL
	return n.format(t)
}

func nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}

func (n *Namer) format(t Trash) string {
	return trashPrefix + n.tags[n.slot(t.Original)] + "}:" + strings.Join([]string{
		trashVersion, string(t.State), strconv.FormatInt(t.Due, 10), strconv.FormatInt(t.TTL, 10),
		t.Job, t.Nonce, t.Original,
	}, ":")
}

// keepForGood is the name for a key that was set aside to be drained, and by
// mistake: it waits in the trash until somebody restores or purges it.
func keepForGood(name string) string {
	from := "}:" + strings.Join([]string{trashVersion, string(Draining), "0"}, ":") + ":"
	to := "}:" + strings.Join([]string{trashVersion, string(Kept), strconv.FormatInt(math.MaxInt64, 10)}, ":") + ":"
	return strings.Replace(name, from, to, 1)
}

// Parse reads a name. It is one of ours only if it says everything in the
// right form and its tag is the one that its original name would get.
func (n *Namer) Parse(name string) (Trash, bool) {
	rest, ours := strings.CutPrefix(name, trashPrefix)
	if !ours {
		return Trash{}, false
	}
	tag, rest, _ := strings.Cut(rest, "}:")
	f := strings.SplitN(rest, ":", 7)
	if len(f) != 7 || f[0] != trashVersion {
		return Trash{}, false
	}
	due, err1 := strconv.ParseInt(f[2], 10, 64)
	ttl, err2 := strconv.ParseInt(f[3], 10, 64)
	if err1 != nil || err2 != nil {
		return Trash{}, false
	}
	t := Trash{State: State(f[1]), Due: due, TTL: ttl, Job: f[4], Nonce: f[5], Original: f[6]}
	nonce, err := hex.DecodeString(t.Nonce)
	valid := err == nil && len(nonce) == 8 && hex.EncodeToString(nonce) == t.Nonce && t.Job != "" && (t.State == Draining || t.State == Kept) &&
		due >= 0 && ttl >= NoTTL && tag == n.tags[n.slot(t.Original)] && n.format(t) == name
	return t, valid
}
