// Package report renders what a run found and did: a table for a person at a
// terminal, a page for one at a browser, JSON, JSON lines and CSV for programs.
//
// It promises that every name comes back as the same bytes. JSON and CSV
// carry key_base64 where key alone could not do that; where it is present, it
// is the name and key is only for the eye. Names are data and never altered:
// CSV puts no guard before a name that a spreadsheet would take for a
// formula, so import such a file with its columns as text. No name, error or
// server's word can send a control sequence to a terminal from a table or
// from JSON; CSV is meant for files.
//
// A value that is not known is absent (JSON), an empty field (CSV) or a dash
// (table, page), never 0.
//
// A page is one file: it refers to nothing outside itself, has no script, and
// no text of others can become part of its markup.
package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// The formats.
const (
	Table = "table"
	JSON  = "json"
	JSONL = "jsonl"
	CSV   = "csv"
	HTML  = "html"
)

// Streams says whether a format takes findings one by one, through a Stream
// (jsonl, csv), or one whole summary, through Write (table, json, html). Its
// error says why a format cannot be had, before anything is run for it.
func Streams(format string) (bool, error) {
	switch format {
	case Table, JSON, HTML:
		return false, nil
	case JSONL, CSV:
		return true, nil
	}
	return false, fmt.Errorf("format %q is not known: use table, json, jsonl, csv or html", format)
}

// Write renders one run as a table, as one JSON object or as a page.
func Write(w io.Writer, format string, s *jobs.Summary) error {
	if err := whole(format); err != nil {
		return err
	}
	switch format {
	case JSON:
		return writeJSON(w, withLists(*s), "  ")
	case HTML:
		return writePage(w, []*jobs.Summary{s})
	}
	return writeTables(w, []*jobs.Summary{s})
}

// WriteRuns renders several runs: tables one after another, one JSON
// object {"runs": […]}, or one page.
func WriteRuns(w io.Writer, format string, runs []*jobs.Summary) error {
	if err := whole(format); err != nil {
		return err
	}
	switch format {
	case HTML:
		return writePage(w, runs)
	case JSON:
		out := struct {
			Runs []jobs.Summary `json:"runs"`
		}{Runs: make([]jobs.Summary, 0, len(runs))}
		for _, s := range runs {
			out.Runs = append(out.Runs, withLists(*s))
		}
		return writeJSON(w, out, "  ")
	}
	return writeTables(w, runs)
}

// whole refuses the formats that Write and WriteRuns do not render.
func whole(format string) error {
	streams, err := Streams(format)
	if err == nil && streams {
		err = fmt.Errorf("format %s takes findings one by one, not a whole summary", format)
	}
	return err
}

func writeTables(w io.Writer, runs []*jobs.Summary) error {
	out := bufio.NewWriter(w)
	for i, s := range runs {
		if i > 0 {
			fmt.Fprintf(out, "\n%s\n\n", strings.Repeat("─", lineWidth))
		}
		table(out, s)
	}
	return out.Flush()
}
