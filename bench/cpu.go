package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

const (
	busyWindow = 5 * time.Second // of the load alone, before and after
	// A scan beside the load takes several times as long as alone, so it has
	// fewer keys.
	busyKeys = 5 // -keys by this

	maxShare   = 0.2 // the default
	shareSlack = 0.05
)

// busyLoad keeps a server busy all the time. With GET and SET the clients
// would need more than a processor for that.
var busyLoad = load{Clients: 50, Depth: 1, Heavy: true}

// shares measures what a load that keeps the server busy loses to a removal
// and to scans.
func (b *bench) shares(ctx context.Context, srv *server) error {
	// The small keys have a server of their own: where the hash is removed,
	// nothing may be left.
	return b.with(ctx, srv.bin, func(small *server) error {
		n := b.keys / busyKeys
		if err := loadMix(ctx, small.rdb, "", n); err != nil {
			return err
		}
		return b.shareBeside(ctx, srv, small, int64(n))
	})
}

func (b *bench) shareBeside(ctx context.Context, srv, small *server, keys int64) error {
	type contender struct {
		name string
		srv  *server
		n    int64
		load func() error
		do   func() error
		had  []pressure
	}
	nothing := func() error { return nil }
	contenders := []*contender{{
		name: "keyjanitor delete without UNLINK, default pace", srv: srv, n: int64(b.fields),
		load: func() error { return loadBig(ctx, srv.rdb, "hash", bigHash, b.fields) },
		do:   func() error { _, _, err := b.drain(ctx, srv); return err },
	}, {
		name: "keyjanitor scan by bytes, default pace", srv: small, n: keys, load: nothing,
		do: func() error {
			s, _, err := b.keyjanitor(ctx, small, "scan", "--db", "0", "--min-bytes", "1MiB")
			if err == nil && s.KeysScanned < keys {
				err = fmt.Errorf("it saw %d of %d keys", s.KeysScanned, keys)
			}
			return err
		},
	}}
	if _, err := exec.LookPath("redis-cli"); err == nil {
		contenders = append(contenders, &contender{
			name: cliMemkeys, srv: small, n: keys, load: nothing,
			do: func() error {
				host, port := split(small.addr)
				_, _, err := command(ctx, "redis-cli", "-h", host, "-p", port, "--memkeys")
				return err
			},
		})
	}
	for i := range b.runs {
		for _, c := range contenders {
			b.say("beside a busy server, run %d of %d: %s", i+1, b.runs, c.name)
			if err := c.load(); err != nil {
				return err
			}
			p, err := underLoad(ctx, c.srv, busyLoad, busyWindow, c.do)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.had = append(c.had, p)
		}
	}
	b.printf("## What a busy server's load loses\n\n%d clients without a pause BITCOUNT a string of %d KiB of another database; "+
		"alone is before and after each contender. The hash has %s fields, the keys scanned are %s: %s. "+
		"Where the server's processor is less than 100%% busy beside a contender, the clients were short of one, not it.\n\n",
		busyLoad.Clients, heavySize>>10, grouped(int64(b.fields)), grouped(keys), mix)
	t := newTable("beside", "load alone, commands/s", "beside it", "lost", "server CPU alone", "beside it", "took", "fields or keys/s")
	of := func(c *contender, pick func(pressure) float64) []float64 {
		out := make([]float64, len(c.had))
		for i, p := range c.had {
			out[i] = pick(p)
		}
		return out
	}
	lost := func(p pressure) float64 { return 1 - p.kept() }
	for _, c := range contenders {
		took := make([]time.Duration, len(c.had))
		for i, p := range c.had {
			took[i] = p.took
		}
		t.add(c.name,
			perSecond(median(of(c, func(p pressure) float64 { return p.alone }))),
			perSecond(median(of(c, func(p pressure) float64 { return p.beside }))),
			spread(of(c, lost), percent),
			percent(median(of(c, func(p pressure) float64 { return p.aloneCPU }))),
			percent(median(of(c, func(p pressure) float64 { return p.besideCPU }))),
			spread(took, seconds), perSecond(median(rates(c.n, took))))
	}
	most := median(of(contenders[0], lost))
	b.printf("%s\nGoal, the removal takes no more than its max_share of %s and 5 points: %s, %s.\n\n",
		t, percent(maxShare), verdict(most <= maxShare+shareSlack), percent(most))
	return nil
}
