package keda

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// Bounds on what clients can take.
const (
	maxConnections = 256
	maxCalls       = 100      // at once on one connection
	maxRequest     = 64 << 10 // bytes
	maxHeaders     = 16 << 10 // bytes
	handshake      = 10 * time.Second
)

// drain is how long calls may take after the stop. KEDA's take no time, so only a client that does not read makes use of it.
const drain = 5 * time.Second

// Server is KEDA's external scaler for some pools. It is a runner for millrace.Run, and safe for concurrent use. Create one with [NewServer]; it runs once.
type Server struct {
	listener net.Listener
	service  *service
	health   *health.Server
	grpc     *grpc.Server

	halted chan struct{}
	halt   sync.Once
}

// NewServer returns a server that accepts connections from l, which it closes at its end. With config it speaks TLS; KEDA's trigger then has enableTLS,
// and caCert, tlsClientCert and tlsClientKey come from a TriggerAuthentication. The error says what is wrong with the pools: there must be one, and their
// names must differ and not be empty.
func NewServer(l net.Listener, pools []*Pool, config *tls.Config) (*Server, error) {
	byName, err := index(pools)
	if err != nil {
		return nil, err
	}
	s := &Server{
		listener: netutil.LimitListener(l, maxConnections),
		service:  newService(byName),
		health:   health.NewServer(),
		grpc:     grpc.NewServer(serverOptions(config)...),
		halted:   make(chan struct{}),
	}
	pb.RegisterExternalScalerServer(s.grpc, s.service)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(pb.ExternalScaler_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	return s, nil
}

// index returns the pools by name, or everything that is wrong with them.
func index(pools []*Pool) (map[string]*Pool, error) {
	byName := map[string]*Pool{}
	var wrong []error
	for i, p := range pools {
		switch {
		case p == nil:
			wrong = append(wrong, fmt.Errorf("pool %d is nil", i+1))
		case p.name == "":
			wrong = append(wrong, fmt.Errorf("pool %d has no name: KEDA asks for it by name", i+1))
		case byName[p.name] != nil:
			wrong = append(wrong, fmt.Errorf("pool %q is there twice: names must differ", p.name))
		default:
			byName[p.name] = p
		}
	}
	if len(pools) == 0 {
		wrong = append(wrong, errors.New("no pools: there is nothing to tell KEDA"))
	}
	return byName, errors.Join(wrong...)
}

func serverOptions(config *tls.Config) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshake),
		grpc.WaitForHandlers(true), // so that none outlives Run
		// A client whose machine has died is noticed, and one that only holds a connection loses it. There is no MaxConnectionAge: it would end
		// streams with an error, after which KEDA waits up to a minute before it opens the next.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: 15 * time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	return options
}

// Run serves until ctx ends, then shuts down within 5 s and returns nil. It returns early with an error if it cannot accept connections.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(s.listener) }()
	select {
	case err := <-served:
		s.grpc.Stop()
		return s.failed(err)
	case <-ctx.Done():
	case <-s.halted:
	}
	s.health.Shutdown()
	s.service.end()
	s.finish()
	// After a halt before Run, Serve was never entered.
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return s.failed(err)
	}
	return nil
}

func (s *Server) failed(err error) error {
	return fmt.Errorf("serve KEDA on %s: %w", s.listener.Addr(), err)
}

// finish waits until calls have ended, but no longer than drain allows.
func (s *Server) finish() {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.grpc.GracefulStop()
	}()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-finished:
		return
	case <-timer.C:
	case <-s.halted:
	}
	s.grpc.Stop() // also makes GracefulStop return
	<-finished
}

// Halt makes [Server.Run] close all connections and return as soon as possible. It does not wait, and may be called at any time.
func (s *Server) Halt() { s.halt.Do(func() { close(s.halted) }) }
