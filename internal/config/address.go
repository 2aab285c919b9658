package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// addressProblem says what is wrong with "host:port" or the path of a Unix
// socket, and "" if nothing is. It never repeats the address, which may be a
// URL with a password in it.
func addressProblem(address string) string {
	const shape = `; write "HOST:PORT"`
	switch {
	case address == "":
		return "empty address" + shape
	case address[0] == '/':
		if strings.ContainsRune(address, 0) {
			return "the path of a socket holds a NUL byte" + shape
		}
		return ""
	case strings.Contains(address, "://"):
		return "an address is not a URL" + shape + " (TLS, user, password and database have keys of their own)"
	case strings.ContainsAny(address, " \t\r\n,;"):
		return `several addresses in one text; write a list: ["HOST1:PORT", "HOST2:PORT"]`
	case strings.ContainsAny(address, "@/?#%\"'\\"):
		return "an address holds a host and a port only" + shape
	}
	if a, err := netip.ParseAddr(address); err == nil && a.Is6() {
		return `an IPv6 address needs brackets and a port; write "[ADDRESS]:PORT"`
	}
	host, port, err := net.SplitHostPort(address)
	switch {
	case err != nil && strings.Count(address, ":") > 1 && address[0] != '[':
		return `an IPv6 address needs brackets; write "[ADDRESS]:PORT"`
	case err != nil:
		return "no port" + `; write "HOST:PORT", such as "localhost:6379"`
	case host == "":
		return "no host before the port" + shape
	}
	if address[0] == '[' {
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return `no IPv6 address between the brackets; write "[ADDRESS]:PORT"`
		}
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || port[0] == '+' {
		return "the port is no number from 1 to 65535" + shape
	}
	return ""
}
