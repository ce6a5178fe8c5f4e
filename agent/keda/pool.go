package keda

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/agent"
)

// Pool is the number of instances that one pool should have, as an agent decides and KEDA reads it. It is safe for concurrent use. Create one
// with [NewPool].
type Pool struct {
	name     string
	replicas func(ctx context.Context) (int, error)

	mu      sync.Mutex
	number  int
	known   bool
	changed chan struct{} // closed when number or known change, and then replaced
}

var _ agent.Actuator = (*Pool)(nil)

// NewPool returns the pool with this name, which KEDA's trigger has in its metadata. Replicas returns how many replicas KEDA's target is asked
// to have at present, such as those of a Deployment; it is called until it succeeds once.
func NewPool(name string, replicas func(ctx context.Context) (int, error)) *Pool {
	return &Pool{name: name, replicas: replicas, changed: make(chan struct{})}
}

// Instances returns the number that was last asked for. Before the first time it reads from the platform how many there are, and KEDA is told
// that number: what runs stays until an agent decides otherwise.
func (p *Pool) Instances(ctx context.Context) (int, error) {
	if n, known, _ := p.last(); known {
		return n, nil
	}
	n, err := p.replicas(ctx) // not under the lock: it is a request
	if err != nil {
		return 0, fmt.Errorf("pool %s: the number of its replicas is unknown, and KEDA leaves it as it is: %w", p.name, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("pool %s: got %d replicas, want none or more", p.name, n)
	}
	return p.begin(n), nil
}

// Scale asks for n instances. KEDA reads it within its polling interval, and at once if it has none and n is more.
func (p *Pool) Scale(_ context.Context, n int) error {
	if n < 0 {
		return fmt.Errorf("pool %s: asked for %d instances, want none or more", p.name, n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(n)
	return nil
}

// begin sets the number that was read from the platform, unless Scale was called meanwhile, and returns what it is now.
func (p *Pool) begin(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		p.set(n)
	}
	return p.number
}

// set is called with mu held.
func (p *Pool) set(n int) {
	if p.known && p.number == n {
		return
	}
	p.number, p.known = n, true
	close(p.changed)
	p.changed = make(chan struct{})
}

// last returns the number that was last asked for, whether there is one, and a channel that is closed when that changes.
func (p *Pool) last() (n int, known bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number, p.known, p.changed
}
