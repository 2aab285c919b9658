package main

import (
	"fmt"
	"strconv"
	"time"
)

// What is to be reached.
const (
	addedPing  = time.Millisecond // to the p99.9 of an idle server
	ofDelsMax  = 50               // times as long is the longest PING beside DEL
	busyShare  = 0.8              // of the act at full pace
	ofLoop     = 1.5              // times the plain loop's elements a second
	costAtMost = 1.15             // times the cost of an element in a tenth of the hash
)

const removalText = "Times are of the whole process, but for the plain loop's start, and until the server has freed the memory; elements/s of keyjanitor " +
	"without UNLINK are of the act (`took_ms`), the loop's of its own clock; " +
	"of both the table tells in which share of it the server ran their commands (`INFO commandstats`). Time, processor and PING are of one turn, what the load keeps of another. " +
	"The plain loop is HSCAN (SSCAN, ZSCAN) COUNT 100 with HDEL (SREM, ZREM) of each page; of a list LLEN and LTRIM of 100. " +
	"The load is %d clients that GET and SET; what it keeps is beside its throughput with nothing else going on, just before and after. " +
	"DEL, the loop and keyjanitor without UNLINK have a server where UNLINK is renamed away.\n"

// tellRemoval writes a table for each key, and the goals.
func (b *bench) tellRemoval(contests []*contest, runs int) {
	b.printf("## Removing one big key\n\nMedians of %d runs. "+removalText+"%s\n", runs, removalLoad.Clients, probeText)
	for _, c := range contests {
		b.printf("### A %s of %s\n\n%s\n", c.kind, grouped(int64(c.n)), c.table())
		g := newTable("goal", "run by run", "verdict")
		c.goals(g)
		b.printf("%s\n", g)
	}
	small, large := contests[0], contests[1]
	g := newTable("goal, keyjanitor at full pace", fmt.Sprintf("%s beside %s", grouped(int64(large.n)), grouped(int64(small.n))), "verdict")
	more := func(what string, of func(w *remover, n int) []float64) {
		s, l := median(of(small.way(wayFull), small.n)), median(of(large.way(wayFull), large.n))
		g.add("an element of the larger hash costs no more than 15% more "+what,
			fmt.Sprintf("%.2f µs beside %.2f µs, %.2f times", l, s, l/s), verdict(l <= costAtMost*s))
	}
	more("time of the act", func(w *remover, n int) []float64 { return each(w.act(), n) })
	more("of the server's processor", func(w *remover, n int) []float64 { return each(w.cpu, n) })
	b.printf("### What the size of a hash costs\n\n%s\n", g)
}

// each is what one of n elements took in each run, in microseconds.
func each(took []time.Duration, n int) []float64 {
	out := make([]float64, len(took))
	for i, d := range took {
		out[i] = float64(d) / float64(time.Microsecond) / float64(n)
	}
	return out
}

func (c *contest) table() *table {
	t := newTable("way", "took", "elements/s", "server CPU per element", "of that in its commands",
		"PING median", "p99", "p99.9", "max", "the load keeps", "took beside it")
	t.add(append(append([]string{c.idle.name, "", "", "", ""}, c.idle.pings()...), "100%", "")...)
	for _, w := range c.ways {
		kept, took := make([]float64, len(w.load)), make([]time.Duration, len(w.load))
		for i, p := range w.load {
			kept[i], took[i] = p.kept(), p.took
		}
		cpu := strconv.FormatFloat(median(each(w.cpu, c.n)), 'f', 2, 64) + " µs"
		cells := []string{w.name, spread(w.times, seconds), perSecond(median(rates(int64(c.n), w.act()))), cpu, ""}
		if len(w.busy) > 0 {
			cells[4] = percent(median(w.busy))
		}
		cells = append(cells, w.felt.pings()...)
		t.add(append(cells, spread(kept, percent), seconds(median(took)))...)
	}
	return t
}

func (c *contest) goals(t *table) {
	paced, full, del := c.way(wayPaced), c.way(wayFull), c.way(wayDel)
	var added []time.Duration
	var longer []float64
	for i := range paced.felt.felt {
		added = append(added, paced.felt.felt[i].p999-c.idle.felt[i].p999)
		longer = append(longer, del.felt.felt[i].most.Seconds()/paced.felt.felt[i].most.Seconds())
	}
	t.add("default pace: p99.9 within "+millis(addedPing)+" of the idle server's", spread(added, millis), verdict(median(added) <= addedPing))
	largest := "default pace: the longest PING at most a fiftieth of DEL's"
	switch felt := fmt.Sprintf("%s beside %s", millis(paced.felt.most()), millis(del.felt.most())); {
	case c.lazy:
		t.add(largest, felt+"; this server's DEL frees in the background by its own default", "skipped")
	case del.felt.most() < ofDelsMax*target:
		t.add(largest, felt+"; a fiftieth is less than one step may take", "skipped")
	default:
		t.add(largest, felt+", a "+spread(longer, ordinal)+" of it", verdict(median(longer) >= ofDelsMax))
	}
	t.add("full pace: the server runs our commands in 80% of the time of the act", spread(full.busy, percent), verdict(median(full.busy) >= busyShare))
	ratio := ratios(full.act(), c.way(wayLoop).act())
	t.add("full pace: 1.5 times the plain loop's elements/s", spread(ratio, times), verdict(median(ratio) >= ofLoop))
}

func percent(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + "%" }

func ordinal(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + "th" }
