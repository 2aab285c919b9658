package deleter

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// keyError is a fault of one key that is no reply: others may be removed.
type keyError string

func (e keyError) Error() string { return string(e) }

// errTaken should not happen: a trash name has 64 random bits.
const errTaken = keyError("the trash name is taken")

// Fatal reports whether an error speaks against going on with the shard: we
// were told to stop, the connection is lost, or the server is in a state in
// which it refuses every command like ours.
func Fatal(err error) bool {
	var (
		reply redis.Error
		key   keyError
	)
	switch {
	case err == nil, errors.As(err, &key), errors.Is(err, redis.TxFailedErr):
		return false
	case !errors.As(err, &reply):
		return true
	}
	for _, state := range []string{
		"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "NOAUTH", "WRONGPASS", "MISCONF", "NOREPLICAS",
		"max number of clients",
	} {
		// Before 7.0 the words of a command in a script come wrapped.
		if redis.HasErrorPrefix(err, state) || strings.Contains(err.Error(), "-"+state+" ") {
			return true
		}
	}
	return false
}

// inDoubt reports whether a command may have run although it has no reply.
func inDoubt(err error) bool {
	var (
		reply redis.Error
		key   keyError
	)
	return err != nil && !errors.As(err, &key) && !errors.As(err, &reply)
}

// moving reports whether a slot is on its way to another node: what needs two
// names in it is refused, and what is gone may be there already.
func moving(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK ")
}

// reason is an error in the words of a report.
func reason(err error) string {
	switch {
	case errors.Is(err, redis.TxFailedErr):
		return "it was written to each time between the look and the act"
	case errors.Is(err, context.Canceled):
		return "the run was interrupted"
	case moving(err), redis.HasErrorPrefix(err, "MOVED "):
		return "slot moving: " + err.Error()
	}
	if text := err.Error(); strings.Contains(text, "NOPERM") || strings.Contains(text, "can't run this command") {
		return text + "; keyjanitor check prints the rule that the user needs"
	}
	return err.Error()
}
