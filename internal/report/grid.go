package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/rivo/uniseg"
)

// column is one column of a grid.
type column struct {
	title string
	right bool // numbers
	name  bool // names of keys and prefixes
	cells []string
	// optional columns give way where the last one, the key, would get too
	// narrow beside them.
	optional bool
}

func (c column) width() int {
	w := uniseg.StringWidth(c.title)
	for _, cell := range c.cells {
		w = max(w, uniseg.StringWidth(cell))
	}
	return w
}

// gap separates columns.
const gap = "  "

// grid writes columns side by side, the last one without padding. After row i
// come the lines that below(i) returns; below may be nil.
func grid(w io.Writer, cols []column, below func(row int) []string) {
	widths := make([]int, len(cols))
	for i, c := range cols {
		widths[i] = c.width()
	}
	line := func(cell func(column) string) {
		var out strings.Builder
		for i, c := range cols {
			text := cell(c)
			pad := strings.Repeat(" ", max(0, widths[i]-uniseg.StringWidth(text)))
			switch {
			case c.right:
				text = pad + text
			case i < len(cols)-1:
				text += pad
			}
			if i > 0 {
				out.WriteString(gap)
			}
			out.WriteString(text)
		}
		fmt.Fprintln(w, strings.TrimRight(out.String(), " "))
	}
	line(func(c column) string { return c.title })
	for row := range cols[0].cells {
		line(func(c column) string { return c.cells[row] })
		if below != nil {
			for _, text := range below(row) {
				fmt.Fprintln(w, text)
			}
		}
	}
}
