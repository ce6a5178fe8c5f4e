package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

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
