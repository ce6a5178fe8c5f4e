package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/millrace/millrace/beacon"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

const instancesMore = `It looks at a control queue, in which workers with a beacon report, and prints what each says of itself: which
queue it works on, how many of its handlers run, how many messages a second it takes and works off, how
long a handler takes, and how old that is. It is one request and changes nothing.
`

func instancesCommand() *command {
	var asJSON bool
	c := queueCommand("instances", "list the workers that report in a control queue", instancesMore,
		func(ctx context.Context, t *task, q queue.Manager) error {
			v, err := beacon.NewViewer(q).View(ctx)
			if err != nil {
				return err
			}
			l := newListing(t.console.out, asJSON, "instance", "queue", "phase", "handlers", "in", "out", "handling", "reported")
			for _, r := range v.Reports {
				if err := l.row(r, instanceCells(&r, v.At)...); err != nil {
					return err
				}
			}
			if err := l.flush(); err != nil || asJSON {
				return err
			}
			explainInstances(t.console.err, &v, q.Name())
			return nil
		})
	c.flags.BoolVar(&asJSON, "json", false, "print one JSON object per worker, each on its own line")
	return c
}

func instanceCells(r *beacon.Report, now time.Time) []string {
	phase := r.Phase
	if r.Paused {
		phase += ", paused"
	}
	return []string{
		r.Instance, r.Queue.String(), phase, fmt.Sprintf("%d of %d", r.Load.Running, r.Load.Slots), perSecond(r.Load.Intake), perSecond(r.Load.Service),
		handlingTime(r.Load.Handling), age(max(now.Sub(r.At), 0)) + " ago",
	}
}

// explainInstances adds to the table how much of the queue it covers.
func explainInstances(to io.Writer, v *beacon.View, control queue.Name) {
	if len(v.Reports) == 0 {
		printf(to, "No worker reports in %v; those with a beacon do.\n", control)
	}
	if v.Full {
		printf(to, "A look shows %d messages at most: there may be more workers.\n", queue.MaxBatch)
	}
	if v.Stale > 0 {
		printf(to, "%s left out, because no newer one has followed: the worker was killed, or cannot report.\n", plural(v.Stale, "report"))
	}
	if v.Ignored > 0 {
		printf(to, "%s left out that no worker of this version has written.\n", plural(v.Ignored, "message"))
	}
}

func perSecond(o scaling.Optional[float64]) string {
	v, known := o.Get()
	switch {
	case !known:
		return "?"
	case v >= 9.95:
		return rounded(v) + "/s"
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) + "/s"
}

func handlingTime(o scaling.Optional[time.Duration]) string {
	d, known := o.Get()
	switch {
	case !known:
		return "?"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return span(d.Round(time.Second))
}
