package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/millrace/millrace/poison"
)

// escapeControls escapes control characters of untrusted text for a terminal, except line feeds
// and tabs.
func escapeControls(text string) string {
	if !strings.ContainsFunc(text, isControl) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !isControl(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// onOneLine escapes untrusted text and puts it on one line.
func onOneLine(text string) string {
	return strings.Join(strings.Fields(escapeControls(text)), " ")
}

// isControl reports whether a character affects a terminal other than by being shown.
func isControl(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d': // the last two shape the letters and signs beside them
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

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

// progressBar shows on a terminal how far a redrive or a purge is. It is used by one goroutine at
// a time.
type progressBar struct {
	out   io.Writer // nil without a terminal
	done  string    // what is done: "redriven" or "purged"
	limit int       // messages to be worked on; 0 for all
	last  time.Time // when it was drawn
}

const (
	barWidth    = 30
	barInterval = 100 * time.Millisecond
)

func (t *task) newProgressBar(limit int, done string) *progressBar {
	p := &progressBar{limit: limit, done: done}
	if t.console.watched {
		p.out = t.console.err
	}
	return p
}

// show draws the bar anew, if the last is not too new.
func (p *progressBar) show(r poison.Summary) {
	if p.out == nil || time.Since(p.last) < barInterval {
		return
	}
	p.last = time.Now()
	done, total := int64(r.Seen), r.Depth
	if p.limit > 0 && int64(p.limit) < total {
		done, total = int64(chosen(r.Counts)), int64(p.limit)
	}
	printf(p.out, "\r\x1b[K[%s] %d of about %d looked at: %s", bar(done, total), r.Seen, max(r.Depth, int64(r.Seen)), counted(r.Counts, p.done))
}

// counted describes the progress so far.
func counted(c poison.Counts, done string) string {
	return fmt.Sprintf("%d %s, %d left", c.Done, done, c.Expired+c.Skipped+c.Failed)
}

// chosen returns how many messages the filter chose.
func chosen(c poison.Counts) int { return c.Done + c.Expired + c.Skipped + c.Failed }

func bar(done, total int64) string {
	filled := barWidth
	if total > 0 {
		filled = int(min(done*barWidth/total, barWidth))
	}
	return strings.Repeat("#", filled) + strings.Repeat(" ", barWidth-filled)
}

func (p *progressBar) clear() {
	if p.out != nil && !p.last.IsZero() {
		printf(p.out, "\r\x1b[K")
	}
}
