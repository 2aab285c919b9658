// Package config turns a configuration file, or the flags of a one-off
// command, into a validated value. It promises to find every problem of a
// file in one go, each with its line, its column and what to write instead.
// It refuses to guess: unknown and duplicate keys, bare numbers where a unit
// is needed and unquoted globs are errors, never defaults.
package config

import "time"

// Config is one configuration file, with every default filled in.
type Config struct {
	Targets  map[string]Target
	Protect  []string // globs no selection may reach
	Pace     Pace
	HoldWhen Signals // a run waits while one is over its line
	StopWhen Signals // a run ends when one is over its line
	StateDir string  // where audit, trash journal and checkpoints live
	Jobs     []Job   // in the order of the file
}

// Mode says how a target's servers are found.
type Mode string

// The modes of a target.
const (
	ModeAuto       Mode = "auto" // ask the server whether it is a cluster
	ModeStandalone Mode = "standalone"
	ModeCluster    Mode = "cluster"
)

// Target is one deployment: what to dial and as whom.
type Target struct {
	Name      string
	Addresses []string // "host:port", or the path of a Unix socket
	Mode      Mode
	Username  string
	Password  Secret
	// DBs are the logical databases to work on; empty means every database
	// that has keys. A cluster has database 0 only.
	DBs []int
	TLS *TLS // nil: plain TCP
	// AddressMap replaces an address that the cluster announces by the one
	// to dial, for deployments behind NAT.
	AddressMap map[string]string
}

// TLS holds what a TLS connection needs beside the system's certificates.
type TLS struct {
	CAFile     string
	CertFile   string // client certificate; together with KeyFile
	KeyFile    string
	ServerName string // name to verify instead of the dialled host
}

// Select is the rule that a key must meet. Every field that is set must
// hold; within Match, Prefix and Types one of the entries is enough.
type Select struct {
	Match       []string `json:"match,omitempty"`        // globs as Redis' own SCAN MATCH reads them
	Prefix      []string `json:"prefix,omitempty"`       // literal beginnings
	Exclude     []string `json:"exclude,omitempty"`      // globs that take a key out again
	Types       []string `json:"types,omitempty"`        // string, list, set, zset, hash, stream, or a module type
	MinElements int64    `json:"min_elements,omitempty"` // 0: no condition
	MinBytes    Size     `json:"min_bytes,omitempty"`    // 0: no condition; as MEMORY USAGE estimates
	NoTTL       bool     `json:"no_ttl,omitempty"`
	TTLUnder    Duration `json:"ttl_under,omitempty"` // 0: no condition; needs a TTL
	TTLOver     Duration `json:"ttl_over,omitempty"`  // 0: no condition; needs a TTL
	IdleOver    Duration `json:"idle_over,omitempty"` // 0: no condition; not read or written to for longer
	// FreqUnder selects keys that are used less than this, by the logarithmic
	// counter of an LFU policy, 1 to 255; 0: no condition.
	FreqUnder int64 `json:"freq_under,omitempty"`
	// IdlePrimaryOnly judges idle time without asking the replicas.
	IdlePrimaryOnly bool `json:"idle_primary_only,omitempty"`
	AllKeys         bool `json:"all_keys,omitempty"` // the consent that acting without a name filter needs
}

// Limits end a run before it does more than was meant. Zero means no limit.
type Limits struct {
	MaxKeys    int64
	MaxBytes   Size
	MaxPercent float64 // of the shard's keys at its start; 0 to 100
	Time       Duration
}

// Pace bounds what a run takes from a server.
type Pace struct {
	TargetLatency Duration // server time one page or batch may take
	MaxShare      Percent  // share of the shard's main thread for acts
	ScanShare     Percent  // share of the shard's main thread for scan pages
	Budget                 // of the whole run
	PerShard      Budget   // of each shard
	Parallel      int      // shards at once
}

// Budget is what may be used in a second; 0 is no limit.
type Budget struct {
	CommandsPerSecond int64
	ElementsPerSecond int64 // removed
	BytesPerSecond    Size  // released, as far as is known
}

// Job is one definition: what to select, what to do with it, and when.
type Job struct {
	Name     string
	Target   string
	Schedule string // five cron fields or a descriptor; empty: only by hand
	Timezone string // IANA name; empty: UTC
	Select   Select
	Action   Action
	Limits   Limits
	Execute  bool // mode: execute; otherwise the job only reports
}

// DefaultPace is what applies where a file or the flags say nothing: one
// millisecond is what neighbours of a busy Redis already see as noise, a
// fifth of the main thread leaves the load its headroom, and a scan, which
// replicates nothing and frees nothing, may take half.
func DefaultPace() Pace {
	return Pace{
		TargetLatency: Duration(time.Millisecond),
		MaxShare:      20,
		ScanShare:     50,
		Parallel:      4,
	}
}

// DefaultStateDir is relative to the working directory.
const DefaultStateDir = "./keyjanitor-state"
