package main

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/wakeup/natswakeup"
)

// serveNATS starts a NATS server in this process and returns its address.
func serveNATS() (url string, stop func(), err error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		return "", nil, err
	}
	go s.Start()
	stop = func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	if !s.ReadyForConnections(10 * time.Second) {
		stop()
		return "", nil, errors.New("the NATS server does not start")
	}
	return s.ClientURL(), stop, nil
}

// natsTransport is a transport with its connection.
type natsTransport struct {
	*natswakeup.Transport
	connection *nats.Conn
}

func connectNATS(url string) (natsTransport, error) {
	c, err := nats.Connect(url)
	if err != nil {
		return natsTransport{}, err
	}
	return natsTransport{natswakeup.New(c, nil), c}, nil
}

// Close implements io.Closer.
func (n natsTransport) Close() error {
	n.Transport.Close()
	n.connection.Close()
	return nil
}
