package integration

import (
	"fmt"
	"testing"
	"time"
)

// TestBudgets: what a second may hold is kept, by each shard and by all of a
// run together. Only that it takes long enough is certain on any machine.
func TestBudgets(t *testing.T) {
	t.Parallel()
	eachServerThat(t, serverBinary.hasCluster, "has no cluster", func(t *testing.T, b serverBinary) {
		d := startCluster(t, b)
		const fields = 4000
		for name, c := range map[string]struct {
			pace  string
			least time.Duration // less the quarter of a second's worth that may go at once
		}{
			"each shard":  {"per_shard: {elements_per_second: 2000}", 1700 * time.Millisecond},
			"the run":     {"elements_per_second: 4000", 2700 * time.Millisecond},
			"in commands": {"per_shard: {commands_per_second: 10}", 1000 * time.Millisecond},
		} {
			t.Run(name, func(t *testing.T) {
				for _, m := range d.masters {
					i := 0
					for d.owner(fmt.Sprint("big:", i)) != m {
						i++
					}
					load(t, d, 0, "hash", fmt.Sprint("big:", i), fields)
				}
				o := newOperator(t)
				o.file(t, "c.yaml", fmt.Sprintf("targets: {here: {addresses: [%q]}}\npace: {%s}\n", d.masters[0].addr, c.pace))
				start := time.Now()
				s := o.run(t, "clean", "--config", "c.yaml", "--target", "here", "--prefix", "big:", "--method", "drain",
					"--execute", "--format", "json").exit(0).summary()
				s.outcomes(map[string]int64{"drained": 3})
				if took := time.Since(start); took < c.least {
					s.from.error("it took %v, at least %v are due", took, c.least)
				}
			})
		}
	})
}
