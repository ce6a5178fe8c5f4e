package beacon

import (
	"context"

	"github.com/millrace/millrace/queue"
)

// Viewer reads the reports in a control queue, and remembers which of them are still kept up to date. It is safe for concurrent use.
type Viewer struct {
	control queue.Queue
}

// View are the reports that a [Viewer] has read.
type View struct {
	// Reports are the newest reports of the instances that still report, in order of Instance and Queue.
	Reports []Report

	// Full reports that the control queue showed as many messages as the service shows: there may be more instances.
	Full bool
}

// NewViewer returns a viewer of a control queue.
func NewViewer(control queue.Queue) *Viewer { return &Viewer{control: control} }

// View reads the reports, in one request.
func (v *Viewer) View(ctx context.Context) (View, error) { panic("not written yet") }
