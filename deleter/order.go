package deleter

import (
	"slices"
	"strings"
	"time"
)

// Unknown stands for a number that nobody asked for or that could not be had.
const Unknown int64 = -1 << 62

// NoTTL is the TTL of a key that does not expire.
const NoTTL int64 = -1

// Method says how a key may be removed.
type Method string

// The methods of an order and of a result.
const (
	Auto   Method = "auto"   // UNLINK where it is there and safe, else drain
	Unlink Method = "unlink" // UNLINK or nothing
	Drain  Method = "drain"  // set aside and removed in batches
	Del    Method = "del"    // DEL of a key known to be small; chosen by the planner only
)

// Order condemns one key. It carries the evidence: what the key was when it
// was selected and the thresholds that selected it. Both are judged again,
// by the server, in the step that removes the key.
type Order struct {
	ID       int // the caller's own; comes back in the result
	Key      string
	Type     string // as seen; "" if it was not looked at
	Encoding string // as seen; "" unknown
	Elements int64  // as seen, or Unknown
	Bytes    int64  // as seen, or Unknown
	TTL      int64  // as seen: milliseconds or NoTTL; needed only where Keep is set
	Method   Method // Auto, Unlink or Drain
	// AllowStall is how long freeing a string may stall the server; 0: 30 ms.
	AllowStall time.Duration
	// Keep, if above 0, sets the key aside for so long before it is removed.
	Keep time.Duration
	// Trim, if set, shortens the key instead of removing it.
	Trim *Trim
	// ExpireAt, if not zero, gives the key a TTL that ends then instead of
	// removing it.
	ExpireAt time.Time
	Evidence Evidence

	// InPlace consents to a drain under the key's own name where it can't be
	// set aside.
	InPlace bool

	run  []any // the command that is sent if the evidence holds, less the key
	left int64 // elements that it must have, exactly; 0: any number
}

// Evidence is the part of a rule that a key can stop meeting. A zero field is
// no condition.
type Evidence struct {
	MinElements int64
	MinBytes    int64
	NoTTL       bool
	TTLUnder    time.Duration
	TTLOver     time.Duration
	Lasting     time.Duration // lives longer, or forever
	IdleOver    time.Duration // not read or written to for so long, in whole seconds
	FreqUnder   int64         // used less, by the LFU counter
	Types       string        // one of them, with commas between, where the order does not say the type
}

func (e *Evidence) onTTL() bool {
	return e.NoTTL || e.TTLUnder > 0 || e.TTLOver > 0 || e.Lasting > 0
}

// onUse reports whether a read or write can end the evidence.
func (e *Evidence) onUse() bool { return e.IdleOver > 0 || e.FreqUnder > 0 }

// idleSeconds is a threshold as servers count idle time, rounded up.
func (e *Evidence) idleSeconds() int64 {
	return int64((e.IdleOver + time.Second - 1) / time.Second)
}

// facts are what a key is at one moment.
type facts struct {
	Type     string // "none": there is no such key
	Elements int64  // Unknown for what has none
	Bytes    int64  // Unknown unless the evidence needs it
	TTL      int64  // milliseconds, NoTTL, or Unknown unless the evidence needs it
	Idle     int64  // seconds, or Unknown unless the evidence needs it
	Freq     int64  // the LFU counter, or Unknown unless the evidence needs it
}

// holds reports whether the order still stands on the facts of now. A
// condition on something unknown does not hold.
func (o *Order) holds(f facts) bool {
	e := &o.Evidence
	if o.Type != "" && f.Type != o.Type || e.Types != "" && !slices.Contains(strings.Split(e.Types, ","), f.Type) {
		return false
	}
	if e.IdleOver > 0 && f.Idle < e.idleSeconds() {
		return false
	}
	if e.FreqUnder > 0 && (f.Freq == Unknown || f.Freq >= e.FreqUnder) {
		return false
	}
	if o.left > 0 && f.Elements != o.left {
		return false
	}
	if e.MinElements > 0 && f.Elements < e.MinElements || e.MinBytes > 0 && f.Bytes < e.MinBytes {
		return false
	}
	return e.ttlHolds(f.TTL)
}

// ttlHolds reports whether a TTL in milliseconds meets the evidence.
func (e *Evidence) ttlHolds(ttl int64) bool {
	switch {
	case !e.onTTL():
		return true
	case ttl == NoTTL:
		return e.TTLUnder == 0 && e.TTLOver == 0
	case ttl < 0:
		return false
	}
	return !e.NoTTL &&
		(e.TTLUnder == 0 || ttl < millis(e.TTLUnder)) &&
		(e.TTLOver == 0 || ttl > millis(e.TTLOver)) &&
		(e.Lasting == 0 || ttl > millis(e.Lasting))
}

// millis is a threshold as servers count time, rounded up: a condition never
// turns into none.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Outcome is what became of an order.
type Outcome string

// The outcomes. Gone, Changed and Protected are not errors.
const (
	Unlinked  Outcome = "unlinked"
	Deleted   Outcome = "deleted"
	Drained   Outcome = "drained"
	Trashed   Outcome = "trashed" // set aside: kept, or a drain was interrupted that a later run ends
	Trimmed   Outcome = "trimmed"
	Expired   Outcome = "expired"  // has a TTL now
	Finished  Outcome = "finished" // what an earlier run left was drained to the end
	Gone      Outcome = "gone"
	Changed   Outcome = "changed" // no longer meets the evidence
	Protected Outcome = "protected"
	Failed    Outcome = "failed"
	WouldAct  Outcome = "would_act"
)

// Result is what became of one order, told from the server's replies.
type Result struct {
	Order    Order
	Outcome  Outcome
	Method   Method
	Elements int64 // removed
	Bytes    int64 // released, as the scan estimated; 0 if unknown
	Batches  int64
	Took     time.Duration
	Slowest  time.Duration // the longest call
	Due      time.Time     // of what is kept: when it may be removed
	Moving   bool          // failed, for its slot is on the way to another node: it may go later
	Reason   string        // in words, where the outcome needs it
}
