package listener

import (
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/queue"
)

// sharingPeriod is how long a visibility must have been called for before it is written. It is also
// how often one is written at most.
const sharingPeriod = 10 * time.Minute

// visibilitySharing is the lowest visibility that was called for since a time. The lowest, because a
// bad minute is no reason for other workers to begin with more.
type visibilitySharing struct {
	since  time.Time // zero before the first sample
	lowest time.Duration
}

// sample takes the visibility that is called for now. Every sharingPeriod it returns the lowest in
// that time, and 0 in between.
func (v *visibilitySharing) sample(now time.Time, found time.Duration) time.Duration {
	if v.since.IsZero() {
		v.since, v.lowest = now, found
	}
	v.lowest = min(v.lowest, found)
	if now.Sub(v.since) < sharingPeriod {
		return 0
	}
	lowest := v.lowest
	v.since, v.lowest = now, found
	return lowest
}

// raised returns the metadata with this visibility in place of a shorter one. It reports false if
// there is nothing to write: the visibility is not half as much again as workers begin with, or what
// is there cannot be read and may be another program's. So a queue gets few writes, however many
// workers it has, and they cannot take turns in writing.
func raised(read map[string]string, found time.Duration) (written map[string]string, ok bool) {
	seconds, err := settingIn(read, timeoutName, int(queue.MaxVisibility/time.Second))
	if err != nil {
		return nil, false
	}
	begin := time.Duration(seconds) * time.Second
	if seconds == 0 {
		begin = dispatcher.DefaultVisibility
	}
	if found < begin+begin/2 {
		return nil, false
	}
	written = maps.Clone(read)
	if written == nil {
		written = make(map[string]string)
	}
	written[queuemetadata.NameIn(read, timeoutName)] = strconv.Itoa(int(found / time.Second))
	return written, true
}

// shareVisibility writes the visibility that was found to the metadata that were read just now. It
// writes nothing to a queue whose workers are paused: the flag may be removed meanwhile, and would be
// set again.
func (s *session) shareVisibility(read map[string]string) {
	if _, paused := queuemetadata.Paused(read); paused || s.options.Metadata != WriteMetadata {
		return
	}
	s.metadata.mu.Lock()
	found := s.metadata.sharing.sample(time.Now(), s.dispatcher.FoundVisibility())
	s.metadata.mu.Unlock()
	written, ok := raised(read, found)
	if !ok {
		return
	}
	if err := s.queue.(queue.Manager).SetMetadata(queue.WithCause(s.requests, queue.CauseMetadata), written); err != nil {
		if s.requests.Err() == nil {
			s.report.poll(err)
		}
		return
	}
	s.report.info("visibility written to the metadata of the queue", slog.Duration(timeoutName, found))
}
