package deleter

// guesses remembers of what type keys were, by the shape of their names: a
// right guess saves the server a TYPE, a wrong one costs it an error. Names
// are of one shape if they differ in digits alone. It is of fixed size, and a
// shape that another one displaces is learned again.
type guesses [1024]struct {
	shape uint32
	kind  byte // as the script numbers types; 0: none
}

// unknownKind stands for a type that nobody guesses.
const unknownKind = '0'

// shapeOf is FNV-1a of the bytes of a name that are no digits.
func shapeOf(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		if c := name[i]; c < '0' || c > '9' {
			h = (h ^ uint32(c)) * 16777619
		}
	}
	return h
}

func (g *guesses) of(name string) byte {
	shape := shapeOf(name)
	if slot := &g[shape%uint32(len(g))]; slot.shape == shape && slot.kind != 0 {
		return unknownKind + slot.kind
	}
	return unknownKind
}

func (g *guesses) learn(name, kind string) {
	for i, known := range sweptTypes {
		if known == kind && i > 0 {
			shape := shapeOf(name)
			slot := &g[shape%uint32(len(g))]
			slot.shape, slot.kind = shape, byte(i)
		}
	}
}
