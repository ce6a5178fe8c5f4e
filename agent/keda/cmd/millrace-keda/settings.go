package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/agent/keda/deployment"
)

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
	if err := errors.Join(deployment.CheckName(namespace), deployment.CheckName(name)); err != nil {
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
		_, _ = fmt.Fprint(output, "Usage: millrace-keda [flags] FILE\n\nFILE says which pools there are: see package agent/agentfile.\n\n")
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
