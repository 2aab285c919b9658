package deleter

import "fmt"

// Expire is the method of a key that is given a TTL.
const Expire Method = "expire"

// mayExpire says why a key must not be given a TTL: the server would free it
// in one blow, with every client waiting, or crash.
func (o *Order) mayExpire(can *Abilities) error {
	large := o.Elements > SmallElements || o.Bytes > SmallBytes || o.Elements == Unknown && o.Bytes == Unknown
	if err := o.blind(can); err != nil {
		return err
	}
	switch {
	case o.Type == "stream" && !can.StreamUnlink:
		return fmt.Errorf("a stream that expires can crash this version of the server")
	case o.Type == "string" && o.stall() <= o.allowed(), !large:
		return nil
	case o.Type == "string":
		return fmt.Errorf("a string of %d MiB would stall the server for about %s when it expires", o.Bytes>>20, o.stall())
	case !can.LazyExpire:
		return fmt.Errorf("it is large, and when it expires the server frees it in its main thread (or does not tell, by CONFIG GET lazyfree-lazy-expire, that it doesn't); delete it, or set lazyfree-lazy-expire to yes")
	}
	return nil
}
