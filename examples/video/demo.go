package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
)

const demoHelp = `Usage: video demo [flags]

Uploads a flood of large clips, and behind it the news and small clips in turn. When all are converted it
shows how long each queue waited, and how many of the clips that came before them the news overtook.
It leaves nothing behind.

Flags:

  -videos N   how many clips, 10 to 500 (default 60)
  -slots N    how many are converted at once, 4 to 64 (default 4)
`

// demo is the command of that name.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var videos, slots int
	f := cli.NewFlags("video demo")
	f.IntVar(&videos, "videos", 60, "")
	f.IntVar(&slots, "slots", 4, "")
	if _, err := cli.ParseFlags(f, args); err != nil {
		return err
	}
	switch {
	case videos < 10 || videos > 500:
		return cli.UsageErrorf("-videos %d is outside 10…500", videos)
	case slots < 4 || slots > 64:
		return cli.UsageErrorf("-slots %d is outside 4…64", slots)
	}
	logger := plainlog.New(stderr)
	return program.With(ctx, account.Flag{Given: account.Embedded}, "", logger, func(a *account.Account, b *account.Blobs) error {
		s, err := open(a, b.Store, logger)
		if err != nil {
			return err
		}
		front, err := newWeb(s, nil, "") // without a search
		if err != nil {
			return err
		}
		flood := &flood{web: front, videos: videos, over: make(chan struct{})}
		w := &worker{site: s, slots: slots, lease: time.Minute, started: flood.start, ready: flood.ready}
		workers, err := w.listeners()
		if err != nil {
			return err
		}
		if err := millrace.Run(ctx, append(workers, flood)...); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopped with %d of %s converted", flood.done, cli.Plural(videos, "clip"))
		}
		flood.report(stdout)
		return nil
	})
}

// flood uploads many clips, and notes when their jobs start. It is a [millrace.Runner] that ends when all are converted, which stops the
// worker.
type flood struct {
	web    *web
	videos int
	over   chan struct{} // closed when all are converted

	mu     sync.Mutex
	starts []start // in the order of the starts; guarded by mu
	done   int     // clips that are converted; guarded by mu
}

// start is one conversion's start.
type start struct {
	job
	waited time.Duration
}

// Halt does nothing: Run ends with its context.
func (*flood) Halt() {}

// Run uploads the clips.
func (f *flood) Run(ctx context.Context) error {
	large, err := film(480, 270, 48, 1)
	if err != nil {
		return err
	}
	small, err := film(96, 54, 24, 2)
	if err != nil {
		return err
	}
	for i := range f.videos {
		clip, news := large, false
		if i >= f.videos*3/5 {
			clip, news = small, i%2 == 0
		}
		if err := f.web.accept(ctx, newName(), clip, inventCredits(uint64(i)), news); err != nil {
			return err
		}
	}
	select {
	case <-f.over:
	case <-ctx.Done():
	}
	return nil
}

func (f *flood) start(j job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = append(f.starts, start{j, time.Since(j.Uploaded)})
}

func (f *flood) ready() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done++; f.done == f.videos {
		close(f.over)
	}
}

// report shows how long the jobs of each queue waited for a worker, and how many jobs each overtook: jobs that were uploaded before it, and
// started after it.
func (f *flood) report(out io.Writer) {
	cli.Say(out, "%-10s %5s %14s %14s %22s\n", "queue", "clips", "median wait", "longest wait", "overtaken by each")
	for _, class := range []string{critical, ordinary, heavy} {
		var waits []time.Duration
		overtaken := 0
		for i, s := range f.starts {
			if s.Class != class {
				continue
			}
			waits = append(waits, s.waited)
			for _, later := range f.starts[i+1:] {
				if later.Uploaded.Before(s.Uploaded) {
					overtaken++
				}
			}
		}
		slices.Sort(waits)
		n := len(waits)
		cli.Say(out, "%-10s %5d %14v %14v %22.1f\n", class, n,
			waits[n/2].Round(time.Millisecond), waits[n-1].Round(time.Millisecond), float64(overtaken)/float64(n))
	}
}
