package topology

// Can says which commands a node lets us use. False is "no" unless the
// ability is listed in Shard.Unknown.
type Can struct {
	Info        bool `json:"info"`         // INFO server
	Scan        bool `json:"scan"`         // SCAN
	ScanType    bool `json:"scan_type"`    // SCAN … TYPE (6.0)
	MemoryUsage bool `json:"memory_usage"` // MEMORY USAGE (4.0)
	Encoding    bool `json:"encoding"`     // OBJECT ENCODING
	NoTouch     bool `json:"no_touch"`     // CLIENT NO-TOUCH (7.2); on in every connection of the shard
	NoValues    bool `json:"no_values"`    // HSCAN … NOVALUES (7.4, Valkey 8)
	// Script: EVAL is allowed and what a script writes reaches replicas as
	// effects, not as text to be run again. On 3.2 to 6.2 this may depend on
	// redis.replicate_commands(), so a script that writes begins with
	// "if redis.replicate_commands then redis.replicate_commands() end".
	Script bool `json:"script"`
	Watch  bool `json:"watch"`  // WATCH, MULTI and EXEC
	Unlink bool `json:"unlink"` // UNLINK (4.0)
	Rename bool `json:"rename"` // RENAMENX and PERSIST
}

// The names of the abilities, as in Shard.Why, Shard.Unknown and JSON.
const (
	abilityInfo        = "info"
	abilityScan        = "scan"
	abilityScanType    = "scan_type"
	abilityMemoryUsage = "memory_usage"
	abilityEncoding    = "encoding"
	abilityNoTouch     = "no_touch"
	abilityNoValues    = "no_values"
	abilityScript      = "script"
	abilityWatch       = "watch"
	abilityUnlink      = "unlink"
	abilityRename      = "rename"
)
