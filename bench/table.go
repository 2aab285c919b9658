package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table is one in Markdown.
type table struct{ rows [][]string }

func newTable(heads ...string) *table {
	rule := slices.Repeat([]string{"---"}, len(heads))
	return &table{rows: [][]string{heads, rule}}
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var b strings.Builder
	for _, row := range t.rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

// median of an even number is the lower of the two in the middle.
func median[T cmp.Ordered](of []T) T {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[(len(sorted)-1)/2]
}

// spread writes the median and, in brackets, the lowest and highest.
func spread[T cmp.Ordered](of []T, write func(T) string) string {
	return fmt.Sprintf("%s (%s–%s)", write(median(of)), write(slices.Min(of)), write(slices.Max(of)))
}

// rates are n things per second for each time.
func rates(n int64, times []time.Duration) []float64 {
	out := make([]float64, len(times))
	for i, t := range times {
		out[i] = float64(n) / t.Seconds()
	}
	return out
}

// ratios compares run by run: how many times as fast each turn of a was as
// the turn of b that came with it.
func ratios(a, b []time.Duration) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = b[i].Seconds() / a[i].Seconds()
	}
	return out
}

// raceTable is for contenders that do the same to n things.
func raceTable(things string) *table {
	return newTable("contender", "time", things+"/s", "server CPU per "+strings.TrimSuffix(things, "s"), "ratio, run by run", "of the fastest runs", "goal")
}

// race adds a contender. A goal of 0 is none; beside itself a rival has no
// ratio.
func (t *table) race(name string, n int64, own, rival *turns, want float64) {
	cells := []string{name, spread(own.times, seconds), spread(rates(n, own.times), perSecond)}
	if own.cpu == nil {
		cells = append(cells, "")
	} else {
		cells = append(cells, strconv.FormatFloat(float64(median(own.cpu).Microseconds())/float64(n), 'f', 2, 64)+" µs")
	}
	if own == rival {
		t.add(append(cells, "1", "1", "")...)
		return
	}
	ratio := ratios(own.times, rival.times)
	fastest := slices.Min(rival.times).Seconds() / slices.Min(own.times).Seconds()
	verdict := "none"
	if want > 0 {
		verdict = goal(want, median(ratio))
	}
	t.add(append(cells, spread(ratio, times), times(fastest), verdict)...)
}

func perSecond(v float64) string { return grouped(int64(v + .5)) }
func times(v float64) string     { return strconv.FormatFloat(v, 'f', 2, 64) }
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
}

func millis(d time.Duration) string {
	decimals := 2
	if d >= 100*time.Millisecond {
		decimals = 0
	}
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', decimals, 64) + " ms"
}

// grouped writes a number with commas.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// goal says whether a ratio reached what it should.
func goal(want, got float64) string {
	return fmt.Sprintf("≥ %g: %s", want, verdict(got >= want))
}

func verdict(reached bool) string {
	if reached {
		return "reached"
	}
	return "**missed**"
}

// stallTable shows what the probe felt; each cell is the median of the runs.
func stallTable(rows []stallRow) *table {
	t := newTable("while", "took", "PINGs a run", "median", "p99", "p99.9", "max (of each run)", "longest command")
	for _, r := range rows {
		of := func(pick func(latency) time.Duration) []time.Duration {
			out := make([]time.Duration, len(r.felt))
			for i, l := range r.felt {
				out[i] = pick(l)
			}
			return out
		}
		longest := slices.Max(of(func(l latency) time.Duration { return l.longest }))
		command := millis(longest)
		if longest < slowLine {
			command = "under " + millis(slowLine)
		}
		pings := make([]int, len(r.felt))
		for i, l := range r.felt {
			pings[i] = l.pings
		}
		felt := r.pings()
		t.add(r.name, seconds(median(r.took)), grouped(int64(median(pings))), felt[0], felt[1], felt[2],
			spread(of(func(l latency) time.Duration { return l.most }), millis), command)
	}
	return t
}

// stallRow is what was felt beside one contender, run by run.
type stallRow struct {
	name string
	took []time.Duration
	felt []latency
}

// mid is the median of the runs of what is picked of each.
func (r *stallRow) mid(pick func(latency) time.Duration) time.Duration {
	out := make([]time.Duration, len(r.felt))
	for i, l := range r.felt {
		out[i] = pick(l)
	}
	return median(out)
}

func (r *stallRow) most() time.Duration {
	return r.mid(func(l latency) time.Duration { return l.most })
}
func (r *stallRow) p999() time.Duration {
	return r.mid(func(l latency) time.Duration { return l.p999 })
}

// pings are the cells of a row: median, p99, p99.9 and max.
func (r *stallRow) pings() []string {
	if slices.ContainsFunc(r.felt, func(l latency) bool { return l.pings == 0 }) {
		return slices.Repeat([]string{"too short"}, 4)
	}
	return []string{
		millis(r.mid(func(l latency) time.Duration { return l.median })),
		millis(r.mid(func(l latency) time.Duration { return l.p99 })),
		millis(r.p999()), millis(r.most()),
	}
}
