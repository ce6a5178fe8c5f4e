package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
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
			if asJSON {
				for _, r := range v.Reports {
					if err := printJSON(t.console.out, r); err != nil {
						return err
					}
				}
				return nil
			}
			if err := printInstances(t.console.out, &v); err != nil {
				return err
			}
			explainInstances(t.console.err, &v, q.Name())
			return nil
		})
	c.flags.BoolVar(&asJSON, "json", false, "print one JSON object per worker, each on its own line")
	return c
}

// printInstances prints a table.
func printInstances(out io.Writer, v *beacon.View) error {
	if len(v.Reports) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "instance\tqueue\tphase\thandlers\tin\tout\thandling\treported") // Flush reports the error
	for i := range v.Reports {
		r := &v.Reports[i]
		phase := r.Phase
		if r.Paused {
			phase += ", paused"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\t%s ago\n", escapeControls(r.Instance), escapeControls(r.Queue.String()), escapeControls(phase),
			r.Load.Running, r.Load.Slots, perSecond(r.Load.Intake), perSecond(r.Load.Service), handlingTime(r.Load.Handling), age(max(v.At.Sub(r.At), 0)))
	}
	return w.Flush()
}

// explainInstances says what the table does not show.
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

// perSecond returns a rate for people.
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

// handlingTime returns a duration for people.
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
