package listener

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/queue"
)

// Metadata says which part the metadata of the queue have in a listener. The names, in any case, are
//
//   - poisonthreshold: Poison.MaxAttempts and Poison.MaxLost, 1…2147483647
//   - defaulttimeout: the visibility to begin with, in seconds, 1…604800
//
// An option that is set wins over the metadata: MaxAttempts and MaxLost over the one, Visibility.First
// and [FixedVisibility] over the other. What is missing or is no such number has its default; the
// latter is also reported, once, as a [*SetupError]. The visibility is moved into Visibility.Min…Max;
// it is the shortest for ten minutes, and then gives way to what handling times call for.
type Metadata int

const (
	// IgnoreMetadata applies neither of them. What pauses the workers of the queue is followed all the
	// same: see [Listener.Pause].
	IgnoreMetadata Metadata = iota

	// ReadMetadata applies the metadata, also when they change. They are read before the first
	// dequeue, by each loop that starts with the listener, then with every reading of the depth, and
	// before a dequeue when that was a minute ago. So they cost a busy or an idle listener at most one
	// transaction a minute. Nothing is dequeued until they are known, which each failure reports.
	ReadMetadata

	// WriteMetadata also raises defaulttimeout, so that other workers, and those that start later,
	// begin with the visibility that this one has found. It does so at most every ten minutes, if
	// half as much again was called for all the time, and never lowers it. All other metadata are
	// written back as they were read just before: a change of another program in between is lost,
	// because the service can only replace all metadata. Their names come back in lower case from
	// Azure. The queue must be a [queue.Manager]. A write that fails is reported and does no harm.
	WriteMetadata
)

// Names in the metadata of a queue.
const (
	thresholdName = "poisonthreshold"
	timeoutName   = "defaulttimeout"
)

// metadataInterval is how long after a reading the metadata are read again for their own sake.
const metadataInterval = time.Minute

type metadata struct {
	mu       sync.Mutex
	known    bool              // they were read and the queue was not missing since; guarded by mu
	asked    time.Time         // when the last reading began; guarded by mu
	applied  [2]int            // threshold and seconds, 0 for none; guarded by mu
	reported map[string]string // by name, what was last reported as invalid; guarded by mu
	sharing  visibilitySharing // guarded by mu
}

// check returns an error for an unknown value, and for a queue whose metadata cannot be written.
func (m Metadata) check(q queue.Queue) error {
	if m < IgnoreMetadata || m > WriteMetadata {
		return fmt.Errorf("metadata %d is none of IgnoreMetadata, ReadMetadata and WriteMetadata", int(m))
	}
	if _, ok := q.(queue.Manager); !ok && m == WriteMetadata {
		return fmt.Errorf("WriteMetadata needs a queue that implements queue.Manager, which %T does not: use ReadMetadata", q)
	}
	return nil
}

// begin reports whether the metadata must be read now, and whether the next dequeue depends on that.
// Only one loop gets to repeat a reading.
func (m *metadata) begin() (due, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known && time.Since(m.asked) < metadataInterval {
		return false, false
	}
	m.asked = time.Now()
	return true, !m.known
}

// read records that the metadata were read on another occasion.
func (m *metadata) read() {
	m.mu.Lock()
	m.asked = time.Now()
	m.mu.Unlock()
}

// forget makes the next poll read the metadata first: the queue is missing, and may come back with
// others.
func (m *metadata) forget() {
	m.mu.Lock()
	m.known = false
	m.mu.Unlock()
}

// readMetadata reads the metadata if they are due. An error means that nothing may be dequeued: the
// queue is missing, or its settings are not known yet. Messages might become poison by thresholds
// that are not those of the queue.
func (l *loop) readMetadata() error {
	if l.options.Metadata == IgnoreMetadata {
		return nil
	}
	due, first := l.metadata.begin()
	if !due {
		return nil
	}
	_, err := l.readProperties(queue.WithCause(l.request(), queue.CauseMetadata))
	switch {
	case err == nil:
	case first, errors.Is(err, queue.ErrQueueMissing):
		return err
	case l.requests.Err() == nil:
		l.report.poll(err)
	}
	return nil
}

// applyMetadata applies what was read. Invalid values are reported once.
func (s *session) applyMetadata(found map[string]string) {
	m := &s.metadata
	m.mu.Lock()
	var problems []error
	number := func(name string, highest int) int {
		n, err := settingIn(found, name, highest)
		if err == nil {
			delete(m.reported, name)
		} else if m.reported[name] != err.Error() {
			if m.reported == nil {
				m.reported = make(map[string]string)
			}
			m.reported[name] = err.Error()
			problems = append(problems, &dispatcher.SetupError{Queue: s.queue.Name(), Detail: err.Error()})
		}
		return n
	}
	threshold, seconds := number(thresholdName, math.MaxInt32), number(timeoutName, int(queue.MaxVisibility/time.Second))
	// Under the lock, so that what was read last is what applies.
	s.dispatcher.SetThresholds(unless(s.explicit.attempts, threshold), unless(s.explicit.lost, threshold))
	s.dispatcher.BeginWith(time.Duration(unless(s.explicit.visibility, seconds)) * time.Second)
	changed := m.applied != [2]int{threshold, seconds}
	m.applied, m.known = [2]int{threshold, seconds}, true
	m.mu.Unlock()

	for _, err := range problems {
		s.report.delivery(err)
	}
	if changed {
		s.report.info("settings in the metadata of the queue", slog.Int(thresholdName, threshold), slog.Int(timeoutName, seconds))
	}
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
type explicitSettings struct{ visibility, attempts, lost bool }

func explicitIn(o *sessionOptions) explicitSettings {
	return explicitSettings{o.Visibility.First != 0, o.Poison.MaxAttempts != 0, o.Poison.MaxLost != 0}
}

// unless returns the number from the metadata, or 0 if an option wins.
func unless(explicit bool, n int) int {
	if explicit {
		return 0
	}
	return n
}
