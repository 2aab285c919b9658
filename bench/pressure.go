package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"time"
)

// loadCommand makes this program be clients that GET and SET, in a process of
// its own: so their work is not in the way of the clock here.
const loadCommand = "load"

// The load's keys are in a database of their own, where nobody looks for keys
// to remove.
const (
	loadDB   = 1
	loadKeys = 10_000
	loadSize = 20

	heavyKey  = "load:heavy"
	heavySize = 64 << 10 // bytes whose bits a server counts in 10 to 20 µs
)

func loadKey(i int) string { return fmt.Sprintf("load:%05d", i) }

// load is how many clients send how many commands at a time: GET and SET, or
// BITCOUNT of a long string, of which one costs the server several times what
// it costs a client.
type load struct {
	Clients, Depth int
	Heavy          bool
}

// loadProcess keeps so many clients busy, each with depth commands at a time,
// until stdin ends; it says a line when each client has had an answer.
func loadProcess(ctx context.Context, addr string, l load, stdout io.Writer) error {
	if err := fillLoad(ctx, addr); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	ready, failed := make(chan struct{}, l.Clients), make(chan error, l.Clients+1)
	for range l.Clients {
		go func() { failed <- loadClient(addr, l, ready) }()
	}
	for range l.Clients {
		select {
		case <-ready:
		case err := <-failed:
			return fmt.Errorf("load: %w", err)
		}
	}
	fmt.Fprintln(stdout, "ready")
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

func fillLoad(ctx context.Context, addr string) error {
	rdb := client(addr)
	defer rdb.Close()
	pipe := rdb.Pipeline()
	pipe.Do(ctx, "SELECT", loadDB)
	pipe.SetRange(ctx, heavyKey, heavySize-1, "x")
	for i := range loadKeys {
		pipe.Set(ctx, loadKey(i), filler[:loadSize], 0)
	}
	return flush(ctx, pipe, 0)
}

// batch is some commands and how long their answers are.
type batch struct {
	commands []byte
	answer   int
}

// newBatch gets and sets random keys by turns, from either, or counts bits.
func newBatch(l load, from int) (b batch) {
	value := filler[:loadSize]
	for i := from; i < from+l.Depth; i++ {
		key := loadKey(rand.IntN(loadKeys))
		if l.Heavy {
			b.commands = fmt.Appendf(b.commands, "*2\r\n$8\r\nBITCOUNT\r\n$%d\r\n%s\r\n", len(heavyKey), heavyKey)
			b.answer += len(":4\r\n") // the bits of an x
		} else if i%2 == 0 {
			b.commands = fmt.Appendf(b.commands, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
			b.answer += len(fmt.Sprintf("$%d\r\n%s\r\n", loadSize, value))
		} else {
			b.commands = fmt.Appendf(b.commands, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, loadSize, value)
			b.answer += len("+OK\r\n")
		}
	}
	return b
}

// loadClient sends batches that it wrote before: it must not need more of a
// processor than the server does, which is to be the one that is busy.
func loadClient(addr string, l load, ready chan<- struct{}) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 64*l.Depth)
	send := func(b batch) error {
		if _, err := conn.Write(b.commands); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, buf[:b.answer]); err != nil {
			return err
		}
		if buf[0] == '-' {
			return fmt.Errorf("the server answered %q", buf[:b.answer])
		}
		return nil
	}
	choose := fmt.Appendf(nil, "*2\r\n$6\r\nSELECT\r\n$1\r\n%d\r\n", loadDB)
	if err := send(batch{choose, len("+OK\r\n")}); err != nil {
		return err
	}
	ready <- struct{}{}
	batches := make([]batch, 256)
	for i := range batches {
		batches[i] = newBatch(l, i)
	}
	for i := 0; ; i++ {
		if err := send(batches[i%len(batches)]); err != nil {
			return err
		}
	}
}

// pressure is what a load got done beside one contender.
type pressure struct {
	took                time.Duration // by the contender
	alone, beside       float64       // commands a second: before and after, and meanwhile
	aloneCPU, besideCPU float64       // the server's share of one processor
}

// kept is the share of its throughput that the load kept.
func (p pressure) kept() float64 { return p.beside / p.alone }

// underLoad runs a contender beside a load, and looks before and after, each
// for a while, at what that does alone.
func underLoad(ctx context.Context, srv *server, l load, while time.Duration, do func() error) (p pressure, err error) {
	end, err := startLoad(ctx, srv, l)
	if err != nil {
		return p, err
	}
	defer func() {
		if failed := end(); err == nil {
			err = failed
		}
	}()
	if err := sleep(ctx, 300*time.Millisecond); err != nil { // it comes up to speed
		return p, err
	}
	alone := func() error { return sleep(ctx, while) }
	var stretch [3]throughput
	for i, fn := range []func() error{alone, do, alone} {
		if stretch[i], err = srv.throughput(ctx, fn); err != nil {
			return p, err
		}
	}
	before, during, after := stretch[0], stretch[1], stretch[2]
	return pressure{
		took: during.took, beside: during.rate(), besideCPU: during.share(),
		alone: (before.rate() + after.rate()) / 2, aloneCPU: (before.share() + after.share()) / 2,
	}, nil
}

// startLoad starts the process and returns what ends it.
func startLoad(ctx context.Context, srv *server, l load) (end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	as, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, loadCommand, srv.addr, string(as))
	dieWithUs(cmd)
	cmd.Stderr, cmd.WaitDelay = os.Stderr, 5*time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end = func() error {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("load: %w", err)
		}
		return nil
	}
	if _, err := stdout.Read(make([]byte, 8)); err != nil {
		return nil, errors.Join(fmt.Errorf("start the load: %w", err), end())
	}
	return end, nil
}

// throughput is what a server did in a stretch of time.
type throughput struct {
	took, cpu time.Duration
	commands  int64 // of the load
}

func (t throughput) rate() float64  { return float64(t.commands) / t.took.Seconds() }
func (t throughput) share() float64 { return t.cpu.Seconds() / t.took.Seconds() }

func (s *server) throughput(ctx context.Context, fn func() error) (t throughput, err error) {
	commands := func() (int64, error) {
		stats, err := s.stats(ctx)
		return stats["get"].calls + stats["set"].calls + stats["bitcount"].calls, err
	}
	cpu, err := s.cpu(ctx)
	if err != nil {
		return t, err
	}
	before, err := commands()
	if err != nil {
		return t, err
	}
	start := time.Now()
	if err := fn(); err != nil {
		return t, err
	}
	after, err := commands()
	t.took, t.commands = time.Since(start), after-before
	if err != nil {
		return t, err
	}
	t.cpu, err = s.cpu(ctx)
	t.cpu -= cpu
	return t, err
}
