package topology

import (
	"context"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"
)

// stamped gives every command of a pipeline that was never sent the error that
// kept it from being sent. The library (v9.23) leaves them without one, and so
// with replies of 0, where a new connection is refused in the server's words:
// a password that was changed, BUSY.
type stamped struct{}

func (stamped) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (stamped) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, cmd) }
}

func (stamped) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err != nil && !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
			for _, c := range cmds {
				c.SetErr(err)
			}
		}
		return err
	}
}
