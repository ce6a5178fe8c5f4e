package emulator

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue/localqueue"
)

// Server implements the Queue service's protocol as an [http.Handler] and an [http.RoundTripper].
// It is safe for concurrent use and needs no closing; an [Endpoint] does. Create one with [New].
type Server struct {
	engine         *localqueue.Engine
	accounts       map[string]*accountState // never changes
	public         bool                     // other machines may reach it
	hosts          []string                 // Options.Hosts
	delay          time.Duration
	front          http.Handler               // or nil
	faults         atomic.Pointer[faultRules] // nil for none
	messages       *queueBuckets              // nil without a limit
	log            *slog.Logger               // nil for none
	optionsErr     error                      // invalid options, or nil
	counters       *counters
	streams        streams
	memory         int64                      // budget of each endpoint, in bytes
	peeks          chan struct{}              // holds an element for each peek that reads texts
	idPrefix       [8]byte                    // random first half of request ids
	requests       atomic.Uint64              // counter, second half of request ids
	lastParsedDate atomic.Pointer[parsedDate] // last date of a client
	lastDateHeader atomic.Pointer[dateHeader] // last Date header sent
}

// New returns a server over the engine. A nil engine means a new in-memory one with its defaults.
func New(engine *localqueue.Engine, o *Options) *Server {
	if engine == nil {
		engine = localqueue.New(nil)
	}
	s := &Server{engine: engine, accounts: o.accounts(), public: o.public(), hosts: o.hosts(), delay: o.delay(), front: o.front(), counters: newCounters(), memory: localBudget, peeks: make(chan struct{}, maxPeeks)}
	if s.public {
		s.memory = publicBudget
	}
	if o != nil {
		s.log = o.Log
		if s.optionsErr = o.Limits.check(); s.optionsErr == nil {
			var rules *faultRules
			rules, s.optionsErr = newFaultRules("Options.Faults", o.Faults)
			s.faults.Store(rules)
		}
		if o.Limits.Messages > 0 {
			s.messages = newQueueBuckets(o.Limits.Messages)
		}
	}
	rand.Read(s.idPrefix[:]) // never fails, see crypto/rand
	return s
}

// ServeHTTP handles one request. Unlike an [Endpoint] it does not check whether a web page of
// another origin made a browser send it. It panics only with [http.ErrAbortHandler], to close the
// connection for a fault; without faults it never panics.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serveHTTP(w, r, direct) }

// entrance is how a request came in.
type entrance int

const (
	direct        entrance = iota // in process, or by the server of somebody else
	overNetHTTP                   // by an endpoint, through net/http
	overPlainHTTP                 // by an endpoint, through our own loop, whose handlers must not wait
)

// serveHTTP is ServeHTTP; for an endpoint it checks the origin of browsers' requests.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request, by entrance) {
	stream, broken := s.serve(w, r, by)
	if stream != nil {
		stream.runOver(w, r)
	}
	if broken != nil {
		if errors.Is(broken, errReset) {
			resetConnection(r.Context())
		}
		panic(http.ErrAbortHandler)
	}
}

// serve handles one request. It returns a stream that the caller runs, whose response only has headers yet,
// or the error with which a fault closes the connection.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, by entrance) (_ *stream, broken error) {
	c := calls.Get().(*call)
	c.server, c.request, c.writer, c.header, c.operation = s, r, w, w.Header(), Unknown
	defer c.release()
	if s.log != nil {
		c.began = time.Now()
	}
	c.setCommonHeaders()
	f := c.route()
	if by != direct {
		f = cmp.Or(c.checkPage(), f)
	}
	c.tally = s.counters.operations[c.operation]
	c.tally.requests.Add(1)
	switch {
	case f != nil:
	case s.optionsErr != nil:
		f = errInternal.because("%v", s.optionsErr)
	case c.operation.isBilled():
		f, broken = c.injectFault(by)
	}
	if f == nil && broken == nil {
		f = c.execute()
	}
	switch {
	case r.Context().Err() != nil: // the client has left
		if c.stream != nil {
			c.stream.close()
		}
		c.status, c.body = errTimedOut.status, nil
		c.logRequest(0, "")
	case broken != nil || c.injection.kind == FaultDrop:
		c.logRequest(0, "")
		return nil, cmp.Or(broken, errDrop)
	default:
		if f != nil {
			c.writeError(f)
		}
		c.setCORSHeaders()
		c.countResponse(f)
		if c.stream != nil {
			return c.stream, nil
		}
	}
	c.write(w)
	return nil, nil
}

// Constant header values. They are never modified: in-process clients get copies.
var (
	serverName  = []string{"Millrace-Queue/1.0"}
	noStore     = []string{"no-store"}
	versionName = []string{newestVersion}
	typeXML     = []string{"application/xml"}
)

// dateHeader is the Date header for one second. It never changes.
type dateHeader struct {
	second int64
	text   []string
}

// date returns the current Date header, which it formats once a second.
func (s *Server) date() []string {
	now := time.Now()
	last := s.lastDateHeader.Load()
	if last == nil || last.second != now.Unix() {
		last = &dateHeader{now.Unix(), []string{string(queuexml.AppendTime(nil, now))}}
		s.lastDateHeader.Store(last)
	}
	return last.text
}

func (s *Server) requestID() string {
	var b [16]byte
	copy(b[:], s.idPrefix[:])
	binary.BigEndian.PutUint64(b[8:], s.requests.Add(1))
	return naming.FormatGUID(b)
}
