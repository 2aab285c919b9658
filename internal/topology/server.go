package topology

import (
	"strconv"
	"strings"
)

// The roles a server may have. A replica is called by the name that INFO
// gives it on every version.
const (
	RoleMaster = "master"
	RoleSlave  = "slave"
)

// Server is what a node says about itself. A field it did not tell is empty.
type Server struct {
	Name    string // "redis" or "valkey"; another server's own word for itself
	Version string // "7.0.15"; on Valkey its own version, not the compatible one
	RunID   string // changes with every start of the process
	NodeID  string // within a cluster
	// Allocator is mem_allocator, such as "jemalloc-5.3.0".
	Allocator string
	Role      string // RoleMaster, RoleSlave or unknown
	Cluster   bool
	Policy    string // maxmemory_policy

	// compatible is the redis_version that a fork claims beside its own.
	compatible string
}

// valkeyCompatible is the redis_version every Valkey claims: it was forked
// there.
const valkeyCompatible = "7.2.4"

// String returns "redis 7.0.15".
func (s Server) String() string {
	switch {
	case s.Name == "" && s.Version == "":
		return "unknown server"
	case s.Name == "":
		return s.Version
	case s.Version == "":
		return s.Name
	}
	return s.Name + " " + s.Version
}

// AtLeast reports whether the server has what that version of Redis brought.
// Valkey counts as the Redis it claims to be compatible with. False where the
// version is unknown, so ask for what is safe to have, not for what is safe
// to lack.
func (s Server) AtLeast(major, minor, patch int) bool {
	return compareVersion(s.redisVersion(), major, minor, patch)
}

func (s Server) redisVersion() string {
	switch {
	case s.compatible != "":
		return s.compatible
	case s.Name == "valkey":
		return valkeyCompatible
	case s.Name == "redis":
		return s.Version
	}
	return "" // the numbers of other servers do not compare
}

func compareVersion(version string, want ...int) bool {
	if version == "" {
		return false
	}
	parts := strings.SplitN(version, ".", 3)
	for i, w := range want {
		have := 0
		if i < len(parts) {
			n, err := strconv.Atoi(leadingDigits(parts[i]))
			if err != nil {
				return false
			}
			have = n
		}
		if have != w {
			return have > w
		}
	}
	return true
}

// leadingDigits cuts "0-rc1" to "0".
func leadingDigits(s string) string {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return s[:i]
		}
	}
	return s
}
