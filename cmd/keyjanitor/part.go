package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// completionIndex is how Kubernetes tells a pod of an Indexed Job which one
// it is, from 0.
const completionIndex = "JOB_COMPLETION_INDEX"

// partFlags say which servers a run works on: replicas, or a share of the
// shards among several workers.
func partFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "read-from", Category: connecting, Value: "primary", Usage: "scan `primary` or replica; acts always go to the primary"},
		&cli.StringFlag{Name: "shard", Category: connecting, Usage: "work on share `I/N` of the shards, for I from 1 to N"},
		&cli.IntFlag{Name: "shards", Category: connecting, Usage: "share them out among `N` workers; which one this is says " + completionIndex},
	}
}

// resumeFlag goes on where an earlier run was.
func resumeFlag() cli.Flag {
	return &cli.BoolFlag{Name: "resume", Category: connecting, Usage: "go on where an earlier run of the same scan was, if it left its place in --state-dir"}
}

// scriptFlag scans by script.
func scriptFlag() cli.Flag {
	return &cli.BoolFlag{Name: "script", Category: pacing, Usage: "with --min-bytes: fetch and measure each page by one script, in less of the server's time and without a break"}
}

// part reads them.
func (r *reader) part(getenv func(string) string) jobs.Part {
	text, n := r.c.String("shard"), r.c.Int("shards")
	switch {
	case text != "" && r.c.IsSet("shards"):
		r.fail("shards", fmt.Errorf("--shard %s says that too; delete one of them", text))
	case text != "":
		i, of, ok := strings.Cut(text, "/")
		index, err1 := strconv.Atoi(i)
		count, err2 := strconv.Atoi(of)
		if !ok || err1 != nil || err2 != nil || count < 1 || index < 0 || index > count {
			r.fail("shard", fmt.Errorf("%q is no share; write I/N, such as 1/3, 2/3 and 3/3 for three workers", text))
			break
		}
		return jobs.Part{Index: (index - 1 + count) % count, Of: count} // 0 is the last
	case r.c.IsSet("shards"):
		index, err := strconv.Atoi(getenv(completionIndex))
		switch {
		case n < 1:
			r.fail("shards", fmt.Errorf("%d is out of range; write the number of workers", n))
		case err != nil || index < 0 || index >= n:
			r.fail("shards", fmt.Errorf("%s is %q and should say which of the %d workers this is, from 0; or write --shard I/N", completionIndex, getenv(completionIndex), n))
		default:
			return jobs.Part{Index: index, Of: n}
		}
	}
	return jobs.Part{}
}

// readReplica reads --read-from.
func (r *reader) readReplica() bool {
	switch from := r.c.String("read-from"); from {
	case "", "primary":
		return false
	case "replica":
		return true
	default:
		r.fail("read-from", fmt.Errorf("%q is no server; write primary or replica", from))
		return false
	}
}
