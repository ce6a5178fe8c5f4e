package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/agent/agentfile"
	"github.com/millrace/millrace/agent/keda"
)

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
		pool := keda.NewPool(one.Name, func(ctx context.Context) (int, error) { return read(ctx, at.namespace, at.name) })
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
