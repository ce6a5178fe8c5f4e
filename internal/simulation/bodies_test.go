package simulation

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
)

// container is that of the bodies.
const container = "bodies"

// errDead is the error of a dead process's calls.
var errDead = errors.New("the process is dead")

// bodyStore is the blob store of one process: the world's, with the faults of this process.
type bodyStore struct {
	world *world
	who   string
	dead  func() bool // nil for a process that never dies
	kill  func()

	mu    sync.Mutex
	calls map[string]int    // by what they do; guarded by mu
	names map[string]string // of bodies, by those that claimcheck chose; guarded by mu
}

func (w *world) bodyStore(who string) *bodyStore {
	return &bodyStore{world: w, who: who, calls: make(map[string]int), names: make(map[string]string)}
}

// call is one call of a store: what it does, and what a seed decides about it.
type call struct {
	*bodyStore
	subject []string
}

// begin returns a call that does this to that, for the first or a later time.
func (s *bodyStore) begin(op, about string) call {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := op + " " + about
	s.calls[key]++
	return call{s, []string{"store", s.who, op, about, str(s.calls[key])}}
}

func (c call) about(what string) []string {
	return append(c.subject[:len(c.subject):len(c.subject)], what)
}

func (c call) chance(p float64, what string) bool {
	return c.faulty() && c.world.plan.dice.chance(p, c.about(what)...)
}

func (c call) within(least, most time.Duration, what string) time.Duration {
	return c.world.plan.dice.within(least, most, c.about(what)...)
}

// faulty reports whether there may be faults now.
func (c call) faulty() bool {
	return !c.world.plan.faultless && c.dead != nil && c.world.now() < c.world.plan.horizon
}

// act does something after the time that it takes, or fails before or after that.
func (c call) act(ctx context.Context, do func() error) error {
	took := c.within(time.Millisecond, 20*time.Millisecond, "took")
	if c.chance(0.03, "slow") {
		took = min(c.within(time.Second, 45*time.Second, "slow"), max(c.world.plan.horizon-c.world.now(), took))
	}
	if err := c.wait(ctx, took); err != nil {
		return err
	}
	plan := &c.world.plan.claims
	dies := c.chance(plan.deadly, "dies")
	gone := c.faulty() && plan.outage.covers(c.world.now())
	away := c.chance(plan.away, "away") || gone
	if gone && plan.hangs {
		if err := c.wait(ctx, min(plan.outage.from+plan.outage.long, c.world.plan.horizon)-c.world.now()); err != nil {
			return err
		}
	}
	switch {
	case dies && c.chance(0.5, "before"):
		c.kill()
		return errDead
	case away && c.chance(0.5, "before"):
		return blob.ErrUnavailable
	}
	err := do()
	switch {
	case dies:
		c.kill()
		return errDead
	case away:
		return blob.ErrUnavailable
	}
	return err
}

// wait lets time pass. Calls whose contexts end at one instant return at different ones.
func (c call) wait(ctx context.Context, long time.Duration) error {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		time.Sleep(c.within(1, time.Millisecond, "lingers"))
		return context.Cause(ctx)
	}
	if c.dead != nil && c.dead() {
		return errDead
	}
	return nil
}

// Put implements blob.Store. The name of a body is random; here it depends on who stores what.
func (s *bodyStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	e := entry{kind: entombed, who: s.who, text: ref.Name}
	c := s.begin("settle", ref.Name)
	if o == nil {
		c = s.begin("put", string(content))
		sum := sha256.Sum256([]byte(fmt.Sprint(c.subject)))
		e = entry{kind: stored, who: s.who, text: fmt.Sprintf("bodies/%x", sum[:8]), outcome: string(content)}
		s.mu.Lock()
		s.names[ref.Name] = e.text
		s.mu.Unlock()
		ref.Name = e.text
	}
	return c.act(ctx, func() error { return s.world.changeBody(ctx, e, ref, content, o) })
}

// changeBody stores a body or a tombstone, and records that.
func (w *world) changeBody(ctx context.Context, e entry, ref blob.Ref, content []byte, o *blob.PutOptions) error {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	err := w.blobs.Put(ctx, ref, strings.NewReader(string(content)), o)
	if err == nil {
		w.history.append(e)
	}
	return err
}

// Open implements blob.Store.
func (s *bodyStore) Open(ctx context.Context, ref blob.Ref) (r *blob.Reader, err error) {
	d, _ := dispatcher.DeliveryFrom(ctx)
	c := s.begin("open", fmt.Sprint(ref.Name, d.ID, d.DequeueCount))
	err = c.act(ctx, func() error {
		if c.chance(s.world.plan.claims.missing, "missing") {
			s.world.history.note(entry{kind: hidden, who: s.who, id: d.ID, count: d.DequeueCount, text: ref.Name})
			return blob.ErrMissing
		}
		r, err = s.world.blobs.Open(ctx, ref)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Delete implements blob.Store.
func (s *bodyStore) Delete(ctx context.Context, ref blob.Ref) error {
	return s.begin("delete", ref.Name).act(ctx, func() error {
		s.world.history.mu.Lock()
		defer s.world.history.mu.Unlock()
		err := s.world.blobs.Delete(ctx, ref)
		if err == nil {
			s.world.history.append(entry{kind: swept, who: s.who, text: ref.Name})
		}
		return err
	})
}

// List implements blob.Store.
func (s *bodyStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return s.world.blobs.List(ctx, container, prefix)
}

// Create implements blob.Store. Nobody calls it.
func (s *bodyStore) Create(context.Context, blob.Ref, io.Reader, *blob.PutOptions) error {
	return errors.ErrUnsupported
}

// Stat implements blob.Store.
func (s *bodyStore) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
	return s.world.blobs.Stat(ctx, ref)
}

// processClaims are the claims of a process.
type processClaims struct {
	*claimcheck.Claims
	store *bodyStore
}

func (w *world) newClaims(s *bodyStore) processClaims {
	c, err := claimcheck.New(s, container, &claimcheck.Options{Limit: w.plan.claims.limit, Retention: w.plan.claims.retention})
	if err != nil {
		panic(err)
	}
	return processClaims{c, s}
}

// Put stores a body and returns a claim with the name that the body has here.
func (c processClaims) Put(ctx context.Context, body []byte) (string, error) {
	text, err := c.Claims.Put(ctx, body)
	if err != nil {
		return "", err
	}
	claim, err := claimtext.Parse(text)
	if err != nil {
		return "", err
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	claim.Ref.Name = c.store.names[claim.Ref.Name]
	return claim.String(), nil
}

// claims returns the claims of a worker.
func (p *process) claims() dispatcher.Claims {
	if !p.world.plan.claims.on {
		return nil
	}
	s := p.world.bodyStore(p.plan.name)
	s.dead, s.kill = p.isDead, p.wire.Kill
	return p.world.breakage.claims(p, p.world.newClaims(s))
}

// claimed returns the text of a job's message whose body is stored, or "" if that failed.
func (w *world) claimed(j jobPlan, at time.Time, try int) string {
	claim, err := w.sending.Put(context.Background(), []byte(j.body(try, 0)))
	if err != nil {
		return ""
	}
	text, err := envelope.Seal(envelope.Head{ID: "job-" + str(j.n), Key: j.key, Kind: j.kind, Enqueued: at, Claim: claim}, nil, codec.Envelope)
	if err != nil {
		panic(err)
	}
	return text
}

// sweep sweeps the store from time to time, until the horizon.
func (w *world) sweep() {
	for n := 1; w.now() < w.plan.horizon; n++ {
		time.Sleep(w.plan.dice.within(w.plan.claims.sweepEvery/2, w.plan.claims.sweepEvery, "sweep", str(n)))
		if err := w.breakage.sweep(w.newClaims(w.bodyStore("janitor"))); err != nil {
			w.addViolation("sweep: %v", err)
		}
	}
}
