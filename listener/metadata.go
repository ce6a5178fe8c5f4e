package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
)

// Metadata says which part the metadata of the queue have in a listener. The names, in any case,
// are
//
//   - poisonthreshold: Poison.MaxAttempts and Poison.MaxLost, 1…2147483647
//   - defaulttimeout: the visibility to begin with, in seconds, 1…604800
//
// An option that is set wins over the metadata: MaxAttempts and MaxLost over the one,
// Visibility.First and [FixedVisibility] over the other. A missing or invalid number has its
// default; an invalid one is also reported, once, as a [*SetupError]. The visibility is moved into
// Visibility.Min…Max; it is the shortest for ten minutes, and then gives way to the handling times.
type Metadata int

const (
	// IgnoreMetadata applies neither of them. The flag that pauses the workers of the queue is
	// followed all the same: see [Listener.Pause].
	IgnoreMetadata Metadata = iota

	// ReadMetadata applies the metadata and their changes. They are read before the first dequeue,
	// by each loop that starts with the listener, then with every reading of the depth, and before
	// a dequeue when that was a minute ago. So they cost a busy or an idle listener at most one
	// transaction a minute. Nothing is dequeued until they are known, which each failure reports.
	ReadMetadata

	// WriteMetadata also raises defaulttimeout, so that other workers, even later ones, begin with
	// the visibility that this one has found. It does so at most every ten minutes, if half as much
	// again was called for all the time, and never lowers it. All other metadata are written back
	// as they were read just before: a change of another program in between is lost, because the
	// service can only replace all metadata. Their names come back in lower case from Azure. The
	// queue must be a [queue.Manager]. A write that fails is reported and does no harm.
	WriteMetadata
)

// Names in the metadata of a queue.
const (
	thresholdName = "poisonthreshold"
	timeoutName   = "defaulttimeout"
)

// check returns an error for an unknown value, and for a queue without writable metadata.
func (m Metadata) check(q queue.Queue) error {
	if m < IgnoreMetadata || m > WriteMetadata {
		return fmt.Errorf("metadata %d is none of IgnoreMetadata, ReadMetadata and WriteMetadata", int(m))
	}
	if _, ok := q.(queue.Manager); !ok && m == WriteMetadata {
		return fmt.Errorf("WriteMetadata needs a queue that implements queue.Manager, which %T does not: use ReadMetadata", q)
	}
	return nil
}

// readMetadata reads the metadata before a dequeue. An error means that nothing may be dequeued:
// the queue is missing, or its settings are not known yet. Messages might become poison by the
// wrong thresholds.
func (l *loop) readMetadata(first bool) error {
	_, err := l.readProperties(metered.WithCause(l.request(), metered.CauseMetadata))
	switch {
	case err == nil:
	case first, errors.Is(err, queue.ErrQueueMissing):
		return err
	case l.requests.Err() == nil:
		l.report.poll(err)
	}
	return nil
}

// readProperties reads the properties of the queue. They are applied completely, for any reason of
// the reading.
func (s *session) readProperties(ctx context.Context) (queue.Properties, error) {
	began, _ := s.tell(event{what: asks})
	p, err := s.queue.Properties(ctx)
	s.applyProperties(began.readings, p.Metadata, err)
	return p, err
}

// applyProperties tells the owner of a reading.
func (s *session) applyProperties(reading int, metadata map[string]string, err error) {
	e := event{what: read, reading: reading, ok: err == nil, missing: errors.Is(err, queue.ErrQueueMissing)}
	e.refusal = !e.ok && !e.missing && isDenied(err)
	_, e.flag = queuemetadata.Paused(metadata)
	if e.settings = e.ok && s.options.Metadata != IgnoreMetadata; e.settings {
		number := func(i int, name string, highest int) int {
			n, err := settingIn(metadata, name, highest)
			if err != nil {
				e.complaints[i] = err.Error()
			}
			return n
		}
		e.threshold = number(0, thresholdName, math.MaxInt32)
		e.seconds = number(1, timeoutName, int(queue.MaxVisibility/time.Second))
	}
	_, follows := s.hears(e)
	if follows.is(tellDenied) {
		s.report.info("not followed: millrace pause, for lack of the permission to read the metadata of the queue", slog.Any("error", err))
	}
	if !e.settings || e.flag || s.options.Metadata != WriteMetadata {
		return
	}
	// After the settings were applied, because they replace the visibility that this worker had
	// found before.
	_, follows = s.tell(event{what: sampled, found: s.dispatcher.FoundVisibility()})
	if a, shares := follows.with(share); shares {
		s.shareVisibility(metadata, a.d)
	}
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

// readFlag reads the metadata for the sake of the flag that pauses the workers. The stop ends it.
func (s *session) readFlag() {
	_, err := s.readProperties(metered.WithCause(s.looping, metered.CauseMetadata))
	if err == nil || s.looping.Err() != nil || errors.Is(err, queue.ErrQueueMissing) {
		return
	}
	if isDenied(err) && s.snapshot().pauses == 0 { // the log says so, once
		return
	}
	s.report.poll(err)
}

// settingIn returns a number within 1…highest from the metadata, or 0 if it is missing or invalid.
func settingIn(metadata map[string]string, name string, highest int) (int, error) {
	text, found := metadata[queuemetadata.NameIn(metadata, name)]
	if !found {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > highest {
		return 0, fmt.Errorf("its metadata have %s = %.40q, which is not a whole number within 1…%d: the default applies instead; set it again, or remove it", name, text, highest)
	}
	return n, nil
}

// explicitSettings tells which settings the options have, which win over metadata.
type explicitSettings struct{ visibility, attempts, lost, rule bool }

func explicitIn(o *sessionOptions) explicitSettings {
	return explicitSettings{o.Visibility.First != 0, o.Poison.MaxAttempts != 0, o.Poison.MaxLost != 0, o.Fetch.QueueWorkDetected != nil}
}

// unless returns the number from the metadata, or 0 if an option wins.
func unless(explicit bool, n int) int {
	if explicit {
		return 0
	}
	return n
}

// raised returns the metadata with this visibility in place of a shorter one. It reports false if
// there is nothing to write: the visibility is not half as much again as workers begin with, or the
// value that is there is invalid and may be another program's. So a queue gets few writes, however
// many workers it has, and they cannot take turns in writing.
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

// shareVisibility writes a visibility to the metadata that were read just now.
func (s *session) shareVisibility(read map[string]string, found time.Duration) {
	written, ok := raised(read, found)
	if !ok {
		return
	}
	if err := s.queue.(queue.Manager).SetMetadata(metered.WithCause(s.requests, metered.CauseMetadata), written); err != nil {
		if s.requests.Err() == nil {
			s.report.poll(err)
		}
		return
	}
	s.report.info("visibility written to the metadata of the queue", slog.Duration(timeoutName, found))
}
