// Millrace-keda is an external scaler for KEDA: it measures queues, decides how many replicas the Deployments of their workers should have, and
// tells KEDA.
//
//	millrace-keda -deployment orders=jobs/orders-worker agent.yaml
//
// The file is that of the command millrace agent, described in docs/agent.md, without processes. Each of its pools needs a flag -deployment with the
// namespace and the name of its Deployment, whose number of replicas is read at the start. The program must therefore run in the cluster.
// deploy/keda/README.md in the repository has what KEDA needs.
//
// SIGTERM and Ctrl-C end it with status 0; the Deployments then stay as they are until it runs again. Wrong flags are status 2, and all
// other failures status 1.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/agentfile"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/scaling/agent/keda"
)

func main() {
	os.Exit(command(context.Background(), os.Args[1:], os.Stderr))
}

// command runs the program and returns its status.
func command(ctx context.Context, args []string, output io.Writer) int {
	s, err := parse(args, output)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(output, "millrace-keda:", err) // there is no other place to say it
		return 2
	}
	if err := serve(ctx, s, slog.New(slog.NewTextHandler(output, nil))); err != nil {
		_, _ = fmt.Fprintln(output, "millrace-keda:", err)
		return 1
	}
	return 0
}

// serve does what the settings say, until ctx ends or a signal comes.
func serve(ctx context.Context, s *settings, logger *slog.Logger) error {
	file, err := agentfile.Read(s.file)
	if err != nil {
		return err
	}
	config, err := s.tls.config()
	if err != nil {
		return err
	}
	c, err := inCluster()
	if err != nil {
		return err
	}
	p, err := newProgram(file, s.deployments, c.Replicas, logger)
	if err != nil {
		return err
	}
	defer p.close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "listening", "address", l.Addr().String(), "tls", config != nil)
	return p.run(ctx, l, config)
}

// program is an agent for the pools of a file, whose actuators are what KEDA is told.
type program struct {
	agent  *agent.Agent
	opened *agentfile.Opened
	pools  []*keda.Pool
}

// replicas returns how many replicas a Deployment is asked to have.
type replicas func(ctx context.Context, namespace, name string) (int, error)

// newProgram opens what the file names. It sends no request. Close the result.
func newProgram(file *agentfile.File, targets deployments, read replicas, logger *slog.Logger) (*program, error) {
	if err := match(file, targets); err != nil {
		return nil, err
	}
	opened, err := file.Open(nil)
	if err != nil {
		return nil, err
	}
	p := &program{opened: opened}
	for i := range opened.Pools {
		one := &opened.Pools[i]
		at := targets[one.Name]
		pool, err := keda.NewPool(one.Name, func(ctx context.Context) (int, error) { return read(ctx, at.namespace, at.name) })
		if err != nil {
			opened.Close()
			return nil, err
		}
		one.Actuator = pool
		p.pools = append(p.pools, pool)
	}
	p.agent, err = agent.New(opened.Pools, &agent.Options{Interval: file.Interval, Folder: file.Folder, Prices: file.Prices, Logger: logger})
	if err != nil {
		opened.Close()
		return nil, err
	}
	return p, nil
}

// match returns everything that does not fit between the file and the flags.
func match(file *agentfile.File, targets deployments) error {
	var wrong []error
	left := maps.Clone(targets)
	for _, p := range file.Pools {
		if _, found := targets[p.Name]; !found {
			wrong = append(wrong, fmt.Errorf("pool %s has no Deployment: add -deployment %s=NAMESPACE/NAME", p.Name, p.Name))
		}
		if p.Processes != nil {
			wrong = append(wrong, fmt.Errorf("pool %s has processes: KEDA starts its instances, so remove them from the file", p.Name))
		}
		if p.Azure != "" {
			wrong = append(wrong, fmt.Errorf("pool %s has azure: KEDA starts its instances, so remove it from the file", p.Name))
		}
		delete(left, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		wrong = append(wrong, fmt.Errorf("-deployment %s: the file has no such pool", name))
	}
	return errors.Join(wrong...)
}

func (p *program) close() { p.opened.Close() }

// run serves until ctx ends or a signal comes. The agent ends first, so that its last decision is still told.
func (p *program) run(ctx context.Context, l net.Listener, config *tls.Config) error {
	server, err := keda.NewServer(l, p.pools, config)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return millrace.RunOrdered(ctx, server, p.agent)
}

type settings struct {
	file        string
	addr        string
	deployments deployments
	tls         certificates
}

// deployments are the Deployments of pools by the pool's name. It is a flag.
type deployments map[string]target

type target struct{ namespace, name string }

func (d deployments) String() string { return "" } // no default

// Set adds a Deployment.
func (d deployments) Set(text string) error {
	pool, path, ok1 := strings.Cut(text, "=")
	namespace, name, ok2 := strings.Cut(path, "/")
	if !ok1 || !ok2 || pool == "" {
		return errors.New("want POOL=NAMESPACE/NAME, such as orders=jobs/orders-worker")
	}
	if err := errors.Join(checkKubernetesName(namespace), checkKubernetesName(name)); err != nil {
		return err
	}
	if _, found := d[pool]; found {
		return fmt.Errorf("pool %s has two Deployments: want one", pool)
	}
	d[pool] = target{namespace, name}
	return nil
}

func parse(args []string, output io.Writer) (*settings, error) {
	s := &settings{deployments: deployments{}}
	f := flag.NewFlagSet("millrace-keda", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints errors
	f.Var(s.deployments, "deployment", "the Deployment of a pool, `POOL=NAMESPACE/NAME`; once for each pool of the file")
	f.StringVar(&s.addr, "addr", ":9090", "serve KEDA on this `host:port`")
	f.StringVar(&s.tls.certificate, "tls-cert", "", "the `file` with the certificate for TLS, in PEM (default: no TLS)")
	f.StringVar(&s.tls.key, "tls-key", "", "the `file` with the key of the certificate, in PEM")
	f.StringVar(&s.tls.clients, "client-ca", "", "the `file` with the authorities of clients' certificates, in PEM; others are refused (default: any client)")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(output, "Usage: millrace-keda [flags] FILE\n\nFILE says which pools there are: see docs/agent.md.\n\n")
		f.SetOutput(output)
		f.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, err
	case f.NArg() != 1:
		return nil, fmt.Errorf("got %d files, want the one with the pools after the flags", f.NArg())
	}
	s.file = f.Arg(0)
	return s, s.tls.check()
}

// certificates are the files for TLS.
type certificates struct {
	certificate string
	key         string
	clients     string
}

// check returns an error if some files are named but not all that are needed.
func (c *certificates) check() error {
	switch {
	case (c.certificate == "") != (c.key == ""):
		return errors.New("-tls-cert and -tls-key belong together: set both or none")
	case c.clients != "" && c.certificate == "":
		return errors.New("-client-ca needs TLS: set -tls-cert and -tls-key too")
	}
	return nil
}

// config returns the configuration of TLS, or nil for none. The files are read again for each connection, because certificates in a cluster are
// renewed every few weeks; connections are rare.
func (c *certificates) config() (*tls.Config, error) {
	if c.certificate == "" {
		return nil, nil
	}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.load() },
	}, nil
}

func (c *certificates) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.certificate, c.key)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert %s and -tls-key %s: %w", c.certificate, c.key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}} // without h2 gRPC refuses
	if c.clients == "" {
		return config, nil
	}
	text, err := os.ReadFile(c.clients)
	if err != nil {
		return nil, fmt.Errorf("-client-ca: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("-client-ca: %s has no certificate in PEM", c.clients)
	}
	return config, nil
}
