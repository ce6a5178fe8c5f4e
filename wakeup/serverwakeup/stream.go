package serverwakeup

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// stream is what the subscribers of one queue share. Its goroutine opens the stream again when it
// breaks.
type stream struct {
	source *Source
	name   queue.Name
	ctx    context.Context // ends with the last subscriber or the source
	cancel context.CancelFunc
	series series // of tries; the goroutine's

	changed chan struct{} // buffers one: ready, or missed, has changed

	mu          sync.Mutex
	subscribers map[*subscription]struct{} // guarded by mu
	ready       int                        // guarded by mu; number of ready subscribers
	inForce     bool                       // guarded by mu; the server takes the stream for ready
	missed      bool                       // guarded by mu; an event came that no subscriber was ready for
}

func newStream(s *Source, q queue.Name) *stream {
	st := &stream{source: s, name: q, changed: make(chan struct{}, 1), subscribers: make(map[*subscription]struct{})}
	st.ctx, st.cancel = context.WithCancel(s.ctx)
	key := s.key + q.Queue
	st.series = series{log: s.log.With("queue", q.String()), quick: retry.NewWaits(key, firstWait, maxWait),
		denied: retry.NewWaits(key, firstWait, deniedWait), foreign: retry.NewWaits(key, foreignWait, foreignWait)}
	return st
}

func (s *stream) add(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[sub] = struct{}{}
}

// members returns the subscribers. They are called without the stream's lock.
func (s *stream) members() []*subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.subscribers))
}

// count changes the number of ready subscribers.
func (s *stream) count(change int) {
	s.mu.Lock()
	s.ready += change
	s.mu.Unlock()
	waiting.Signal(s.changed, struct{}{})
}

// wanted reports whether a subscriber is ready, and whether an event came while none was.
func (s *stream) wanted() (ready, missed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready > 0, s.missed
}

// begin says that the server takes the stream for ready.
func (s *stream) begin() {
	s.mu.Lock()
	s.inForce, s.missed = true, false
	s.mu.Unlock()
	for _, sub := range s.members() {
		sub.began()
	}
}

// suspend prepares for telling the server that no subscriber is ready, unless one is.
func (s *stream) suspend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready > 0 {
		return false
	}
	s.inForce, s.missed = false, false
	return true
}

// lapse says that the stream has ended and is renewed at once. Subscribers need not know: what
// becomes visible meanwhile is still there when the new stream begins, and the server wakes
// somebody for it.
func (s *stream) lapse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inForce = false
}

func (s *stream) end() {
	s.lapse()
	for _, sub := range s.members() {
		sub.broke()
	}
}

// event passes an event on. If no subscriber is ready, the server is told so at once and wakes
// another process. One that is about to be ready dequeues then.
func (s *stream) event(bytes int64) {
	for _, sub := range s.members() {
		sub.event(bytes)
	}
	s.mu.Lock()
	s.missed = s.ready == 0
	missed := s.missed
	s.mu.Unlock()
	if missed {
		waiting.Signal(s.changed, struct{}{})
	}
}

// renewTimeout is how long a renewal may take before subscribers hear that the stream is not in
// force.
const renewTimeout = time.Second

// run keeps the stream open while a subscriber is ready, until ctx ends.
func (s *stream) run() {
	defer s.cancel()
	within := tryTimeout
	for s.ctx.Err() == nil {
		if ready, _ := s.wanted(); !ready {
			select {
			case <-s.changed:
			case <-s.ctx.Done():
			}
			continue
		}
		err := s.open(within)
		if within = tryTimeout; s.series.isRenewal(err) {
			s.lapse()
			within = renewTimeout
			continue
		}
		s.end()
		if s.ctx.Err() != nil || !waiting.For(s.series.next(err), s.ctx.Done()) {
			return
		}
	}
}

// open opens the stream within a time and reads it until it breaks. It returns why it did.
func (s *stream) open(within time.Duration) error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	c, err := s.source.connect(ctx, cancel, s.name, within)
	if err != nil {
		return err
	}
	s.series.opened()
	defer c.close()
	s.begin()
	var telling sync.WaitGroup
	telling.Go(func() {
		if err := s.tell(ctx, c.hello.id, c.hello.alive*2/3); err != nil {
			cancel(err)
		}
	})
	defer telling.Wait()
	defer cancel(nil)
	for {
		line, err := c.read()
		if err != nil {
			return err
		}
		if bytes, ok := parseEvent(line); ok {
			s.event(bytes)
		}
	}
}

// patience is how long the server is not told that no subscriber is ready. Most become ready again
// soon, and no other process loses anything: an event that comes meanwhile is passed on at once.
const patience = 50 * time.Millisecond

// tell tells the server whether the stream is ready, until ctx ends or a change cannot be sent. It
// repeats the newest state, because the server ends a stream without a sign of life. One request is
// under way at a time, so that they take effect in order.
func (s *stream) tell(ctx context.Context, id string, every time.Duration) error {
	repeat := time.NewTimer(every)
	defer repeat.Stop()
	say := func(ready bool) error {
		err := s.source.setReady(ctx, s.name, id, ready)
		repeat.Reset(every)
		return err
	}
	told := true
	for ctx.Err() == nil {
		ready, missed := s.wanted()
		lasting := missed // the stream is not expected to be ready soon
		switch {
		case ready && !told:
			if err := say(true); err != nil {
				return err
			}
			told = true
			s.begin()
			continue
		case !ready && told && !missed:
			select {
			case <-s.changed:
				continue
			case <-time.After(patience):
				lasting = true
			case <-ctx.Done():
				return nil
			}
		}
		if told && lasting && s.suspend() {
			if err := say(false); err != nil {
				return err
			}
			told = false
			continue
		}
		select {
		case <-s.changed:
		case <-repeat.C:
			_ = say(told) // if it keeps failing, the stream ends
		case <-ctx.Done():
		}
	}
	return nil
}

// maxLine is the longest line of a stream, in bytes.
const maxLine = 512

// hello is the first line of a stream: from it on the stream is in force.
type hello struct {
	id    string        // names the stream
	alive time.Duration // a line comes at least so often
}

var errNoHello = errors.New("the response does not begin as a wake-up stream does")

// parseHello parses "ready ID SECONDS".
func parseHello(line string) (hello, error) {
	words := strings.Split(line, " ")
	if len(words) < 3 || words[0] != "ready" || !isID(words[1]) {
		return hello{}, errNoHello
	}
	seconds, err := strconv.Atoi(words[2])
	if err != nil || seconds < 1 || seconds > 3600 {
		return hello{}, errNoHello
	}
	return hello{id: words[1], alive: time.Duration(seconds) * time.Second}, nil
}

// isID reports whether a text can name a stream.
func isID(text string) bool {
	for i := range len(text) {
		switch b := text[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-', b == '_':
		default:
			return false
		}
	}
	return text != "" && len(text) <= 128
}

// parseEvent parses "event BYTES". Everything that is not an event is ignored: an empty line says that
// the server is alive, and a later version may say more.
func parseEvent(line string) (bytes int64, ok bool) {
	word, rest, _ := strings.Cut(line, " ")
	if word != "event" {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, " ")
	bytes, err := strconv.ParseInt(number, 10, 64)
	if err != nil || bytes < 0 {
		return 0, true // unknown
	}
	return bytes, true
}

// Waits before a stream is opened again.
const (
	firstWait   = 100 * time.Millisecond
	maxWait     = 30 * time.Second
	deniedWait  = time.Minute
	foreignWait = 10 * time.Minute // a server may be updated
)

// series is a series of tries to open a stream: how long to wait between them, and what to log.
type series struct {
	log      *slog.Logger
	quick    *retry.Waits
	denied   *retry.Waits
	foreign  *retry.Waits
	last     trouble // as logged
	openedAt time.Time
}

// trouble is why there is no stream.
type trouble string

const (
	none     trouble = ""
	broken   trouble = "no wake-up stream; listeners poll until it is open"
	denied   trouble = "the server denies the wake-up stream, which needs the permission to process messages (p); listeners poll"
	foreign  trouble = "the server offers no wake-ups; listeners poll"
	restored         = "the wake-up stream is open"

	// These are not logged.
	missing trouble = "the queue does not exist" // listeners say so
	ended   trouble = "the server has ended the stream"
)

func (s *series) opened() {
	s.openedAt = time.Now()
	if s.last == broken || s.last == denied || s.last == foreign {
		s.log.Info(restored)
	}
	s.last = none
}

// next returns how long to wait after a stream that could not be opened, or has broken. A change of the
// trouble is logged.
func (s *series) next(err error) time.Duration {
	if s.lasted() {
		s.quick.Reset() // what breaks at once is not worth another quick try
	}
	wasOpen := !s.openedAt.IsZero()
	s.openedAt = time.Time{}
	is := diagnose(err, wasOpen)
	if is != s.last {
		switch is {
		case denied:
			s.log.Warn(string(is), "error", err)
		case broken, foreign:
			s.log.Info(string(is), "error", err)
		case missing, ended, none:
		}
	}
	s.last = is
	switch is {
	case denied:
		return s.denied.Next()
	case foreign:
		return s.foreign.Next()
	default:
		return s.quick.Next()
	}
}

// lasted reports whether the stream was open for long.
func (s *series) lasted() bool { return !s.openedAt.IsZero() && time.Since(s.openedAt) > maxWait }

// isRenewal reports whether the server has ended a stream after a while, so that it is authorized again.
func (s *series) isRenewal(err error) bool { return s.lasted() && errors.Is(err, io.EOF) }

// diagnose returns what an error of a stream means.
func diagnose(err error, wasOpen bool) trouble {
	var r *refusal
	if !errors.As(err, &r) {
		if wasOpen && errors.Is(err, io.EOF) {
			return ended
		}
		if !wasOpen && (errors.Is(err, errForeign) || errors.Is(err, errNoHello) || errors.Is(err, errHeld)) {
			return foreign
		}
		return broken
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return denied
	case http.StatusNotFound:
		if r.code == "QueueNotFound" || wasOpen { // or the stream
			return missing
		}
		return foreign
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return broken
	}
	if wasOpen {
		return broken
	}
	return foreign
}
