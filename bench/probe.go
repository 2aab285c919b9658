package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// probe is a neighbour: a client that sends PING every millisecond, whether
// or not the last one was answered, and notes how long each answer took. A
// stall of 500 ms is felt by 500 of them.
type probe struct {
	conn       net.Conn
	stop, done chan struct{}
	sent       chan time.Time
	took       []time.Duration
	err        error
}

const ping = "*1\r\n$4\r\nPING\r\n"

// startProbe returns when the first PING was answered.
func startProbe(addr string) (*probe, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("start the probe: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(stepLimit))
	r := bufio.NewReader(conn)
	if _, err = conn.Write([]byte(ping)); err == nil {
		_, err = r.ReadString('\n')
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start the probe: %w", err)
	}
	p := &probe{
		conn: conn, stop: make(chan struct{}), done: make(chan struct{}),
		// Room for a stall of a minute; after that no more are sent.
		sent: make(chan time.Time, 60_000),
	}
	var both sync.WaitGroup
	both.Go(p.send)
	both.Go(func() { p.receive(r) })
	go func() { both.Wait(); close(p.done) }()
	return p, nil
}

func (p *probe) send() {
	defer close(p.sent)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		if _, err := p.conn.Write([]byte(ping)); err != nil {
			return // receive has the same error
		}
		select {
		case p.sent <- now:
		case <-p.stop:
			return
		}
	}
}

func (p *probe) receive(r *bufio.Reader) {
	for at := range p.sent {
		if p.err != nil {
			continue
		}
		if _, err := r.ReadString('\n'); err != nil {
			p.err = fmt.Errorf("probe: %w", err)
			continue
		}
		p.took = append(p.took, time.Since(at))
	}
}

// end waits for the answers that are due and returns what was felt.
func (p *probe) end() (latency, error) {
	close(p.stop)
	<-p.done
	p.conn.Close()
	if p.err != nil || len(p.took) == 0 {
		return latency{}, p.err
	}
	slices.Sort(p.took)
	at := func(share float64) time.Duration {
		return p.took[min(len(p.took)-1, int(float64(len(p.took))*share))]
	}
	return latency{pings: len(p.took), median: at(.5), p99: at(.99), p999: at(.999), most: at(1)}, nil
}

// latency is what the probe felt in one run.
type latency struct {
	pings                   int
	median, p99, p999, most time.Duration
	longest                 time.Duration // command, by the server's slow log
}

// felt runs one contender with the probe beside it.
func felt(ctx context.Context, srv *server, fn func() error) (latency, error) {
	if err := srv.resetSlowLog(ctx); err != nil {
		return latency{}, err
	}
	p, err := startProbe(srv.addr)
	if err != nil {
		return latency{}, err
	}
	failed := fn()
	l, err := p.end()
	if failed != nil {
		return l, failed
	}
	if err == nil {
		l.longest, err = srv.longest(ctx)
	}
	return l, err
}
