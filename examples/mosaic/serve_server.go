package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// ownServer is a durable queue server in this process.
type ownServer struct {
	engine   *localqueue.Engine
	server   *emulator.Server
	endpoint *emulator.Endpoint
}

// startServer opens the queues in a folder and serves them on a free port of this machine.
func startServer(dir string) (*ownServer, error) {
	store, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	engine, err := localqueue.Open(store, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the queues in %s: %w", dir, err), store.Close())
	}
	s := &ownServer{engine: engine, server: emulator.New(engine, nil)}
	if s.endpoint, err = s.server.Start(""); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return s, nil
}

// openStore opens the queues in a folder, which one program at a time can.
func openStore(dir string) (*filequeue.Store, error) {
	store, err := filequeue.Open(dir)
	if errors.Is(err, filequeue.ErrLocked) {
		return nil, fmt.Errorf("the queues in %s are in use: another mosaic serve runs; stop it, or choose another folder with -data", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open the queues: %w; choose another folder with -data", err)
	}
	return store, nil
}

func (s *ownServer) queue(name string) queue.Queue {
	return s.engine.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: name})
}

// setBusy makes the server answer every request with 503, or ends that.
func (s *ownServer) setBusy(on bool) error {
	if !on {
		return s.server.SetFaults(nil)
	}
	return s.server.SetFaults(&emulator.Faults{Rules: []emulator.Fault{{Kind: emulator.FaultBusy, Rate: 1}}})
}

func (s *ownServer) close() error { return errors.Join(s.endpoint.Close(), s.engine.Close()) }

// serveFolder returns the folder in which mosaic serve keeps its data.
func serveFolder() (string, error) {
	dir, err := mosaicProgram.Folder()
	if err != nil {
		return "", fmt.Errorf("there is no place for the data: %w; name a folder with -data", err)
	}
	return dir, nil
}

// browserCommand returns the command that shows an address.
func browserCommand(address string) *exec.Cmd {
	switch runtime.GOOS {
	case "windows":
		return exec.Command("rundll32", "url.dll,FileProtocolHandler", address)
	case "darwin":
		return exec.Command("open", address)
	}
	return exec.Command("xdg-open", address)
}
