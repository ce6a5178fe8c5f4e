// Package queuemetadata has what several programs keep in the metadata of a queue.
package queuemetadata

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// pausedName is the name of the flag that pauses the workers of a queue.
const pausedName = "paused"

// Pause is the flag that pauses the workers of a queue.
type Pause struct {
	Value string    // as it is in the metadata, without spaces around it; "" if the workers are not paused
	Since time.Time // when it was set, by [SetPaused]; zero if the value is no time
}

var falseValues = []string{"", "false", "no", "off", "0"}

// Paused returns the flag, and whether it pauses the workers. Any value does, except an empty one,
// "false", "no", "off" and "0", in any case.
func Paused(metadata map[string]string) (p Pause, paused bool) {
	for name, value := range metadata {
		value = strings.TrimSpace(value)
		if !strings.EqualFold(name, pausedName) || slices.Contains(falseValues, strings.ToLower(value)) {
			continue
		}
		p.Value = max(p.Value, value) // of several spellings of the name always the same
	}
	if p.Value == "" {
		return Pause{}, false
	}
	if at, err := time.Parse(time.RFC3339, p.Value); err == nil {
		p.Since = at
	}
	return p, true
}

// SetPaused sets the flag, unless it is set. It reports whether it has changed the metadata, which
// must not be nil.
func SetPaused(metadata map[string]string, now time.Time) bool {
	if _, paused := Paused(metadata); paused {
		return false
	}
	Remove(metadata, pausedName)
	metadata[pausedName] = now.UTC().Format(time.RFC3339)
	return true
}

// RemovePaused removes the flag, whatever its value. It reports whether there was one.
func RemovePaused(metadata map[string]string) bool { return Remove(metadata, pausedName) }

// Remove removes a name in all spellings, and reports whether there was one.
func Remove(metadata map[string]string, name string) (removed bool) {
	before := len(metadata)
	maps.DeleteFunc(metadata, func(given, _ string) bool { return strings.EqualFold(given, name) })
	return len(metadata) < before
}

// NameIn returns the name as the metadata have it, in whatever case, or as it is given if they have
// none. HTTP does not preserve case.
func NameIn(metadata map[string]string, name string) string {
	for given := range metadata {
		if strings.EqualFold(given, name) {
			return given
		}
	}
	return name
}

const (
	// maxTries is how often a change is tried at most.
	maxTries = 5

	// settleTime is how long after a write the metadata are read again, up to half as much again. It
	// is longer than other programs take between their reading and their write, as a rule.
	settleTime = 500 * time.Millisecond
)

// Change changes the metadata of a queue. The service can only replace them as a whole, and on no
// condition. So Change reads them, writes them with the change, reads them again after a moment, and
// repeats that if the change is not in them: another program has read before this write and written
// after it. So it does if another name is missing that it has written, but only once for each name, so
// that a program that removes one on purpose succeeds. What another program writes between a reading
// and the write that follows is lost, which nobody can see.
//
// Edit changes what was read, and reports whether that must be written. It is called for each
// reading. The key spreads the waits of several callers. Change reports whether anything was
// written. A request that fails for a while, or has no response, is repeated too.
func Change(ctx context.Context, q queue.Manager, key string, edit func(metadata map[string]string) bool) (changed bool, err error) {
	var written writtenMetadata
	for tries := 0; ; {
		found, err := q.Properties(ctx)
		if err == nil {
			metadata := maps.Clone(found.Metadata)
			if metadata == nil {
				metadata = make(map[string]string)
			}
			restored := written.restore(metadata)
			if !edit(metadata) && !restored {
				return changed, nil
			}
			if tries == maxTries {
				return changed, fmt.Errorf("change the metadata of the queue %v: another program has replaced them after each of %d tries: stop it, or try again", q.Name(), tries)
			}
			written.last = metadata
			err = q.SetMetadata(ctx, metadata)
			changed = true
		}
		tries++
		if err != nil && (!queue.Transient(err) || tries >= maxTries) {
			return changed, err
		}
		if !waiting.For(settleTime+time.Duration(waiting.Jitter(key, tries)*float64(settleTime)/2), ctx.Done()) {
			return changed, ctx.Err()
		}
	}
}

// writtenMetadata are those that were written last.
type writtenMetadata struct {
	last     map[string]string
	restored map[string]bool // names that were put back, in lower case
}

// restore puts back what was written and is missing from what was read since, each name once. It reports
// whether there was any.
func (w *writtenMetadata) restore(found map[string]string) (restored bool) {
	for name, value := range w.last {
		key := strings.ToLower(name) // HTTP does not preserve case
		if _, there := found[NameIn(found, name)]; there || w.restored[key] {
			continue
		}
		if w.restored == nil {
			w.restored = make(map[string]bool)
		}
		w.restored[key], found[name], restored = true, value, true
	}
	return restored
}
