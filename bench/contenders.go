package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// stepLimit bounds one turn of one contender; the longest, to drain a hash of
// ten million fields at the default pace beside a load, takes some minutes.
const stepLimit = 20 * time.Minute

// summary is what the bench reads of keyjanitor's JSON.
type summary struct {
	Complete    bool  `json:"complete"`
	KeysScanned int64 `json:"keys_scanned"`
	KeysMatched int64 `json:"keys_matched"`
	Removed     int64 `json:"elements_removed"`
	Outcomes    map[string]int64
	Findings    []finding `json:"findings"`
}

type finding struct {
	Key     string  `json:"key"`
	Type    string  `json:"type"`
	Outcome string  `json:"outcome"`
	Batches int64   `json:"batches"`
	Took    float64 `json:"took_ms"`
	Slowest float64 `json:"slowest_ms"`
}

// keyjanitor runs the binary and returns its report and the time from its
// start to its end.
func (b *bench) keyjanitor(ctx context.Context, srv *server, args ...string) (summary, time.Duration, error) {
	var s summary
	args = append(args, "--url", "redis://"+srv.addr, "--format", "json", "--quiet")
	text, took, err := command(ctx, b.janitor, args...)
	if err != nil {
		return s, 0, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, 0, fmt.Errorf("read keyjanitor's report: %w", err)
	}
	if !s.Complete {
		return s, 0, errors.New("keyjanitor did not finish")
	}
	return s, took, nil
}

// stateDir is a new folder for one run that acts.
func (b *bench) stateDir() string {
	b.stateDirs++
	return filepath.Join(b.dir, "state-"+strconv.Itoa(b.stateDirs))
}

// command runs a program to its end.
func command(ctx context.Context, name string, args ...string) (stdout []byte, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	dieWithUs(cmd)
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err = cmd.Run()
	took = time.Since(start)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, 0, fmt.Errorf("%s %v: %w\n%s", filepath.Base(name), args, err, errs.String())
	}
	return out.Bytes(), took, nil
}

func split(addr string) (host, port string) {
	for i := len(addr) - 1; i >= 0; i-- {
		if addr[i] == ':' {
			return addr[:i], addr[i+1:]
		}
	}
	return addr, ""
}

// xargs removes every key of a pattern with redis-cli alone.
func xargs(ctx context.Context, srv *server, pattern string) (time.Duration, error) {
	host, port := split(srv.addr)
	cli := "redis-cli -h " + host + " -p " + port
	_, took, err := command(ctx, "sh", "-c", cli+" --scan --pattern '"+pattern+"' | xargs -n 1000 "+cli+" unlink")
	return took, err
}
