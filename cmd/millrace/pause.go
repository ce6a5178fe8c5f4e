package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/queue"
)

const pauseMore = `It sets «paused» in the metadata of the queue, to the time. Workers of Millrace read that while they
are busy, and stop taking messages within about a minute. They finish the messages that they have. A
worker that is idle, or that starts, may take one batch first. Producers go on sending. A worker that
may not read the metadata goes on too, and says so in its log.

Metadata can only be replaced as a whole. What another program changes in them in the same moment may
be lost; if the pause is lost, it is set again.
`

const resumeMore = `It removes «paused» from the metadata of the queue. Workers take messages again within about a
minute.
`

func pauseCommand() *command {
	return queueCommand("pause", "stop the workers of a queue", pauseMore,
		func(_ context.Context, t *task, q queue.Manager) error {
			var since queuemetadata.Pause
			now := time.Now()
			_, err := queuemetadata.Change(t.finish, q, changeKey(), func(metadata map[string]string) bool {
				changed := queuemetadata.SetPaused(metadata, now)
				since, _ = queuemetadata.Paused(metadata)
				return changed
			})
			return t.report(err, "Queue %v is paused: %s.\n", q.Name(), escapeControls(describePause(since, now)))
		})
}

func resumeCommand() *command {
	return queueCommand("resume", "let the workers of a paused queue go on", resumeMore,
		func(_ context.Context, t *task, q queue.Manager) error {
			_, err := queuemetadata.Change(t.finish, q, changeKey(), queuemetadata.RemovePaused)
			return t.report(err, "Queue %v is not paused.\n", q.Name())
		})
}

// changeKey spreads the waits of this process.
func changeKey() string { return strconv.FormatUint(rand.Uint64(), 16) }

// describePause says for people since when a queue is paused, or the value that pauses it if that is
// no time.
func describePause(p queuemetadata.Pause, now time.Time) string {
	if p.Since.IsZero() {
		return p.Value
	}
	return "since " + p.Value + ", " + age(now.Sub(p.Since)) + " ago"
}

// pauseFields is what queues and stat print of a pause, in JSON.
type pauseFields struct {
	Paused      bool       `json:"paused"`
	PausedSince *time.Time `json:"pausedSince"` // nil if it is not paused, or by a value that is no time
}

func pauseFieldsOf(metadata map[string]string) pauseFields {
	p, paused := queuemetadata.Paused(metadata)
	if p.Since.IsZero() {
		return pauseFields{paused, nil}
	}
	return pauseFields{paused, &p.Since}
}
