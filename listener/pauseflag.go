package listener

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// flagInterval is how long after a reading of the metadata they are read again for the flag that
// pauses the workers of a queue: beside a fetch, and while the flag is set. Up to a tenth is added
// while it is set, so that the workers of a fleet do not read in step.
const flagInterval = time.Minute

type flagReadings struct {
	asked   time.Time // when the last reading of the metadata began, whatever for
	begun   int       // readings that began
	applied int       // the last one that was applied, of those that began
	denied  bool      // there is no permission to read it
	watched bool      // watchFlag runs
}

// claimReading reports whether the flag is to be read now. Only one caller gets to do it.
func (p *pauses) claimReading() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flag.denied || !p.flag.asked.IsZero() && time.Since(p.flag.asked) < flagInterval {
		return false
	}
	p.flag.asked = time.Now()
	return true
}

// claimed records that the metadata are about to be read for another reason, which is as good.
func (p *pauses) claimed() {
	p.mu.Lock()
	p.flag.asked = time.Now()
	p.mu.Unlock()
}

func (p *pauses) beginReading() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flag.asked = time.Now()
	p.flag.begun++
	return p.flag.begun
}

// readProperties reads the properties of the queue. It applies all that they say, whatever they are
// read for.
func (s *session) readProperties(ctx context.Context) (queue.Properties, error) {
	reading := s.pauses.beginReading()
	p, err := s.queue.Properties(ctx)
	settings := err == nil && s.options.Metadata != IgnoreMetadata
	if settings { // before a loop goes on, which would read them
		s.metadata.read()
		s.applyMetadata(p.Metadata)
	}
	s.applyFlag(reading, p.Metadata, err)
	if settings {
		s.shareVisibility(p.Metadata)
	}
	return p, err
}

// applyFlag pauses or resumes by what was read. A reading that failed changes nothing, with two
// exceptions: a queue that is missing has no flag, and without the permission to read it the flag is
// not read again for its own sake. A paused listener goes on reading all the same, or nothing would
// ever resume it.
func (s *session) applyFlag(reading int, metadata map[string]string, err error) {
	missing := errors.Is(err, queue.ErrQueueMissing)
	if s.looping.Err() != nil || err != nil && !missing && !isDenied(err) {
		return
	}
	p := s.pauses
	p.mu.Lock()
	var told, watch bool
	switch {
	case err != nil && !missing:
		told = !p.flag.denied && p.by&ByQueue == 0
		p.flag.denied = p.flag.denied || told
	case reading > p.flag.applied: // else it began before one that was applied
		_, on := queuemetadata.Paused(metadata)
		p.flag.applied, p.flag.denied = reading, false
		p.setLocked(ByQueue, on)
		watch = on && !p.flag.watched
		p.flag.watched = p.flag.watched || watch
	}
	p.mu.Unlock()
	if told {
		s.report.info("not followed: millrace pause, for lack of the permission to read the metadata of the queue", slog.Any("error", err))
	}
	if watch {
		s.work.Go(s.watchFlag) // the caller is part of the work
	}
	s.announcePause()
}

// isDenied reports whether the permission to read the metadata is missing, which waiting does not
// change. A credential that is not accepted, and a queue that is disabled, are not that: dequeues
// fail too.
func isDenied(err error) bool {
	e := (*queue.Error)(nil)
	if !errors.Is(err, queue.ErrUnauthorized) || !errors.As(err, &e) || e.Status != http.StatusForbidden {
		return false
	}
	return e.Code != "AuthenticationFailed" && e.Code != "QueueDisabled"
}

// readFlagBesideFetch reads the flag while the messages of a dequeue are handled, if the last
// reading of the metadata is old. So an idle listener never reads it.
func (s *session) readFlagBesideFetch() {
	if s.looping.Err() == nil && s.pauses.claimReading() {
		s.work.Go(s.readFlag) // the caller is part of the work
	}
}

// readFlag reads the metadata for the sake of the flag. The stop ends it.
func (s *session) readFlag() {
	_, err := s.readProperties(queue.WithCause(s.looping, queue.CauseMetadata))
	if err == nil || s.looping.Err() != nil || errors.Is(err, queue.ErrQueueMissing) {
		return
	}
	if isDenied(err) && !s.pauses.paused() { // the log says so, once
		return
	}
	s.report.poll(err)
}

// watchFlag reads the flag every minute while it pauses the listener. While the program does so too,
// nothing is read.
func (s *session) watchFlag() {
	timer := time.NewTimer(flagInterval)
	defer timer.Stop()
	for n := 1; ; n++ {
		wait, changed, ok := s.pauses.nextReading(waiting.Jitter(s.key+"/paused", n))
		switch {
		case !ok:
			return
		case wait < 0:
			timer.Stop()
		default:
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
			s.readFlag()
		case <-changed:
		case <-s.looping.Done():
			return
		}
	}
}

// nextReading returns how long to wait for the next reading, negative if the program pauses the
// listener too, and a channel that is closed at a change. Without ok the flag is not set any more.
// The jitter is within [0, 1).
func (p *pauses) nextReading(jitter float64) (wait time.Duration, changed <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by&ByQueue == 0 {
		p.flag.watched = false
		return 0, nil, false
	}
	wait = -1
	if p.by == ByQueue {
		wait = max(time.Until(p.flag.asked.Add(flagInterval+time.Duration(jitter*float64(flagInterval)/10))), 0)
	}
	return wait, p.changeLocked(), true
}
