package jobs

import (
	"testing"

	"github.com/keyjanitor/keyjanitor/internal/topology"
)

func TestWaitsInWords(t *testing.T) {
	a, b, c := &topology.Shard{ID: "aa/0", Addr: "10.0.0.1:6379"}, &topology.Shard{ID: "bb/0", Addr: "10.0.0.2:6379"}, &topology.Shard{ID: "cc/0", Addr: "10.0.0.3:6379"}
	var p Progress
	words := func(want string) {
		t.Helper()
		if got := WaitsInWords(p.Waits(), p.Shards.Load()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	p.add(a)
	words("")
	p.hold(a, []string{"BGSAVE is in progress", "paused by an operator"})
	words("BGSAVE is in progress; paused by an operator")
	p.add(b)
	p.add(c)
	words("on 1 of 3 shards: 10.0.0.1:6379: BGSAVE is in progress; paused by an operator")
	p.hold(b, []string{"1 of 1 replicas are lost"})
	p.hold(c, []string{"BGSAVE is in progress"})
	since := p.Waits()[2].Since
	p.hold(a, []string{"BGSAVE is in progress"})
	words("on 3 of 3 shards: 10.0.0.1:6379: BGSAVE is in progress, 10.0.0.2:6379: 1 of 1 replicas are lost, and 1 more")
	p.hold(a, nil)
	p.drop(a, 0)
	p.hold(c, []string{"an AOF rewrite is in progress"})
	words("on 2 of 2 shards: 10.0.0.2:6379: 1 of 1 replicas are lost, 10.0.0.3:6379: an AOF rewrite is in progress")
	if w := p.Waits()[1]; !w.Since.Equal(since) {
		t.Errorf("waits since %v, want %v: it never went on", w.Since, since)
	}
}
