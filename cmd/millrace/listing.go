package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// listing prints a list: rows in columns under a head, or a JSON object a line.
type listing struct {
	out    *bufio.Writer
	table  *tabwriter.Writer // aligns all rows when it is flushed
	asJSON bool
	head   []string
	widths []int // of the columns, to show each row immediately; nil to align them at the end
	rows   int
}

// newListing returns a list with this head, which may be empty.
func newListing(out io.Writer, asJSON bool, head ...string) *listing {
	buffered := bufio.NewWriter(out)
	return &listing{out: buffered, table: tabwriter.NewWriter(buffered, 0, 0, 2, ' ', 0), asJSON: asJSON, head: head}
}

// row prints a row: as the object, or as the cells, which strangers may have written.
func (l *listing) row(object any, cells ...string) error {
	l.rows++
	if l.asJSON {
		return errors.Join(printJSON(l.out, object), l.show())
	}
	if l.rows == 1 && len(l.head) > 0 {
		if err := l.print(l.head); err != nil {
			return err
		}
	}
	for i := range cells {
		cells[i] = onOneLine(cells[i])
	}
	return l.print(cells)
}

// show writes the row to the output, unless rows are aligned at the end.
func (l *listing) show() error {
	if l.widths == nil {
		return nil
	}
	return l.out.Flush()
}

func (l *listing) print(cells []string) error {
	if l.widths == nil {
		_, err := fmt.Fprintln(l.table, strings.Join(cells, "\t"))
		return err
	}
	var line strings.Builder
	for i, cell := range cells {
		fmt.Fprintf(&line, "%-*s  ", l.widths[i], cell)
	}
	_, err := fmt.Fprintln(l.out, strings.TrimRight(line.String(), " "))
	return errors.Join(err, l.show())
}

// flush prints the rest. It must be called last.
func (l *listing) flush() error { return errors.Join(l.table.Flush(), l.out.Flush()) }

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
