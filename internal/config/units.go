package config

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time that a file writes with a unit: 90s, 15m, 14d.
type Duration time.Duration

// Size is a number of bytes that a file writes with a unit: 64MiB, 10KB.
type Size int64

// Percent is a share in percent, above 0 and at most 100: 20%.
type Percent float64

// Secret is text that shows itself to nobody: not in logs, errors or dumps.
type Secret string

type unit struct {
	name string
	size int64
}

// Largest first: String takes the first that fits, and a duration of several
// parts must name them in this order.
var durationUnits = []unit{
	{"d", int64(24 * time.Hour)},
	{"h", int64(time.Hour)},
	{"m", int64(time.Minute)},
	{"s", int64(time.Second)},
	{"ms", int64(time.Millisecond)},
	{"us", int64(time.Microsecond)},
	{"ns", 1},
}

var sizeUnits = []unit{
	{"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"KB", 1e3},
	{"B", 1},
}

// ParseDuration reads numbers with a unit each, the larger unit first: 90s,
// 1.5h, 1h30m, 14d. Units are ns, us (or µs), ms, s, m, h and d, which is 24
// hours. A bare 0 is the one number that needs no unit. Negative durations
// are refused.
func ParseDuration(text string) (Duration, error) {
	if text == "0" {
		return 0, nil
	}
	const example = "write a number with a unit, such as 90s, 15m or 14d"
	if text == "" {
		return 0, errors.New("empty duration; " + example)
	}
	if bareNumber(text) {
		return 0, fmt.Errorf("%s has no unit; write %s", shown(text), durationHint(text))
	}
	if text[0] == '-' {
		return 0, fmt.Errorf("%s is negative; write 0 or more, such as %s", shown(text), strings.TrimLeft(text, "-"))
	}
	sum := new(big.Rat)
	last := -1
	for rest := text; rest != ""; {
		number, name, after := cutNumber(rest)
		if number == "" || name == "" {
			return 0, fmt.Errorf("%s is not a duration; %s", shown(text), example)
		}
		if name == "µs" || name == "μs" { // micro sign, Greek letter
			name = "us"
		}
		at := slices.IndexFunc(durationUnits, func(u unit) bool { return u.name == name })
		if at < 0 {
			return 0, fmt.Errorf("%s has the unknown unit %s; the units are ms, s, m, h and d, without a space before them", shown(text), shown(name))
		}
		if at <= last {
			return 0, fmt.Errorf("%s has its units out of order; write each once and the larger first, such as 1h30m", shown(text))
		}
		last, rest = at, after
		sum.Add(sum, scale(number, durationUnits[at].size))
	}
	whole := new(big.Int).Quo(sum.Num(), sum.Denom()) // below a nanosecond: cut
	if !whole.IsInt64() {
		return 0, fmt.Errorf("%s is too long; the longest duration is 106751d", shown(text))
	}
	return Duration(whole.Int64()), nil
}

func durationHint(text string) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n > 0 && n%60 == 0 {
		return fmt.Sprintf("%ds or %dm", n, n/60)
	}
	text = strings.TrimLeft(text, "+-")
	return text + "ms, " + text + "s or " + text + "m"
}

// String is what ParseDuration reads back to the same value: 1h30m, 14d.
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	if d < 0 { // refused everywhere, yet a message must be able to show it
		return "-" + time.Duration(d).Abs().String()
	}
	var b strings.Builder
	rest := int64(d)
	for _, u := range durationUnits {
		if n := rest / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			rest %= u.size
		}
	}
	return b.String()
}

// ParseSize reads one number and one unit without a space: 64MiB, 1.5GB. KB,
// MB, GB and TB count in steps of 1000, KiB, MiB, GiB and TiB in steps of
// 1024, and B is a byte. A bare 0 is the one number that needs no unit.
// Negative sizes and parts of a byte are refused.
func ParseSize(text string) (Size, error) {
	const units = "the units are B, KB, MB, GB, TB (1000) and KiB, MiB, GiB, TiB (1024), without a space before them"
	if text == "0" {
		return 0, nil
	}
	if text == "" {
		return 0, errors.New("empty size; write a number with a unit, such as 64MiB")
	}
	if bareNumber(text) {
		return 0, fmt.Errorf("%s has no unit; write %s", shown(text), sizeHint(text))
	}
	if text[0] == '-' {
		return 0, fmt.Errorf("%s is negative; write 0 or more, such as %s", shown(text), strings.TrimLeft(text, "-"))
	}
	number, _, _ := cutNumber(text)
	name := text[len(number):]
	at := slices.IndexFunc(sizeUnits, func(u unit) bool { return u.name == name })
	if number == "" || at < 0 {
		for _, u := range sizeUnits { // 1G, 64mb
			if number != "" && name != "" && strings.HasPrefix(strings.ToUpper(u.name), strings.ToUpper(name)) {
				return 0, fmt.Errorf("%s is not a size; write %s%s, or another unit: %s", shown(text), number, u.name, units)
			}
		}
		return 0, fmt.Errorf("%s is not a size; %s", shown(text), units)
	}
	bytes := scale(number, sizeUnits[at].size)
	if !bytes.IsInt() {
		return 0, fmt.Errorf("%s is not a whole number of bytes; write a smaller unit", shown(text))
	}
	if !bytes.Num().IsInt64() {
		return 0, fmt.Errorf("%s is too large; the largest size is 8388607TiB", shown(text))
	}
	return Size(bytes.Num().Int64()), nil
}

func sizeHint(text string) string {
	text = strings.TrimLeft(text, "+-")
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n%1024 == 0 {
		return fmt.Sprintf("%dB or %s", n, Size(n))
	}
	return text + "B, " + text + "KiB or " + text + "MiB"
}

// String is what ParseSize reads back to the same value, in the largest unit
// that divides it: 64MiB, 10KB, 1234B.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.size == 0 {
			return strconv.FormatInt(int64(s)/u.size, 10) + u.name
		}
	}
	return "0B"
}

// ParsePercent reads a number with a percent sign: 20%, 0.5%. It must be
// above 0 and at most 100.
func ParsePercent(text string) (Percent, error) {
	if bareNumber(text) {
		digits := strings.TrimLeft(text, "+-")
		if p, err := strconv.ParseFloat(digits, 64); err == nil && p > 0 && p <= 1 { // a share of 1 may be meant
			return 0, fmt.Errorf("%s has no percent sign; write %s for that part of the whole, or %s%%", shown(text), Percent(math.Round(1e6*p)/1e4), digits)
		}
		return 0, fmt.Errorf("%s has no percent sign; write %s%%", shown(text), digits)
	}
	digits, sign := strings.CutSuffix(text, "%")
	number, name, rest := cutNumber(digits)
	if !sign || number == "" || name != "" || rest != "" {
		return 0, fmt.Errorf("%s is not a percentage; write a number with a percent sign, such as 20%%", shown(text))
	}
	p, err := strconv.ParseFloat(number, 64)
	if err != nil || p <= 0 || p > 100 {
		return 0, fmt.Errorf("%s is out of range; write more than 0%% and at most 100%%", shown(text))
	}
	return Percent(p), nil
}

// String is what ParsePercent reads back to the same value: 20%, 0.5%.
func (p Percent) String() string {
	return strconv.FormatFloat(float64(p), 'f', -1, 64) + "%"
}

// cutNumber splits "1.5h30m" into "1.5", "h" and "30m". The number is empty
// if the text does not begin with one, or with more than 30 digits.
func cutNumber(text string) (number, name, rest string) {
	isDigit := func(r rune) bool { return '0' <= r && r <= '9' }
	after := func(s string, in func(rune) bool) string {
		return strings.TrimLeftFunc(s, in)
	}
	rest = after(text, isDigit)
	if len(rest) == len(text) {
		return "", "", text
	}
	if strings.HasPrefix(rest, ".") {
		fraction := after(rest[1:], isDigit)
		if len(fraction) == len(rest)-1 {
			return "", "", text
		}
		rest = fraction
	}
	number = text[:len(text)-len(rest)]
	if len(number) > 30 {
		return "", "", text
	}
	end := after(rest, func(r rune) bool { return !isDigit(r) && r != '.' })
	return number, rest[:len(rest)-len(end)], end
}

// scale multiplies without rounding. The number comes from cutNumber.
func scale(number string, by int64) *big.Rat {
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return new(big.Rat)
	}
	return r.Mul(r, new(big.Rat).SetInt64(by))
}

// bareNumber says whether the text is a number without anything behind it.
func bareNumber(text string) bool {
	number, name, rest := cutNumber(strings.TrimLeft(text, "+-"))
	return number != "" && name == "" && rest == ""
}

// MarshalText writes what ParseDuration reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDuration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// MarshalText writes what ParseSize reads.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSize.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// MarshalText writes what ParsePercent reads.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePercent.
func (p *Percent) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePercent(string(text))
	return err
}
