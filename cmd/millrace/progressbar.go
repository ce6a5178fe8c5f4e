package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/millrace/poison"
)

// progressBar shows on a terminal how far a redrive or a purge is. It is used by one goroutine at
// a time.
type progressBar struct {
	out   io.Writer // nil without a terminal
	limit int       // messages to be worked on; 0 for all
	last  time.Time // when it was drawn
}

const (
	barWidth    = 30
	barInterval = 100 * time.Millisecond
)

func (t *task) newProgressBar(limit int) *progressBar {
	p := &progressBar{limit: limit}
	if t.console.watched {
		p.out = t.console.err
	}
	return p
}

// show draws the bar anew, if the last is not too new.
func (p *progressBar) show(r poison.Report) {
	if p.out == nil || time.Since(p.last) < barInterval {
		return
	}
	p.last = time.Now()
	done, total := int64(r.Seen), r.Depth
	if p.limit > 0 && int64(p.limit) < total {
		done, total = int64(r.Chosen), int64(p.limit)
	}
	printf(p.out, "\r\x1b[K[%s] %d of about %d looked at: %s", bar(done, total), r.Seen, max(r.Depth, int64(r.Seen)), counted(r.Counts))
}

// counted describes the progress so far.
func counted(c poison.Counts) string {
	what := "redriven"
	if c.Purged > 0 {
		what = "purged"
	}
	return fmt.Sprintf("%d %s, %d left", c.Redriven+c.Purged, what, c.Expired+c.Skipped+c.Failed)
}

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
