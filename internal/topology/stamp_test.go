package topology

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A pipeline whose connection was refused in the server's words has carried
// out nothing.
func TestPipelineOfARefusedConnection(t *testing.T) {
	const refused = reply("BUSY Redis is busy running a script.")
	own := reply("WRONGTYPE Operation against a key")
	for name, tc := range map[string]struct {
		pipeline, first error
		want            [2]error
	}{
		"not sent":        {refused, nil, [2]error{refused, refused}},
		"one has its own": {own, own, [2]error{own, nil}},
		"all is well":     {nil, nil, [2]error{}},
	} {
		cmds := []redis.Cmder{redis.NewIntCmd(t.Context(), "llen", "a"), redis.NewIntCmd(t.Context(), "llen", "b")}
		err := stamped{}.ProcessPipelineHook(func(_ context.Context, cmds []redis.Cmder) error {
			if tc.first != nil {
				cmds[0].SetErr(tc.first)
			}
			return tc.pipeline
		})(t.Context(), cmds)
		if !errors.Is(err, tc.pipeline) || cmds[0].Err() != tc.want[0] || cmds[1].Err() != tc.want[1] {
			t.Errorf("%s: %v, %v, %v", name, err, cmds[0].Err(), cmds[1].Err())
		}
	}
}
