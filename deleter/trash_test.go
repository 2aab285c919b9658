package deleter

import (
	"strings"
	"testing"
)

// slotOf is a cluster's hash slot of a name: CRC16 (XModem) of what stands
// between the first brace and the next closing one, or of the whole.
func slotOf(name string) int {
	if _, tag, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(tag, "}"); ok && tag != "" {
			name = tag
		}
	}
	crc := uint16(0)
	for i := range len(name) {
		crc ^= uint16(name[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

var namer = NewNamer(slotOf)

func TestEverySlotHasATag(t *testing.T) {
	if got := slotOf("123456789"); got != 0x31C3 {
		t.Fatalf("the test's own slot is wrong: %#x", got)
	}
	for slot := range slots {
		tag := namer.Tag(slot)
		if len(tag) > 4 || slotOf("keyjanitor:trash:{"+tag+"}:1:a{b}c") != slot {
			t.Errorf("slot %d has tag %q", slot, tag)
		}
	}
}

var hostile = []string{
	"", "a", "a}b", "{}x", "{a}b", "}{", "{", "{{a}}", "a:b:c", ":", "\x00", "\r\n", "\xff\xfe", "*?[a]\\",
	"keyjanitor:trash:{0}:1:d:0:-1:-:0123456789abcdef:a", strings.Repeat("k", 1000),
}

func TestTrashNamesRoundTrip(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range hostile {
		for _, job := range []string{"-", "old-messages.v2"} {
			name := namer.name(job, key)
			got, ours := namer.Parse(name)
			if !ours || got.Original != key || got.Job != job || got.State != Draining || got.TTL != NoTTL || got.Due != 0 {
				t.Errorf("%q became %q, read as %+v, %t", key, name, got, ours)
			}
			if slotOf(name) != slotOf(key) {
				t.Errorf("%q is in slot %d, %q in %d", name, slotOf(name), key, slotOf(key))
			}
			if again := namer.name(job, key); seen[name] || again == name {
				t.Errorf("%q was made twice", name)
			}
			seen[name] = true
		}
	}
	for _, key := range hostile {
		name := namer.name("-", key)
		got, ours := namer.Parse(keepForGood(name))
		if !ours || got.State != Kept || got.Original != key {
			t.Errorf("%q is kept as %+v, %t", key, got, ours)
		}
	}
	kept := Trash{State: Kept, Due: 1_800_000_000_000, TTL: 60_000, Job: "nightly", Nonce: "0123456789abcdef", Original: "a}b"}
	if got, ours := namer.Parse(namer.format(kept)); !ours || got != kept {
		t.Errorf("%+v came back as %+v, %t", kept, got, ours)
	}
}

// Only what we could have written is ours: anything else is somebody's data.
func TestForgedNamesAreRefused(t *testing.T) {
	tag := namer.Tag(slotOf("mi:1"))
	good := "keyjanitor:trash:{" + tag + "}:1:d:0:-1:job:0123456789abcdef:mi:1"
	if _, ours := namer.Parse(good); !ours {
		t.Fatalf("%q is not ours", good)
	}
	change := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for what, name := range map[string]string{
		"empty":            "",
		"prefix only":      trashPrefix,
		"other prefix":     change("keyjanitor:", "keyjanitors:"),
		"prefix in front":  "x" + good,
		"another's tag":    change("{"+tag+"}", "{"+namer.Tag(slotOf("mi:2"))+"}"),
		"longer tag":       change("{"+tag+"}", "{0"+tag+"}"),
		"no tag":           change("{"+tag+"}", "{}"),
		"no brace":         change("}:", ":"),
		"another original": change("mi:1", "mi:2"),
		"version 0":        change(":1:d:", ":0:d:"),
		"version 2":        change(":1:d:", ":2:d:"),
		"version 01":       change(":1:d:", ":01:d:"),
		"no version":       change(":1:d:", ":d:"),
		"other state":      change(":d:", ":x:"),
		"upper state":      change(":d:", ":D:"),
		"no state":         change(":d:", "::"),
		"due 00":           change(":d:0:", ":d:00:"),
		"due -0":           change(":d:0:", ":d:-0:"),
		"due +0":           change(":d:0:", ":d:+0:"),
		"due -1":           change(":d:0:", ":d:-1:"),
		"due hex":          change(":d:0:", ":d:0x0:"),
		"due too large":    change(":d:0:", ":d:99999999999999999999:"),
		"ttl -2":           change(":-1:", ":-2:"),
		"ttl -01":          change(":-1:", ":-01:"),
		"no ttl":           change(":-1:", "::"),
		"no job":           change(":job:", "::"),
		"missing field":    change(":job:", ":"),
		"job with a colon": change(":job:", ":jo:b:"),
		"short nonce":      change("0123456789abcdef", "0123456789abcde"),
		"long nonce":       change("0123456789abcdef", "0123456789abcdef00"),
		"upper nonce":      change("0123456789abcdef", "0123456789ABCDEF"),
		"no hex":           change("0123456789abcdef", "0123456789abcdeg"),
		"no original":      strings.TrimSuffix(good, ":mi:1"),
	} {
		if got, ours := namer.Parse(name); ours {
			t.Errorf("%s: %q was read as %+v", what, name, got)
		}
	}
}

// Whatever is read as ours is exactly what would be written.
func FuzzParse(f *testing.F) {
	for _, key := range hostile {
		f.Add(namer.name("-", key))
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, ours := namer.Parse(name); ours && (namer.format(got) != name || slotOf(name) != slotOf(got.Original)) {
			t.Errorf("%q was read as %+v", name, got)
		}
	})
}
