// Video is a site that hosts videos. Visitors upload clips; workers make three formats of each and write its credits
// to an index, which can be searched.
//
//	go run ./examples/video
//	go run ./examples/video -index films.db
//	go run ./examples/video -index films.db -videos 0 -search 'actor:zoe title:sea*'
//
// The videos are on three queues: the news are critical, small clips normal, large ones heavy. Each queue has
// its listener, and all take their slots from one pool: the heavy conversions, of which there are most, take
// what nobody else needs, and some slots are reserved for what is critical.
//
// The index of titles, actors, directors and keywords is in three tables. All workers write it at once, and often the same
// terms: it counts the videos of each exactly, whatever is delivered twice or comes late, and follows a video that is uploaded again
// with other credits. Package index says how.
//
// Queues and blobs are in memory, and so are the tables, unless -index names a file for them. The program ends when all videos are
// done, or with Ctrl-C. Formats of replaced uploads stay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/video/index"
	"github.com/millrace/millrace/perkey"
	"github.com/millrace/millrace/pool"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup"
)

const usage = `Video hosts videos: it uploads clips, makes three formats of each, and searches their credits.

Usage:

  video [flags]

Flags:

  -videos N       how many are uploaded, 1 to 200, or 0 with -index (default 50)
  -slots N        how many are transcoded at once, 4 to 64 (default 8)
  -reserve N      slots that only critical videos take, 0 to N-3 (default 2)
  -index FILE     keep the index in this file, for further runs (default: in memory)
  -search QUERY   what to search for when all are done; may be repeated (default: some samples)

A query is words, all of which must match, such as 'actor:zoe title:sea*'. A word may have a field before it,
actor, director, keyword or title; a star at its end also finds longer words.

Exit status: 0 all videos are done, 1 they are not, 2 invalid command line.
`

// settings are the parsed command line.
type settings struct {
	videos, slots, reserve int
	index                  string // the file; "" for an index in memory
	searches               []index.Query
}

func main() {
	os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the program and returns its exit status. An error is one line on stderr.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(stdout, usage)
		return 0
	}
	status := 2
	if err == nil {
		status, err = 1, host(ctx, s, stdout, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "video: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return status
	}
	return 0
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("video", flag.ContinueOnError)
	f.SetOutput(io.Discard) // command prints its errors, on one line
	f.IntVar(&s.videos, "videos", 50, "")
	f.IntVar(&s.slots, "slots", 8, "")
	f.IntVar(&s.reserve, "reserve", 2, "")
	f.StringVar(&s.index, "index", "", "")
	f.Func("search", "", func(text string) error {
		q, err := index.ParseQuery(text)
		s.searches = append(s.searches, q)
		return err
	})
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return s, err
	} else if err != nil {
		return s, fmt.Errorf("%w; see video -h", err)
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q; see video -h", f.Arg(0))
	case s.videos == 0 && s.index != "": // it only searches
	case s.videos < 1 || s.videos > 200:
		return s, fmt.Errorf("-videos %d is outside 1…200", s.videos)
	case s.slots < 4 || s.slots > 64:
		return s, fmt.Errorf("-slots %d is outside 4…64", s.slots)
	case s.reserve < 0 || s.reserve > s.slots-3:
		return s, fmt.Errorf("-reserve %d is outside 0…%d: each of the three queues needs a slot", s.reserve, s.slots-3)
	}
	return s, nil
}

// host runs the site and its workers until all videos are done, and then searches.
func host(ctx context.Context, s settings, stdout io.Writer, logger *slog.Logger) (err error) {
	credits, closeIndex, err := openIndex(s.index)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeIndex()) }()
	if s.videos > 0 {
		if err := transcodeAll(ctx, s, credits, stdout, logger); err != nil {
			return err
		}
	}
	if err := reportIndex(ctx, credits, stdout); err != nil {
		return err
	}
	return search(ctx, credits, s.searches, stdout)
}

// transcodeAll runs the site and its workers until all videos are done.
func transcodeAll(ctx context.Context, s settings, credits *index.Index, stdout io.Writer, logger *slog.Logger) error {
	begin := time.Now()
	account := localqueue.New(nil).Account("site")
	classes := []*class{{name: "critical", reserve: s.reserve, weight: 2}, {name: "normal", weight: 2}, {name: "heavy", weight: 1}}
	for _, c := range classes {
		var err error
		if c.queue, err = account.Open(c.name + "-videos"); err != nil {
			return err
		}
	}
	store, wakeups := blob.Memory(), new(wakeup.Bus)
	web := newSite(store, credits, classes, wakeups, s.videos)
	keys, err := perkey.New(nil)
	if err != nil {
		return err
	}
	work := &worker{store: store, index: credits, keys: keys, done: web.done}
	runners := []millrace.Runner{web}
	slots := pool.New(&pool.Options{Slots: s.slots})
	for _, c := range classes {
		runners = append(runners, work.listen(c, slots, wakeups, logger))
	}
	if err := millrace.Run(ctx, runners...); err != nil {
		return err
	}
	work.report(stdout, classes, time.Since(begin))
	if open := web.open(); open > 0 {
		return fmt.Errorf("stopped with %d of %d uploads to be done", open, len(web.plan))
	}
	return nil
}

// report says what was done.
func (w *worker) report(out io.Writer, classes []*class, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	line("%d formats made, %d kB in all, in %.1f s; %d were there when a video came again; %d uploads were no videos",
		w.made, w.bytes/1000, took.Seconds(), w.present, w.refused)
	line("")
	line("%-10s %7s %20s %14s", "queue", "jobs", "median wait", "longest wait")
	for _, c := range classes {
		waits := c.sorted()
		if len(waits) == 0 {
			line("%-10s %7d %20s %14s", c.name, 0, "-", "-")
			continue
		}
		line("%-10s %7d %20v %14v", c.name, len(waits), waits[len(waits)/2].Round(10*time.Microsecond), waits[len(waits)-1].Round(10*time.Microsecond))
	}
}

// reportIndex says what is in the index.
func reportIndex(ctx context.Context, x *index.Index, out io.Writer) error {
	terms, postings, err := x.Size(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\nindex: %d terms with %d postings; %d steps made again because another worker came first\n", terms, postings, x.Conflicts())
	return nil
}
