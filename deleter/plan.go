package deleter

import (
	"fmt"
	"time"
)

// A key this small is removed by one guarded command in the main thread: a
// thousand elements take a third of a millisecond, a mebibyte 50 µs.
const (
	SmallElements = 1000
	SmallBytes    = 1 << 20
)

// Abilities is what the shard's server can do, as it was found by asking.
type Abilities struct {
	Unlink      bool
	Script      bool // EVAL whose effects, not its text, reach replicas and AOF
	MemoryUsage bool
	NoValues    bool // HSCAN NOVALUES
	// Jemalloc: with libc's malloc an UNLINK of a large key was measured to
	// stall other clients for over a second (4.0, 5.0).
	Jemalloc bool
	// StreamUnlink: UNLINK of a stream may crash 5.0, 6.0 before 6.0.14 and
	// 6.2 before 6.2.4 (redis#8932).
	StreamUnlink bool
	// WatchSeesPersist: before 6.0.7 WATCH does not notice PERSIST.
	WatchSeesPersist bool
	// NoRename: RENAMENX or PERSIST is refused, so nothing can be set aside.
	NoRename bool
	// NoTouch: what this connection asks leaves idle times as they are (7.2).
	NoTouch bool
	// TypeTouches: TYPE and PTTL reset the idle time of a key (before 3.2).
	TypeTouches bool
	// LazyExpire: keys that expire are freed in the background.
	LazyExpire bool
	// Cluster: the keys of one MULTI or one WATCH must share a slot.
	Cluster bool
}

// plan picks the method for a key, or says why there is none.
func plan(o *Order, can *Abilities) (Method, error) {
	if o.Evidence.FreqUnder > 0 && !can.Script {
		return "", fmt.Errorf("how often a key is used can only be judged together with the act by a script; grant the user +eval +evalsha")
	}
	switch {
	case o.Trim != nil:
		return Cut, o.Trim.fits(o, can)
	case !o.ExpireAt.IsZero():
		return Expire, o.mayExpire(can)
	}
	m, err := choose(o, can)
	if m == Drain && can.NoRename && o.InPlace {
		return InPlace, o.mayShrink(can)
	}
	if (m == Drain || m == Keep) && can.NoRename {
		return "", fmt.Errorf("it has to be set aside, and the server refuses RENAMENX or PERSIST; grant the user +renamenx +persist, or consent to a drain under its own name with --in-place")
	}
	return m, err
}

// stallPerMiB is what a large string takes to be freed in the main thread,
// by UNLINK as by DEL: 50 to 120 µs were measured.
const stallPerMiB = 100 * time.Microsecond

// allowStall is how long that may take unless an order says otherwise.
const allowStall = 30 * time.Millisecond

func (o *Order) stall() time.Duration { return time.Duration(max(0, o.Bytes)>>20) * stallPerMiB }

func (o *Order) allowed() time.Duration {
	if o.AllowStall > 0 {
		return o.AllowStall
	}
	return allowStall
}

// slight reports whether a key whose bytes nobody tells is small all the
// same: its encoding allows nothing large, or it has hardly any elements.
func (o *Order) slight() bool {
	switch o.Encoding {
	case "ziplist", "listpack", "intset":
		return true
	}
	return o.Elements <= 64
}

// inline reports whether UNLINK may free a key in the main thread although it
// is large: the server counts elements (of a list its nodes) and goes to the
// background only above 64 of them.
func (o *Order) inline() bool {
	few := int64(64)
	if o.Type == "list" { // a node packs up to 8 KiB of small entries
		few = 64 * 128
	}
	return o.Bytes > stepBytes && o.Elements <= few
}

// mayShrink says why a key can't be drained under its own name.
func (o *Order) mayShrink(can *Abilities) error {
	switch {
	case o.Type == "stream" || lengths[o.Type] == "":
		return fmt.Errorf("a %s can't be drained in place; grant the user +renamenx +persist", o.Type)
	case o.Evidence.onUse():
		return fmt.Errorf("idle time can't be judged together with a drain in place; grant the user +renamenx +persist")
	case (o.Evidence.TTLUnder > 0 || o.Evidence.TTLOver > 0) && !can.WatchSeesPersist:
		return fmt.Errorf("before 6.0.7 a TTL can't be judged together with a drain in place; grant the user +renamenx +persist")
	}
	return nil
}

// blind says why evidence can't be judged together with what can't be taken
// back. Between two round trips PERSIST could make a key with a TTL one
// without, and no WATCH would tell before 6.0.7; a rename can be taken back, a
// removal cannot. Nor does a WATCH tell of reads, which end an idle time.
func (o *Order) blind(can *Abilities) error {
	switch {
	case can.Script:
		return nil
	case o.Evidence.IdleOver > 0:
		return fmt.Errorf("idle time can only be judged together with the act by a script; grant the user +eval +evalsha")
	case (o.Evidence.TTLUnder > 0 || o.Evidence.TTLOver > 0) && !can.WatchSeesPersist:
		return fmt.Errorf("before 6.0.7 a TTL can only be judged together with the act by a script; grant the user +eval +evalsha")
	}
	return nil
}

func choose(o *Order, can *Abilities) (Method, error) {
	if o.Keep > 0 {
		if o.Type == "" || o.TTL < NoTTL {
			return "", fmt.Errorf("its type and TTL could not be learned, so it could not be given back as it was")
		}
		return Keep, nil
	}
	small := o.Elements != Unknown && o.Elements <= SmallElements && o.Bytes <= SmallBytes && (o.Bytes != Unknown || o.slight())
	if o.Method == Unlink && !can.Unlink {
		return "", fmt.Errorf("method unlink, but the server has no UNLINK for us; take auto or drain")
	}
	blind := o.blind(can) != nil
	if blind && o.Type == "" { // judged, and opened, in the trash
		return Drain, nil
	}
	switch o.Type {
	case "string", "list", "set", "zset", "hash":
		switch {
		case blind:
			return Drain, nil
		case o.Type == "string" && o.stall() > o.allowed():
			return "", fmt.Errorf("freeing a string of %d MiB would stall the server for about %s; allow it with --allow-stall", o.Bytes>>20, o.stall())
		case o.Type == "string" || small:
			if can.Unlink {
				return Unlink, nil
			}
			return Del, nil
		case o.Method == Unlink || o.Method == Auto && can.Unlink && can.Jemalloc && !o.inline():
			return Unlink, nil
		}
		return Drain, nil
	case "stream":
		async := can.Unlink && can.StreamUnlink && (can.Jemalloc || o.Method == Unlink) && o.Elements > asyncStream
		switch {
		case o.Method == Unlink && !can.StreamUnlink:
			return "", fmt.Errorf("method unlink, but UNLINK of a stream can crash this version of the server; take auto or drain")
		case o.Method == Unlink, o.Method == Auto && async && !blind:
			return Unlink, nil
		}
		return Drain, nil
	case "":
		return "", fmt.Errorf("its type could not be learned")
	}
	if o.Method == Unlink {
		return Unlink, nil
	}
	return "", fmt.Errorf("type %q belongs to a module; only method unlink removes it, by explicit choice", o.Type)
}
