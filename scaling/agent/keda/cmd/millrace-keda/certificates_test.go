package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write writes a new certificate for a name, signed by itself, and its key, and returns both.
func write(t *testing.T, folder, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pair := map[string][]byte{
		".crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		".key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
	for suffix, text := range pair {
		if err := os.WriteFile(filepath.Join(folder, name+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair[".crt"])
	made, err := tls.X509KeyPair(pair[".crt"], pair[".key"])
	if err != nil {
		t.Fatal(err)
	}
	return made, roots
}

// handshake returns what the server and the client find wrong with each other.
func handshake(t *testing.T, server, client *tls.Config) (protocol string, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	answered := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = tls.Server(conn, server).HandshakeContext(t.Context())
			_ = conn.Close()
		}
		answered <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(conn, client)
	clientErr = c.HandshakeContext(t.Context())
	protocol = c.ConnectionState().NegotiatedProtocol
	if clientErr != nil {
		_ = conn.Close()
	}
	serverErr = <-answered
	_ = conn.Close()
	return protocol, serverErr, clientErr
}

func TestCertificatesAreReadForEachConnection(t *testing.T) {
	folder := t.TempDir()
	_, first := write(t, folder, "scaler")
	operator, _ := write(t, folder, "operator")
	stranger, _ := write(t, folder, "stranger")
	c := certificates{filepath.Join(folder, "scaler.crt"), filepath.Join(folder, "scaler.key"), filepath.Join(folder, "operator.crt")}
	config, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	client := func(roots *x509.CertPool, own ...tls.Certificate) *tls.Config {
		return &tls.Config{ServerName: "scaler", RootCAs: roots, Certificates: own, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	}
	want := func(what string, roots *x509.CertPool, ok bool, own ...tls.Certificate) {
		t.Helper()
		protocol, serverErr, clientErr := handshake(t, config, client(roots, own...))
		if good := serverErr == nil && clientErr == nil; good != ok || good && protocol != "h2" {
			t.Errorf("%s: got %v and %v with %q, want success %v", what, serverErr, clientErr, protocol, ok)
		}
	}
	want("KEDA", first, true, operator)
	want("no certificate", first, false)
	want("a stranger's", first, false, stranger)
	_, second := write(t, folder, "scaler")
	want("the old authority after the renewal", first, false, operator)
	want("the new one", second, true, operator)
	c.clients = ""
	want("any client", second, true)
}

func TestBadCertificatesAreSaidAtTheStart(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "scaler")
	crt, key := filepath.Join(folder, "scaler.crt"), filepath.Join(folder, "scaler.key")
	for want, c := range map[string]certificates{
		"-tls-cert":                 {key, crt, ""},
		"has no certificate in PEM": {crt, key, key},
		"-client-ca: open":          {crt, key, filepath.Join(folder, "missing")},
	} {
		if _, err := c.config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	none := certificates{}
	if config, err := none.config(); config != nil || err != nil {
		t.Errorf("no files: got %v, %v, want neither TLS nor an error", config, err)
	}
}
