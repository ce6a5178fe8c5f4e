package serverwakeup

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/retry"
)

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

func newSeries(log *slog.Logger, key string) series {
	return series{log: log, quick: retry.NewWaits(key, firstWait, maxWait), denied: retry.NewWaits(key, firstWait, deniedWait),
		foreign: retry.NewWaits(key, foreignWait, foreignWait)}
}

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
