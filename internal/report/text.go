package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// quoted returns a key's name for a person: as it is where every rune of it
// prints and none is a space, a quote or a backslash, else in Go's quoted
// form, so that what stands unquoted is exactly the name. A name wider than
// width loses its middle, never half an escape.
func quoted(name string, width int) string {
	plain := name != "" && utf8.ValidString(name) && strings.IndexFunc(name, needsQuotes) < 0
	mark := `"`
	if plain {
		mark = ""
	}
	// A name may have 512 MB; its two ends are all that can be seen. A rune
	// takes four bytes at most and, nearly always, a column at least.
	head, tail := name, ""
	if most := 4 * width; len(name) > 2*most {
		head, tail = name[:most], name[len(name)-most:]
		if plain { // a rune may have been cut in two
			head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
		}
	}
	units := append(escaped(head, plain), escaped(tail, plain)...)
	text := strings.Join(units, "")
	if room := width - 2*len(mark); tail != "" || uniseg.StringWidth(text) > room {
		text = cutMiddle(units, room)
	}
	return mark + text + mark
}

func needsQuotes(r rune) bool {
	return unprintable(r) || r == ' ' || r == '"' || r == '\\'
}

// escaped splits s into what must not be cut apart: runes and escapes.
func escaped(s string, plain bool) []string {
	units := make([]string, 0, len(s))
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		unit := s[:n]
		if !plain {
			unit = strconv.Quote(unit)
			unit = unit[1 : len(unit)-1]
		}
		units = append(units, unit)
		s = s[n:]
	}
	return units
}

// cut takes the middle out of printable text that is wider than width.
func cut(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	return cutMiddle(escaped(s, true), width)
}

// cutMiddle keeps as many units of both ends as fit into width beside an
// ellipsis.
func cutMiddle(units []string, width int) string {
	room := width - 1
	head, tail := 0, len(units)
	for used := 0; head < tail; {
		unit := units[head]
		fromTail := head > len(units)-tail
		if fromTail {
			unit = units[tail-1]
		}
		if used += uniseg.StringWidth(unit); used > room {
			break
		}
		if fromTail {
			tail--
		} else {
			head++
		}
	}
	return strings.Join(units[:head], "") + "…" + strings.Join(units[tail:], "")
}

// printable returns other people's text (a server's error, a host's name)
// with whatever does not print as an escape.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if unit := s[:n]; (r == utf8.RuneError && n == 1) || unprintable(r) {
			out.WriteString(escaped(unit, false)[0])
		} else {
			out.WriteString(unit)
		}
		s = s[n:]
	}
	return out.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// duration writes d for reading: two units at most, 3d4h, 12m5s, 340ms.
func duration(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(big time.Duration, bigUnit string, small time.Duration, smallUnit string) string {
		if rest := d % big / small; rest > 0 {
			return fmt.Sprintf("%d%s%d%s", d/big, bigUnit, rest, smallUnit)
		}
		return fmt.Sprintf("%d%s", d/big, bigUnit)
	}
	switch {
	case d >= day:
		return two(day, "d", time.Hour, "h")
	case d >= time.Hour:
		return two(time.Hour, "h", time.Minute, "m")
	case d >= time.Minute:
		return two(time.Minute, "m", time.Second, "s")
	case d >= time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d >= time.Millisecond:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	}
	return d.String()
}

// wrap makes text printable and breaks it into lines of at most width
// columns, besides its own line breaks. A word wider than that has a line of
// its own.
func wrap(text string, width int) []string {
	var lines []string
	for part := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.FieldsSeq(printable(part)) {
			switch {
			case line == "":
				line = word
			case uniseg.StringWidth(line)+1+uniseg.StringWidth(word) > width:
				lines = append(lines, line)
				line = word
			default:
				line += " " + word
			}
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
