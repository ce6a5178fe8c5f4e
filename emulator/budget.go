package emulator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budgets for the memory of an endpoint's connections, in bytes. The garbage collector needs about
// as much again. Only a public endpoint has strangers; the other one has room for 10,000
// connections.
const (
	publicBudget = 40 << 20
	localBudget  = 256 << 20
)

const (
	plainCost = 16 << 10 // of a connection: goroutine, buffers, and state
	tlsCost   = 32 << 10 // the same with TLS

	// includedBytes is the part of a request or a response that fits into buffers of plainCost.
	includedBytes = 4 << 10

	// headFactor is how many copies of a request head exist while net/http parses it.
	headFactor = 3

	// chargeStep is the granularity of charges for received bytes. Most reads need no lock.
	chargeStep = 8 << 10

	// writeStep is how many bytes of a response count as progress.
	writeStep = 64 << 10

	// smallHold is a body or response that need not wait for memory, such as a batch of short
	// messages.
	smallHold = 64 << 10

	// stallPatience is how long a body or a response may make no progress while others wait for
	// memory.
	stallPatience = time.Second

	// minResponse is smaller than every response. Shorter writes are lines of wake-up streams and
	// 100 Continue: the server still needs the request then.
	minResponse = 64
)

// budget bounds the memory of an endpoint's connections. A connection costs a fixed amount, the
// part of a request that it has sent, and the response that it has not read.
//
// If the sum exceeds the budget, the budget closes connections: first those that have not sent an
// authorized request, then others. In both groups it starts with the connection that has waited
// longest since the server accepted it or sent it something. A client that exchanges requests and
// responses therefore outlives every client that only takes memory.
//
// Half of the budget is for the bodies and responses of authorized requests. If it is in use, large
// ones wait, up to an eighth of the budget, and the budget closes connections that make no progress
// for a second. Further ones are refused.
type budget struct {
	most int64
	each int64 // fixed cost of a connection

	ticks atomic.Int64 // orders accepts and progress; cheaper than a clock

	mu      sync.Mutex
	taken   int64                     // sum of the costs; guarded by mu
	conns   map[*countedConn]struct{} // guarded by mu
	held    int64                     // bytes of bodies and responses, even on closed connections; guarded by mu
	waiting int64                     // bytes that requests wait to hold; guarded by mu
	since   int64                     // tick of the last look at stalled connections; guarded by mu
	looking bool                      // closeStalled is due; guarded by mu
	freed   sync.Cond                 // signals that held or conns has become smaller
}

func newBudget(most int64, secure bool) *budget {
	b := &budget{most: most, each: plainCost, conns: make(map[*countedConn]struct{})}
	b.freed.L = &b.mu
	if secure {
		b.each = tlsCost
	}
	return b
}

// countedListener accepts connections that a budget counts.
type countedListener struct {
	net.Listener
	budget *budget
}

// Accept makes room if it fails, because the process may have too many files open.
func (l countedListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		if !errors.Is(err, net.ErrClosed) {
			b := l.budget // connections that have a thirty-second of all costs are closed
			b.closing(func() []*countedConn { return b.choose(nil, b.taken+b.held-b.taken/32) })
		}
		return nil, err
	}
	b := l.budget
	c := &countedConn{Conn: raw, budget: b}
	c.moved()
	b.mu.Lock()
	b.conns[c] = struct{}{}
	b.mu.Unlock()
	c.charge(b.each)
	return c, nil
}

// makeRoom removes connections other than c if the sum exceeds the budget. It returns them; the
// caller closes them without the lock. mu must be held.
func (b *budget) makeRoom(c *countedConn) (closing []*countedConn) {
	if b.taken+b.held <= b.most {
		return nil
	}
	return b.choose(c, b.most-b.most/32) // more than necessary: choosing looks at all connections
}

// choose removes connections other than c until at most limit bytes are in use.
func (b *budget) choose(c *countedConn, limit int64) (closing []*countedConn) {
	type candidate struct {
		*countedConn
		known    bool
		progress int64
	}
	candidates := make([]candidate, 0, len(b.conns))
	for other := range b.conns {
		if other != c {
			candidates = append(candidates, candidate{other, other.known.Load(), other.progress.Load()})
		}
	}
	slices.SortFunc(candidates, func(x, y candidate) int {
		if x.known != y.known {
			if y.known {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.progress, y.progress)
	})
	held := b.held // the handlers release it soon
	for _, other := range candidates {
		if b.taken+held <= limit {
			break
		}
		held -= other.held.Load()
		b.remove(other.countedConn)
		closing = append(closing, other.countedConn)
	}
	return closing
}

// remove forgets a connection. mu must be held.
func (b *budget) remove(c *countedConn) {
	if b.counts(c) {
		delete(b.conns, c)
		b.taken -= c.cost
		b.freed.Broadcast()
	}
}

// closing resets the connections that choose returns, which is called with the lock held.
func (b *budget) closing(choose func() []*countedConn) {
	b.mu.Lock()
	all := choose()
	b.mu.Unlock()
	for _, c := range all {
		c.reset()
	}
}

// countedConn is a connection of a budget, which may close it.
type countedConn struct {
	net.Conn

	budget   *budget
	known    atomic.Bool  // it has sent an authorized request
	progress atomic.Int64 // tick of the accept, or of the last bytes sent or, of a held body, received
	received atomic.Int64 // bytes since the last response, without a held body
	held     atomic.Int64 // bytes that the handler of a request holds
	charged  atomic.Int64 // part of the cost: received bytes. Written with budget.mu
	cost     int64        // guarded by budget.mu
}

// countedConnOf returns the connection of a request's context, or nil if it has none.
func countedConnOf(ctx context.Context) *countedConn {
	conn := ctx.Value(connectionKey{})
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, _ := conn.(*countedConn)
	return c
}

func (c *countedConn) moved() { c.progress.Store(c.budget.ticks.Add(1)) }

// authorized notes that the client has sent an authorized request.
func (c *countedConn) authorized() {
	if !c.known.Load() {
		c.known.Store(true)
	}
}

// charge adds bytes to the cost, or subtracts them. Other connections make room.
func (c *countedConn) charge(bytes int64) {
	c.budget.closing(func() []*countedConn { return c.add(bytes) })
}

// counts reports whether the connection is open. mu must be held.
func (b *budget) counts(c *countedConn) bool {
	_, counted := b.conns[c]
	return counted
}

// add is charge with budget.mu held. The caller closes the connections that it returns.
func (c *countedConn) add(bytes int64) (closing []*countedConn) {
	b := c.budget
	if !b.counts(c) {
		return nil // it is being closed
	}
	c.cost += bytes
	b.taken += bytes
	if bytes <= 0 {
		return nil
	}
	return b.makeRoom(c)
}

// hold counts bytes that the handler of an authorized request needs until release. More than
// smallHold waits until the budget has room. hold returns false if too many requests wait, or if
// the connection was closed.
func (c *countedConn) hold(bytes int64) (open bool) {
	b := c.budget
	b.closing(func() []*countedConn {
		if bytes > smallHold && b.isFull(bytes) {
			if b.waiting+bytes > b.most/8 {
				return nil
			}
			if !b.looking {
				b.looking, b.since = true, b.ticks.Load()
				time.AfterFunc(stallPatience, b.closeStalled)
			}
			b.waiting += bytes
			for b.isFull(bytes) && b.counts(c) {
				b.freed.Wait()
			}
			b.waiting -= bytes
		}
		open = b.counts(c)
		return c.holdMore(bytes)
	})
	return open
}

// isFull reports whether no more bytes can be held. One request always can. mu must be held.
func (b *budget) isFull(bytes int64) bool { return b.held > 0 && b.held+bytes > b.most/2 }

// holdMore is hold without waiting. budget.mu must be held. The caller closes the connections that
// it returns.
func (c *countedConn) holdMore(bytes int64) (closing []*countedConn) {
	c.held.Add(bytes)
	c.budget.held += bytes
	c.moved()
	return c.budget.makeRoom(c)
}

// holdAtLeast makes the holds so many bytes, without waiting: the memory is in use.
func (c *countedConn) holdAtLeast(bytes int) {
	more := int64(bytes) - c.held.Load()
	if more <= 0 {
		return
	}
	c.budget.closing(func() []*countedConn { return c.holdMore(more) })
}

func (c *countedConn) release() {
	held := c.held.Swap(0)
	if held == 0 {
		return
	}
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.budget.held -= held
	c.budget.freed.Broadcast()
}

// closeStalled closes connections whose bodies or responses made no progress in the last second, as
// long as requests wait for memory.
func (b *budget) closeStalled() {
	b.closing(func() (stalled []*countedConn) {
		if b.looking = b.waiting > 0; !b.looking {
			return nil
		}
		for c := range b.conns {
			if c.held.Load() > 0 && c.progress.Load() <= b.since {
				b.remove(c)
				stalled = append(stalled, c)
			}
		}
		b.since = b.ticks.Load()
		time.AfterFunc(stallPatience, b.closeStalled)
		return stalled
	})
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.held.Load() > 0 {
		c.moved()
	}
	if after := c.received.Add(int64(n)); receivedCost(after) > receivedCost(after-int64(n)) {
		c.chargeReceived()
	}
	return n, err
}

// receivedCost is the cost of received bytes.
func receivedCost(bytes int64) int64 {
	steps := (bytes - includedBytes + chargeStep - 1) / chargeStep
	return max(steps, 0) * chargeStep * headFactor
}

// chargeReceived charges for the bytes since the last response.
func (c *countedConn) chargeReceived() {
	c.budget.closing(func() (closing []*countedConn) {
		if cost := receivedCost(c.received.Load()); cost > c.charged.Load() {
			closing = c.add(cost - c.charged.Load())
			c.charged.Store(cost)
		}
		return closing
	})
}

// answered ends the charge for received bytes.
func (c *countedConn) answered() {
	c.received.Store(0)
	if c.charged.Load() == 0 {
		return
	}
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.add(-c.charged.Swap(0))
}

func (c *countedConn) Write(p []byte) (n int, err error) {
	defer c.sent(c.sending(len(p)), len(p))
	for len(p) > 0 && err == nil {
		step := p[:min(len(p), writeStep)]
		var m int
		if m, err = c.Conn.Write(step); m > 0 {
			c.moved()
		}
		n += m
		p = p[len(step):]
	}
	return n, err
}

// WriteVector writes the buffers, with one system call if they are small.
func (c *countedConn) WriteVector(buffers *net.Buffers) (int64, error) {
	size := 0
	for _, p := range *buffers {
		size += len(p)
	}
	if size > writeStep {
		return buffers.WriteTo(c)
	}
	defer c.sent(c.sending(size), size)
	defer c.moved()
	return buffers.WriteTo(c.Conn)
}

// sending charges for a write, except for its held bytes, and returns the charge.
func (c *countedConn) sending(size int) int64 {
	bytes := max(int64(size)-c.held.Load()-includedBytes, 0)
	if bytes > 0 {
		c.charge(bytes)
	}
	return bytes
}

func (c *countedConn) sent(charged int64, size int) {
	if charged > 0 {
		c.charge(-charged)
	}
	if size >= minResponse {
		c.answered()
	}
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	b := c.budget
	b.mu.Lock()
	b.remove(c)
	b.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http close the write side first.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// reset closes the connection with a reset: the client reads an error, and the kernel keeps
// nothing.
func (c *countedConn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // an error means that it is closed already
	}
	_ = c.Close()
}
