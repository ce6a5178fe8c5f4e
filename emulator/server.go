package emulator

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue/localqueue"
)

// Server answers requests of the Queue service's protocol. Use [New]. It is an
// [http.Handler] and an [http.RoundTripper], safe for concurrent use. It keeps
// nothing that needs closing; an [Endpoint] does.
type Server struct {
	engine         *localqueue.Engine
	accounts       map[string]*accountState // never changes
	public         bool                     // other machines may reach us
	hosts          []string                 // that endpoints answer to, besides this machine's own
	delay          time.Duration
	front          http.Handler  // or nil
	faults         *faultRules   // nil for none
	messages       *queueBuckets // nil without a limit
	log            *slog.Logger  // nil for none
	optionsErr     error         // what is wrong with the options, or nil
	counters       *counters
	idPrefix       [8]byte                    // random, the first half of request ids
	requests       atomic.Uint64              // how many, the second half of request ids
	lastParsedDate atomic.Pointer[parsedDate] // that a client has sent
	lastDateHeader atomic.Pointer[dateHeader] // that was sent
}

// New returns a server over the engine. A nil engine means a new one in memory
// with its defaults.
func New(engine *localqueue.Engine, o *Options) *Server {
	if engine == nil {
		engine = localqueue.New(nil)
	}
	s := &Server{engine: engine, accounts: o.accounts(), public: o.public(), hosts: o.hosts(), delay: o.delay(), front: o.front(), counters: newCounters()}
	if o != nil {
		s.log = o.Log
		if s.optionsErr = o.Limits.check(); s.optionsErr == nil {
			s.faults, s.optionsErr = newFaultRules(o.Faults)
		}
		if o.Limits.Messages > 0 {
			s.messages = newQueueBuckets(o.Limits.Messages)
		}
	}
	rand.Read(s.idPrefix[:]) // never fails, see crypto/rand
	return s
}

// ServeHTTP answers one request. It does not check whether a web page of another origin has
// made a browser send it, as an [Endpoint] does. Whatever the request, it panics only with
// [http.ErrAbortHandler], by which a handler breaks the connection, when a fault
// does; without [Options].Faults it never panics.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serveHTTP(w, r, false) }

// serveHTTP is ServeHTTP; on an endpoint it checks who has made a browser send the request.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request, endpoint bool) {
	if broken := s.serve(w, r, endpoint); broken != nil {
		if errors.Is(broken, errReset) {
			resetConnection(r.Context())
		}
		panic(http.ErrAbortHandler)
	}
}

// serve answers one request, or returns with what error a fault breaks the
// connection.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, endpoint bool) (broken error) {
	c := calls.Get().(*call)
	c.server, c.request, c.header, c.operation = s, r, w.Header(), Unknown
	defer c.release()
	if s.log != nil {
		c.began = time.Now()
	}
	c.setCommonHeaders()
	f := c.route()
	if endpoint {
		f = cmp.Or(c.checkPage(), f)
	}
	c.tally = s.counters.operations[c.operation]
	c.tally.requests.Add(1)
	switch {
	case f != nil:
	case s.optionsErr != nil:
		f = errInternal.because("%v", s.optionsErr)
	case s.faults != nil:
		f, broken = c.injectFault()
	}
	if f == nil && broken == nil {
		f = c.execute()
	}
	switch {
	case r.Context().Err() != nil: // nobody is there to read it
		c.status, c.body = errTimedOut.status, nil
		c.logRequest(0, "")
	case broken != nil || c.injection.kind == FaultDrop:
		c.logRequest(0, "")
		return cmp.Or(broken, errDrop)
	default:
		if f != nil {
			c.writeError(f)
		}
		c.setCORSHeaders()
		c.countResponse(f)
	}
	c.write(w)
	return nil
}

// The values of headers that are always the same. Nobody changes them: whoever gets them in
// process gets a copy.
var (
	serverName  = []string{"Millrace-Queue/1.0"}
	versionName = []string{newestVersion}
	typeXML     = []string{"application/xml"}
)

// clockText is what a Date says in a second. It never changes.
type dateHeader struct {
	second int64
	text   []string
}

// date is the Date header of now. It is written once a second.
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
	var id [36]byte
	hex.Encode(id[0:8], b[0:4])
	hex.Encode(id[9:13], b[4:6])
	hex.Encode(id[14:18], b[6:8])
	hex.Encode(id[19:23], b[8:10])
	hex.Encode(id[24:36], b[10:16])
	id[8], id[13], id[18], id[23] = '-', '-', '-', '-'
	return string(id[:])
}
