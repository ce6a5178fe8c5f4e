// Package queuemetadata has what several programs keep in the metadata of a queue.
package queuemetadata

import (
	"strings"
	"time"
)

// pausedName is the name of the flag that pauses the workers of a queue.
const pausedName = "paused"

// Pause is the flag that pauses the workers of a queue.
type Pause struct {
	Value string    // as it is in the metadata, without spaces around it; "" if the workers are not paused
	Since time.Time // when it was set, by [SetPaused]; zero if the value is no time
}

// Paused returns the flag, and whether it pauses the workers. Any value does, except an empty one,
// "false", "no", "off" and "0", in any case.
func Paused(metadata map[string]string) (p Pause, paused bool) {
	for name, value := range metadata {
		value = strings.TrimSpace(value)
		if !strings.EqualFold(name, pausedName) || isFalse(value) {
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

func isFalse(value string) bool {
	switch strings.ToLower(value) {
	case "", "false", "no", "off", "0":
		return true
	}
	return false
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
	for given := range metadata {
		if strings.EqualFold(given, name) {
			delete(metadata, given)
			removed = true
		}
	}
	return removed
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
