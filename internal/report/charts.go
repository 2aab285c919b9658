package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/go-analyze/charts"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// The colours of the charts on white paper. The page's style sheet replaces
// them, each by its number, where the reader's screen is dark.
var (
	inkColor   = charts.ColorRGB(31, 39, 51)
	lineColor  = charts.ColorRGB(200, 207, 215)
	bytesColor = charts.ColorRGB(43, 108, 176)
	keysColor  = charts.ColorRGB(138, 148, 163)
)

// tint is how a treemap shows that keys are of some size on average.
type tint struct {
	below      int64 // bytes a key
	says       string
	fill, text charts.Color
}

var tints = []tint{
	{10 << 10, "under 10 KiB", charts.ColorRGB(219, 232, 244), inkColor},
	{1 << 20, "to 1 MiB", charts.ColorRGB(169, 200, 228), inkColor},
	{100 << 20, "to 100 MiB", charts.ColorRGB(103, 155, 203), charts.ColorRGB(10, 15, 22)},
	{math.MaxInt64, "100 MiB and over", charts.ColorRGB(47, 110, 168), charts.ColorRGB(254, 254, 254)},
}

func tintOf(g jobs.Group) tint {
	average := min(g.Bytes/max(1, g.Keys), math.MaxInt64-1)
	return tints[slices.IndexFunc(tints, func(t tint) bool { return average < t.below })]
}

// Sizes in the charts' own units, which are pixels where a chart is as wide as
// it was drawn. Text is measured in points: 9 are 12 pixels.
const (
	chartWidth = 400
	textPoints = 9
	fewBars    = 12
	maxCells   = 24
)

var chartTheme = charts.MakeTheme(charts.ThemeOption{
	AxisStrokeColor: lineColor, TextColor: inkColor, BackgroundColor: charts.ColorTransparent,
	SeriesColors: []charts.Color{bytesColor, keysColor},
})

// drawn is a chart as SVG. The library escapes what is text; that no text has
// anything in it but what prints, and is no longer than it may be, is up to
// the caller.
func drawn(p *charts.Painter, err error) (template.HTML, error) {
	if err != nil {
		return "", fmt.Errorf("draw a chart: %w", err)
	}
	svg, err := p.Bytes()
	return template.HTML(svg), err
}

// bar is one category of a bar chart: its share of the bytes and of the keys.
type bar struct {
	label       string
	bytes, keys int64
}

// bars draws each category's share of all bytes and of all keys, one below
// the other. What is 0 throughout has no bars.
func bars(rows []bar) (template.HTML, error) {
	rows = slices.Clone(rows)
	slices.Reverse(rows) // the library begins at the bottom
	var allBytes, allKeys int64
	var labels []string
	for _, r := range rows {
		allBytes, allKeys = allBytes+r.bytes, allKeys+r.keys
		labels = append(labels, r.label)
	}
	var series charts.BarSeriesList
	most := 0.0
	add := func(color charts.Color, all int64, value func(bar) int64, words func(int64) string) {
		if all <= 0 {
			return
		}
		s := charts.BarSeries{}
		s.Label.Show = charts.Ptr(true)
		s.Label.FontStyle = charts.FontStyle{FontSize: textPoints - .5, FontColor: inkColor}
		s.Label.ValueFormatter = func(share float64) string { return words(int64(math.Round(share * float64(all)))) }
		for _, r := range rows {
			share := float64(max(0, value(r))) / float64(all)
			s.Values = append(s.Values, share)
			most = max(most, share)
		}
		series = append(series, s)
	}
	add(bytesColor, allBytes, func(b bar) int64 { return b.bytes }, size)
	add(keysColor, allKeys, func(b bar) int64 { return b.keys }, humanize.Comma)
	if len(series) == 0 {
		return "", nil
	}
	theme := chartTheme
	if allBytes <= 0 {
		theme = theme.WithSeriesColors([]charts.Color{keysColor})
	}
	p := charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: len(rows)*(8+15*len(series)) + 8, Theme: theme,
	})
	o := charts.NewBarChartOptionWithSeries(series)
	o.Theme, o.Horizontal, o.Padding, o.BarSize = theme, true, charts.NewBoxEqual(3), 0.8
	o.CategoryAxis.Labels = labels
	o.CategoryAxis.LabelFontStyle = charts.FontStyle{FontSize: textPoints, FontColor: inkColor}
	// A third of the width is left for the numbers at the bars' ends.
	o.ValueAxis = []charts.ValueAxisOption{{Show: charts.Ptr(false), Min: charts.Ptr(0.0), Max: charts.Ptr(most * 1.35)}}
	return drawn(p, p.BarChart(o))
}

func bandBars(groups []jobs.Group) []bar {
	rows := make([]bar, len(groups))
	for i, g := range groups {
		rows[i] = bar{cut(printable(g.Band), 20), g.Bytes, g.Keys}
	}
	return rows
}

// shardBars is the shards with most bytes, else most keys.
func shardBars(shards []jobs.ShardSummary) []bar {
	rows := make([]bar, len(shards))
	databases := slices.ContainsFunc(shards, func(s jobs.ShardSummary) bool { return s.DB != 0 })
	for i, s := range shards {
		rows[i] = bar{host(cmp.Or(s.Addr, s.ID), nodeWidth), s.BytesMatched, s.KeysMatched}
		if databases {
			rows[i].label += fmt.Sprintf(" db %d", s.DB)
		}
	}
	slices.SortStableFunc(rows, func(a, b bar) int { return cmp.Or(-cmp.Compare(a.bytes, b.bytes), -cmp.Compare(a.keys, b.keys)) })
	return rows[:min(len(rows), fewBars)]
}

// treemap draws the prefixes as areas of the size of their bytes.
func treemap(groups []jobs.Group, width, height int) (template.HTML, error) {
	cells := cellsOf(groups)
	if len(cells) == 0 {
		return "", nil
	}
	values := make([]float64, len(cells))
	for i, c := range cells {
		values[i] = float64(c.Bytes)
	}
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: width, Height: height, Theme: chartTheme})
	for i, r := range squarify(values, rect{0, 0, float64(width), float64(height)}) {
		// Rounded at their edges, not in their sizes, cells meet without gaps;
		// two pixels of paper between them are their border.
		x1, y1, x2, y2 := int(r.x+.5), int(r.y+.5), int(r.x+r.w+.5)-2, int(r.y+r.h+.5)-2
		if x2 <= x1 || y2 <= y1 {
			continue
		}
		c := cells[i]
		t := tintOf(c)
		p.FilledRect(x1, y1, x2, y2, t.fill, charts.ColorTransparent, 0)
		style := charts.FontStyle{FontSize: textPoints, FontColor: t.text}
		// A column takes 7.5 pixels at most, in the browsers' usual fonts.
		room := (x2 - x1 - 10) * 2 / 15
		name := printable(c.Type) // of all that have no cell of their own
		if name == "" {
			name = quoted(c.Prefix, max(room, 5))
		}
		for line, text := range []string{name, size(c.Bytes), plural(c.Keys, "key")} {
			if y1+17+16*line+4 > y2 || cut(text, room) != text {
				break
			}
			p.Text(text, x1+6, y1+17+16*line, 0, style)
		}
	}
	return drawn(p, nil)
}

// cellsOf is the prefixes that get a cell of their own, and one of all others,
// whose Type says what it is. A cell has at least half a percent of the whole.
func cellsOf(groups []jobs.Group) []jobs.Group {
	var total int64
	for _, g := range groups {
		total += max(0, g.Bytes)
	}
	var cells []jobs.Group
	var rest jobs.Group
	others := 0
	for _, g := range slices.SortedStableFunc(slices.Values(groups), func(a, b jobs.Group) int { return -cmp.Compare(a.Bytes, b.Bytes) }) {
		switch {
		case g.Bytes <= 0:
		case len(cells) < maxCells && g.Bytes >= total/200:
			cells = append(cells, g)
		default:
			rest.Bytes, rest.Keys, others = rest.Bytes+g.Bytes, rest.Keys+g.Keys, others+1
		}
	}
	if others > 0 {
		rest.Type = fmt.Sprintf("%d more", others)
		cells = append(cells, rest)
	}
	return cells
}

type rect struct{ x, y, w, h float64 }

// squarify divides r into areas in proportion to values, all above 0, in rows
// along the shorter side, each as long as that makes its cells more like
// squares (Bruls, Huizing, van Wijk: Squarified Treemaps).
func squarify(values []float64, r rect) []rect {
	total := 0.0
	for _, v := range values {
		total += v
	}
	scale := r.w * r.h / total
	// worst is the largest ratio of sides in a row of these values.
	worst := func(row []float64, side float64) float64 {
		sum := 0.0
		for _, v := range row {
			sum += v * scale
		}
		least, most := slices.Min(row)*scale, slices.Max(row)*scale
		return max(side*side*most/(sum*sum), sum*sum/(side*side*least))
	}
	cells := make([]rect, 0, len(values))
	for len(values) > 0 {
		side, n := min(r.w, r.h), 1
		for n < len(values) && worst(values[:n+1], side) <= worst(values[:n], side) {
			n++
		}
		sum := 0.0
		for _, v := range values[:n] {
			sum += v * scale
		}
		thick, at := sum/side, 0.0
		for _, v := range values[:n] {
			long := v * scale / thick
			if r.w >= r.h {
				cells = append(cells, rect{r.x, r.y + at, thick, long})
			} else {
				cells = append(cells, rect{r.x + at, r.y, long, thick})
			}
			at += long
		}
		if r.w >= r.h {
			r.x, r.w = r.x+thick, r.w-thick
		} else {
			r.y, r.h = r.y+thick, r.h-thick
		}
		values = values[n:]
	}
	return cells
}
