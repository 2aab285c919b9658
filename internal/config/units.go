package config

import "time"

// Duration is a length of time that a file writes with a unit: 90s, 15m, 14d.
type Duration time.Duration

// Size is a number of bytes that a file writes with a unit: 64MiB, 10KB.
type Size int64

// Percent is a share in percent, above 0 and at most 100: 20%.
type Percent float64

// Secret is text that shows itself to nobody: not in logs, errors or dumps.
type Secret string
