package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// How often progress is shown: on a terminal often enough to see it move,
// elsewhere seldom enough not to fill a log.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

// show tells of a run's progress on stderr until the function it returns is
// called.
func (p process) show(c *cli.Context, g *jobs.Progress) (end func()) {
	if c.Bool("quiet") {
		return func() {}
	}
	every, tell, finish := lineEvery, func() { fmt.Fprintln(p.stderr, progressLine(g)) }, func() {}
	if f, ok := p.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		every, tell, finish = bar(p.stderr, g)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				finish()
				return
			case <-tick.C:
				tell()
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

func progressLine(g *jobs.Progress) string {
	line := humanize.Comma(g.KeysScanned.Load()) + " keys scanned"
	if total := g.KeysTotal.Load(); total > 0 {
		line = fmt.Sprintf("%s of about %s keys scanned", humanize.Comma(g.KeysScanned.Load()), humanize.Comma(total))
	}
	line += fmt.Sprintf(", %s matched", humanize.Comma(g.KeysMatched.Load()))
	if acted := g.KeysActed.Load(); acted > 0 {
		line += fmt.Sprintf(", %s done", humanize.Comma(acted))
	}
	if n := g.Elements.Load(); n > 0 {
		line += fmt.Sprintf(", %s elements removed", humanize.Comma(n))
	}
	if held := jobs.WaitsInWords(g.Waits(), g.Shards.Load()); held != "" {
		line += ", held: " + held
	}
	return line
}

// barLine is progressLine in so few words that it fits beside a bar on 80
// columns, whatever the numbers.
func barLine(g *jobs.Progress) string {
	short := func(n int64) string {
		if n < 100_000 {
			return humanize.Comma(n)
		}
		return strings.ReplaceAll(humanize.SIWithDigits(float64(n), 1, ""), " ", "")
	}
	line := short(g.KeysScanned.Load())
	if total := g.KeysTotal.Load(); total > 0 {
		line += "/" + short(total)
	}
	line += fmt.Sprintf(" keys, %s match", short(g.KeysMatched.Load()))
	if acted := g.KeysActed.Load(); acted > 0 {
		line += fmt.Sprintf(", %s done", short(acted))
	}
	if n := g.Elements.Load(); n > 0 {
		line += fmt.Sprintf(", -%s elements", short(n))
	}
	if held := jobs.WaitsInWords(g.Waits(), g.Shards.Load()); held != "" {
		line += ", held: " + held
	}
	return line
}

func bar(w io.Writer, g *jobs.Progress) (every time.Duration, tell, finish func()) {
	b := progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(10), progressbar.OptionThrottle(0),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "=", SaucerHead: ">", SaucerPadding: " ", BarStart: "[", BarEnd: "]"}))
	tell = func() {
		total := max(g.KeysTotal.Load(), g.KeysScanned.Load()+1)
		b.ChangeMax64(total)
		b.Describe(barLine(g))
		_ = b.Set64(g.KeysScanned.Load())
	}
	return barEvery, tell, func() { _ = b.Clear() }
}
