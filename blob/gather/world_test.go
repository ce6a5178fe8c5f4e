package gather_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
)

const batch = "2026-11-21"

// plan is what a world is made from.
type plan struct {
	Parts     int
	Processes int
	Twice     []int // parts whose message is in the queue twice
	TwoHops   bool  // the one who puts sends a message to those who ask
	Remember  int
	Seed      uint64 // of what happens next
	Steps     int    // how many choices are made; after them nothing fails any more
}

// message is a message of a queue that delivers at least once.
type message struct {
	part       int
	put        bool // its handler puts the part
	ask        bool // its handler asks, and ends the gather
	deliveries int
	leased     bool
	deleted    bool
}

// life is one life of a process.
type life struct {
	number  int
	gather  *gather.Gather
	ctx     context.Context
	die     context.CancelFunc
	dead    bool
	running int // functions of Once
}

// handler is one delivery of a message.
type handler struct {
	*world
	number   int
	process  *life
	message  *message
	delivery int
	calls    int  // of the store
	stored   bool // its Put did
	late     bool // the end was recorded before Once was called
}

type handlerKey struct{}

// fate is what becomes of a call of the store.
type fate int

const (
	works fate = iota
	refused
	unanswered // it took effect, and the caller hears of a failure
	diesBefore // the process does
	diesAfter
	fates
)

// pending is a call of the store that waits for its fate.
type pending struct {
	handler *handler
	fate    chan fate
	bits    byte // free choices for the call
}

// world is processes, a store and a queue, of which one takes a step at a time. Its fields are used by one goroutine at a
// time: by the one of the test when all others wait.
type world struct {
	plan
	t         *testing.T
	dice      *rand.Rand
	truth     blob.Store
	processes []*life
	messages  []*message

	mu      sync.Mutex
	pending []*pending // guarded by mu

	handlers int
	ever     map[int]string // content of the parts that were ever stored
	ended    bool           // an end is recorded
	runs     int            // of the function that began
	finished map[string]bool
	ends     map[string]bool // results that Once returned
	firsts   int
	orphans  map[int]bool // parts of handlers that failed after their messages had been handled by others
	faults   []string
}

// play plays a world to its end, and returns what was wrong with it.
func play(t *testing.T, p plan) (faults []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{plan: p, t: t, dice: rand.New(rand.NewPCG(p.Seed, 0)), truth: blob.Memory(), ever: map[int]string{},
			finished: map[string]bool{}, ends: map[string]bool{}, orphans: map[int]bool{}}
		for range p.Processes {
			w.processes = append(w.processes, nil)
		}
		for i := range p.Processes {
			w.start(i)
		}
		for part := range p.Parts {
			w.send(part)
		}
		for _, part := range p.Twice {
			w.send(part % p.Parts)
		}
		w.live()
		faults = w.faults
		for _, p := range w.processes {
			w.kill(p)
		}
		synctest.Wait()
	})
	return faults
}

func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *world) send(part int) {
	w.messages = append(w.messages, &message{part: part, put: true, ask: !w.TwoHops})
}

func (w *world) start(i int) {
	g, err := gather.New(&gatedStore{w.truth}, "batches", &gather.Options{Remember: w.Remember})
	if err != nil {
		w.t.Fatal(err)
	}
	p := &life{number: i, gather: g}
	p.ctx, p.die = context.WithCancel(context.Background())
	w.processes[i] = p
}

// live takes steps until every message is deleted.
func (w *world) live() {
	for range 10_000 {
		synctest.Wait()
		if len(w.faults) > 0 {
			return
		}
		if !slices.ContainsFunc(w.messages, func(m *message) bool { return !m.deleted }) && len(w.pending) == 0 {
			w.audit()
			return
		}
		w.step()
	}
	w.fault("messages are left after 10,000 steps")
}

// choose returns a number below n, and whether it was chosen; otherwise it is 0.
func (w *world) choose(n int) (int, bool) {
	if w.Steps == 0 {
		return 0, false
	}
	w.Steps--
	return w.dice.IntN(n), true
}

// step lets one thing happen.
func (w *world) step() {
	slices.SortFunc(w.pending, func(a, b *pending) int { return a.handler.number - b.handler.number })
	var visible, leased []*message
	for _, m := range w.messages {
		switch {
		case m.deleted:
		case m.leased:
			leased = append(leased, m)
		default:
			visible = append(visible, m)
		}
	}
	kind, chosen := w.choose(8)
	switch {
	case kind >= 6 && len(visible) > 0 || len(w.pending) == 0 && len(visible) > 0:
		m, _ := w.choose(len(visible))
		p, _ := w.choose(len(w.processes))
		w.deliver(visible[m], w.processes[p])
	case kind == 5 && len(leased) > 0 || len(w.pending) == 0:
		// A lease is over, though its handler may go on.
		m, _ := w.choose(len(leased))
		leased[m].leased = false
	default:
		i, _ := w.choose(len(w.pending))
		f := works
		if chosen && kind == 4 {
			c, _ := w.choose(int(fates))
			f = fate(c)
		}
		w.decide(i, f)
	}
}

// decide lets one call of the store go on.
func (w *world) decide(i int, f fate) {
	call := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	bits, _ := w.choose(256)
	call.bits = byte(bits)
	call.fate <- f
	if f == diesBefore || f == diesAfter {
		synctest.Wait() // the effect comes before the end of the process
		w.kill(call.handler.process)
		synctest.Wait()
		w.start(call.handler.process.number)
	}
}

// kill ends a process: its calls never return.
func (w *world) kill(p *life) {
	p.dead = true
	p.die()
	w.pending = slices.DeleteFunc(w.pending, func(c *pending) bool {
		if c.handler.process == p {
			c.fate <- diesBefore
		}
		return c.handler.process == p
	})
}

func (w *world) deliver(m *message, p *life) {
	m.leased = true
	m.deliveries++
	w.handlers++
	h := &handler{world: w, number: w.handlers, process: p, message: m, delivery: m.deliveries}
	go func() {
		err := errors.New("the process died")
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			switch {
			case m.deliveries != h.delivery: // another one has it now
				if h.stored && err != nil {
					h.orphans[m.part] = true
				}
			case err == nil:
				m.deleted = true
			default:
				m.leased = false
			}
		}()
		err = h.handle(context.WithValue(p.ctx, handlerKey{}, h))
	}()
}

// audit checks what is left when all messages are deleted.
func (w *world) audit() {
	end := batch + "/end"
	left := slices.DeleteFunc(w.left(), func(name string) bool {
		var part int
		_, err := fmt.Sscanf(name, batch+"/%06d", &part)
		return err == nil && w.orphans[part]
	})
	if !slices.Equal(left, []string{end}) {
		w.fault("got blobs %q in the end, want the end alone", left)
	}
	g, err := gather.New(w.truth, "batches", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := g.Sweep(context.Background(), batch); err != nil {
		w.fault("the next sweep: %v", err)
	}
	if left := w.left(); !slices.Equal(left, []string{end}) {
		w.fault("got blobs %q after the next sweep, want the end alone", left)
	}
	if len(w.ends) != 1 || w.firsts > 1 {
		w.fault("got the ends %v, %d times first; want one", w.ends, w.firsts)
	}
}

// left returns the names of the blobs that are stored.
func (w *world) left() (names []string) {
	for b, err := range w.truth.List(context.Background(), "batches", "") {
		if err != nil {
			w.t.Fatal(err)
		}
		names = append(names, b.Ref.Name)
	}
	return names
}

// handle is the handler of the package comment, with checks.
func (h *handler) handle(ctx context.Context) error {
	m, g := h.message, h.process.gather
	content := fmt.Sprintf("part %d by handler %d", m.part, h.number)
	if m.put {
		if err := g.Put(ctx, batch, m.part, strings.NewReader(content)); err != nil {
			return err
		}
		if h.ever[m.part] == "" {
			h.fault("part %d is not there after its Put", m.part)
		}
		if !m.ask {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.messages = append(h.messages, &message{part: m.part, ask: true})
			return nil
		}
	}
	all, ended := len(h.ever) == h.Parts, h.ended
	done, err := g.Complete(ctx, batch, h.Parts)
	switch {
	case h.calls > 3:
		h.fault("got %d calls of the store for a part, want at most 3", h.calls)
	case err != nil:
		return err
	case !done && (ended || all && !h.ended): // it may be false while another handler records the end and sweeps
		h.fault("Complete is false although all parts were there (%v) or the end was (%v)", all, ended)
	case done && len(h.ever) < h.Parts:
		h.fault("Complete is true with %d of %d parts", len(h.ever), h.Parts)
	case !done:
		return nil
	}
	h.late = h.ended
	end, err := g.Once(ctx, batch, h.sumUp)
	if err != nil {
		return err
	}
	h.ends[string(end.Result)] = true
	if end.First {
		h.firsts++
	}
	if !h.finished[string(end.Result)] {
		h.fault("got the end %q, which no run of the function has returned", end.Result)
	}
	return g.Sweep(ctx, batch)
}

// sumUp is the function of Once.
func (h *handler) sumUp(ctx context.Context) ([]byte, error) {
	h.runs++
	run := fmt.Sprint("run ", h.runs)
	h.process.running++
	defer func() { h.process.running-- }()
	if h.late {
		h.fault("the function runs after the end was recorded")
	}
	if h.process.running > 1 {
		h.fault("got two runs at once in one process")
	}
	next := 0
	for part, err := range h.process.gather.Parts(ctx, batch, h.Parts) {
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		if part.Number != next || string(text) != h.ever[next] && !h.ended {
			h.fault("got part %d: %q, want part %d: %q", part.Number, text, next, h.ever[next])
		}
		next++
	}
	h.finished[run] = true
	return []byte(run), nil
}

// gatedStore is a store whose calls wait for their fates.
type gatedStore struct{ blob.Store }

// gate waits for the fate of a call, which do performs.
func gate(ctx context.Context, do func(h *handler, bits byte) error) error {
	h := ctx.Value(handlerKey{}).(*handler)
	h.calls++
	call := &pending{handler: h, fate: make(chan fate)}
	h.mu.Lock()
	dead := h.process.dead
	if !dead {
		h.pending = append(h.pending, call)
	}
	h.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
	f := <-call.fate
	if f == refused {
		return blob.ErrUnavailable
	}
	var err error
	if f != diesBefore {
		err = do(h, call.bits)
	}
	switch f {
	case unanswered:
		return blob.ErrUnavailable
	case diesBefore, diesAfter:
		runtime.Goexit()
	}
	return err
}

func (s *gatedStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return gate(ctx, func(h *handler, _ byte) error {
		data, err := io.ReadAll(r)
		if err == nil {
			err = s.Store.Create(context.Background(), ref, strings.NewReader(string(data)), o)
		}
		var part int
		switch _, e := fmt.Sscanf(ref.Name, batch+"/%06d", &part); {
		case err != nil:
		case e != nil:
			h.ended = true
		default:
			h.ever[part] = string(data)
			h.stored = true
		}
		return err
	})
}

func (s *gatedStore) Open(ctx context.Context, ref blob.Ref) (r *blob.Reader, err error) {
	err = gate(ctx, func(*handler, byte) (err error) {
		r, err = s.Store.Open(context.Background(), ref)
		return err
	})
	return r, err
}

func (s *gatedStore) Stat(ctx context.Context, ref blob.Ref) (info blob.Info, err error) {
	err = gate(ctx, func(*handler, byte) (err error) {
		info, err = s.Store.Stat(context.Background(), ref)
		return err
	})
	return info, err
}

func (s *gatedStore) Delete(ctx context.Context, ref blob.Ref) error {
	return gate(ctx, func(h *handler, _ byte) error {
		if !h.ended || strings.HasSuffix(ref.Name, "/end") {
			h.fault("%v is deleted", ref)
		}
		return s.Store.Delete(context.Background(), ref)
	})
}

// List takes its time: of the blobs that are created or deleted meanwhile any may be in it, as the contract of stores says.
func (s *gatedStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		var before, after []blob.Info
		var bits byte
		read := func(into *[]blob.Info) func(*handler, byte) error {
			return func(_ *handler, b byte) error {
				bits = b
				for b, err := range s.Store.List(context.Background(), container, prefix) {
					if err != nil {
						return err
					}
					*into = append(*into, b)
				}
				return nil
			}
		}
		err := gate(ctx, read(&before))
		if err == nil {
			err = gate(ctx, read(&after))
			ctx.Value(handlerKey{}).(*handler).calls-- // both are one call
		}
		if err != nil {
			yield(blob.Info{}, err)
			return
		}
		names := map[string]int{}
		for _, b := range before {
			names[b.Ref.Name]++
		}
		for _, b := range after {
			names[b.Ref.Name]++
		}
		all := slices.Concat(before, after)
		slices.SortFunc(all, func(a, b blob.Info) int { return strings.Compare(a.Ref.Name, b.Ref.Name) })
		all = slices.CompactFunc(all, func(a, b blob.Info) bool { return a.Ref == b.Ref })
		for i, b := range all {
			if names[b.Ref.Name] == 1 && bits>>(i%8)&1 == 0 {
				continue
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}
