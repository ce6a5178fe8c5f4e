package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// certificateVariable names the directory with the server's certificate and key.
const (
	certificateVariable = "MILLRACE_BENCH_CERTIFICATE"
	certificateFile     = "certificate.pem"
	keyFile             = "key.pem"
)

// trustedCertificate returns a new directory with a certificate for this machine, and its
// key. This process trusts it with every transport, so that contenders keep their usual one: Go reads
// the file in SSL_CERT_FILE once, when it first verifies a certificate.
func trustedCertificate() (directory string, err error) {
	made := newCertificate()
	if made.err != nil {
		return "", made.err
	}
	if directory, err = os.MkdirTemp("", "millrace-bench"); err != nil {
		return "", err
	}
	file := filepath.Join(directory, certificateFile)
	err = errors.Join(
		os.WriteFile(file, made.certificate, 0o600),
		os.WriteFile(filepath.Join(directory, keyFile), made.key, 0o600),
		os.Setenv("SSL_CERT_FILE", file),
	)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(directory))
	}
	return directory, nil
}

// pair is a certificate and its key in PEM.
type pair struct {
	certificate, key []byte
	err              error
}

// newCertificate creates the certificate of this process. There is only one, because the file of
// trusted certificates is read once.
var newCertificate = sync.OnceValue(func() pair {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{err: err}
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return pair{err: err}
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		err:         err,
	}
})
