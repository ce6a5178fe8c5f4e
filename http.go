package millrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/units"
)

// HTTPOptions are the options of [HTTP].
type HTTPOptions struct {
	// PreStop is how long the server continues to accept requests after a stop begins, such as by a
	// signal. A load balancer needs seconds to learn that a process ends, and sends it requests
	// until then. The time counts from the stop of [Run] or [RunOrdered], also while runners that
	// stop before the server drain, and Halt ends it. Zero or less means no such time.
	PreStop time.Duration
}

// HTTP returns a runner that serves HTTP until its context ends and PreStop is over, and then lets
// the requests in flight finish: for the probes, metrics and handlers of a worker. It listens on
// server.Addr, or ":http" if that is empty, and serves TLS if server.TLSConfig is set. Run returns
// an error at once if it cannot listen. Halt closes the connections. The runner runs only once. The
// server must not be nil and belongs to the runner. Nil options are the defaults. Requests see the
// values of Run's context unless server.BaseContext is set.
//
// At shutdown only server.WriteTimeout and Halt bound how long requests may take. With port 0
// any free port is used; server.BaseContext receives its listener:
//
//	server.BaseContext = func(l net.Listener) context.Context {
//		log.Print("listening at ", l.Addr())
//		return context.Background() // for requests: must not end with Run's context
//	}
func HTTP(server *http.Server, o *HTTPOptions) Runner {
	if server == nil {
		return invalidRunner{errors.New("millrace: HTTP of a nil server")}
	}
	o = cmp.Or(o, &HTTPOptions{})
	if err := units.Wait("PreStop", o.PreStop); err != nil {
		return invalidRunner{fmt.Errorf("millrace: HTTP server: %w", err)}
	}
	halted, halt := context.WithCancel(context.Background())
	r := &httpRunner{server: server, preStop: o.PreStop, halted: halted, halt: halt}
	return r
}

type httpRunner struct {
	server  *http.Server
	preStop time.Duration
	halted  context.Context // ended by Halt
	halt    context.CancelFunc
}

// Run serves until ctx ends.
func (r *httpRunner) Run(ctx context.Context) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", cmp.Or(r.server.Addr, ":http"))
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		return fmt.Errorf("millrace: serve HTTP: %w", err)
	}
	if r.server.BaseContext == nil {
		values := context.WithoutCancel(ctx)
		r.server.BaseContext = func(net.Listener) context.Context { return values }
	}
	served := make(chan error, 1)
	go func() { served <- r.serve(l) }() // waited for below
	preStop, endPreStop := afterStop(ctx, r.preStop)
	defer endPreStop()
	for _, until := range []context.Context{ctx, preStop} {
		select {
		case err := <-served:
			return fmt.Errorf("millrace: serve HTTP on %v: %w", l.Addr(), err)
		case <-until.Done():
		case <-r.halted.Done():
		}
	}
	grace, endGrace := context.WithCancel(context.WithoutCancel(ctx))
	defer endGrace()
	defer context.AfterFunc(r.halted, endGrace)()
	if err = r.server.Shutdown(grace); err != nil {
		err = r.server.Close()
	}
	if stopped := <-served; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	return err
}

func (r *httpRunner) serve(l net.Listener) error {
	if r.server.TLSConfig != nil {
		return r.server.ServeTLS(l, "", "")
	}
	return r.server.Serve(l)
}

// Halt closes the connections.
func (r *httpRunner) Halt() { r.halt() }
