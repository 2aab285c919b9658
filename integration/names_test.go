package integration

import "strings"

// hostileNames are names that Redis stores and that careless code loses:
// they break shells, lines, JSON, RESP, globs, hash tags and flag parsers.
func hostileNames() []string {
	var all strings.Builder
	for i := range 256 {
		all.WriteByte(byte(i))
	}
	return []string{
		"",
		" ",
		"with space", " both ends ",
		"tab\there",
		"line\nbreak", "\n", "ends in cr lf\r\n", "cr\r\nlf", "cr\ronly",
		"nul\x00byte", "\x00",
		"\xff\xfe not utf-8", "half \xc3", "overlong \xc0\xaf", "surrogate \xed\xa0\x80",
		all.String(),
		"{}x", "a}b", "{tag}x", "{", "}", "{{a}}b", "a{b", "}{", "{}{b}",
		"star*", "?", "[a-z]", `back\slash`, `cache[ab]:*?\`, "[", "h[^a]llo",
		strings.Repeat("long", 256),
		"*3\r\n$3\r\nDEL\r\n$1\r\nx\r\n", "+OK\r\n",
		"--execute", "-", "--", "-h", "@file",
		"ünïcode 🔑", "\ufeffbom", "\u2028separator", "\ufffd",
		`quote"'` + "`", `{"key":"x","db":0}`, "a,b;c", "#comment", "null", "0",
		"\x1b[31mred\x1b[0m", "<script>&amp;",
		"%s%d%n", "$(reboot)",
	}
}
