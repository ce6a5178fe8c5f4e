package keda

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// signed returns a certificate for a name that is signed by itself, and its authority.
func signed(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
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
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

func TestTLSWithCertificatesOfClients(t *testing.T) {
	server, serverCA := signed(t, "scaler")
	operator, operatorCA := signed(t, "operator")
	stranger, _ := signed(t, "stranger")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(l, []*Pool{asked(t, "worker", 3)}, &tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: operatorCA, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	call := func(name string, want codes.Code, options ...grpc.DialOption) {
		t.Helper()
		conn := dial(t, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		}, options...)
		got, err := pb.NewExternalScalerClient(conn).IsActive(within(t), about("worker"))
		wantCode(t, name, err, want)
		if want == codes.OK && !got.GetResult() {
			t.Errorf("%s: got inactive, want active", name)
		}
	}
	with := func(roots *x509.CertPool, certificates ...tls.Certificate) grpc.DialOption {
		return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			ServerName: "scaler", RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS12,
		}))
	}
	call("KEDA", codes.OK, with(serverCA, operator))
	call("without a certificate", codes.Unavailable, with(serverCA))
	call("with a stranger's", codes.Unavailable, with(serverCA, stranger))
	call("with another authority", codes.Unavailable, with(operatorCA, operator))
	call("without TLS", codes.Unavailable)
}
