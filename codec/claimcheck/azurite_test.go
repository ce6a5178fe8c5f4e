package claimcheck_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// onAzurite returns claims in a container of their own.
func onAzurite(t *testing.T, o *claimcheck.Options) (_ *claimcheck.Claims, _ blob.Store, container string) {
	t.Helper()
	s, err := azureblob.Open(azuritetest.BlobConnectionString(t), &azureblob.Options{BlockSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	container = "claims-" + strings.ToLower(rand.Text())
	c, err := claimcheck.New(s, container, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, s, container
}

// On a service: bodies of one request and of several blocks, tombstones, and what is not there.
func TestAzuriteKeepsBodies(t *testing.T) {
	c, s, _ := onAzurite(t, &claimcheck.Options{Retention: time.Millisecond})
	ctx := t.Context()
	if _, err := c.Open(ctx, claimtext.Claim{Ref: blob.Ref{Container: "claims-none", Name: "bodies/a"}}.String()); !errors.Is(err, envelope.ErrClaimInvalid) {
		t.Errorf("another container: got %v, want ErrClaimInvalid", err)
	}
	random := mathrand.NewChaCha8([32]byte{})
	var claims []string
	for _, size := range []int{0, 1000, 64 << 10, 64<<10 + 1, 1 << 20} {
		body := make([]byte, size)
		_, _ = random.Read(body) // it never fails
		claim, err := c.Put(ctx, body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Open(ctx, claim); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes: got %d bytes, %v", size, len(got), err)
		}
		claims = append(claims, claim)
	}
	gone, damaged := claims[1], claims[4]
	if err := s.Delete(ctx, ref(t, gone)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(ctx, gone); !errors.Is(err, envelope.ErrClaimGone) {
		t.Errorf("deleted: got %v, want ErrClaimGone", err)
	}
	if err := s.Put(ctx, ref(t, damaged), bytes.NewReader(make([]byte, 1<<20)), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(ctx, damaged); !errors.Is(err, envelope.ErrClaimInvalid) {
		t.Errorf("damaged: got %v, want ErrClaimInvalid", err)
	}
	for range 2 {
		if err := c.Settled(ctx, claims[3]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Open(ctx, claims[3]); !errors.Is(err, envelope.ErrClaimSettled) {
		t.Errorf("settled: got %v, want ErrClaimSettled", err)
	}
	azuritetest.Until(t, "the service, which keeps whole seconds, says that all are old", func() bool {
		for body, err := range c.List(ctx) {
			if age, e := body.Age(); err != nil || e != nil || age == 0 {
				return false
			}
		}
		return true
	})
	if swept, err := c.Sweep(ctx); err != nil || swept != (claimcheck.Removed{Blobs: 1}) {
		t.Errorf("Sweep: got %+v, %v; want the tombstone", swept, err)
	}
	if _, err := c.Open(ctx, claims[3]); !errors.Is(err, envelope.ErrClaimGone) {
		t.Errorf("swept: got %v, want ErrClaimGone", err)
	}
	if purged, err := c.Purge(ctx, time.Hour); err != nil || purged != (claimcheck.Removed{}) {
		t.Errorf("Purge of an hour: got %+v, %v; want nothing", purged, err)
	}
	if purged, err := c.Purge(ctx, time.Millisecond); err != nil || purged != (claimcheck.Removed{Blobs: 3, Bytes: 64<<10 + 1<<20}) {
		t.Errorf("Purge: got %+v, %v; want the three that are left", purged, err)
	}
}

// Where there is no container there is no body, and nothing to sweep.
func TestAzuriteHasNoBodyInAContainerThatIsMissing(t *testing.T) {
	c, _, missing := onAzurite(t, nil)
	other, _, _ := onAzurite(t, nil)
	claim, err := other.Put(t.Context(), []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(t.Context(), strings.Replace(claim, ref(t, claim).Container, missing, 1)); !errors.Is(err, envelope.ErrClaimGone) {
		t.Errorf("got %v, want ErrClaimGone", err)
	}
	if swept, err := c.Sweep(t.Context()); err != nil || swept.Blobs != 0 {
		t.Errorf("Sweep: got %+v, %v; want nothing", swept, err)
	}
}

// counter counts requests.
type counter struct {
	http.RoundTripper
	requests atomic.Int64
}

func (c *counter) Do(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTrip(r)
}

// Jobs with large bodies, from a producer to a handler: each costs three requests to the service.
func TestAzuriteIsAskedThreeTimesForABody(t *testing.T) {
	sockets := &http.Transport{}
	t.Cleanup(sockets.CloseIdleConnections)
	asked := &counter{RoundTripper: sockets}
	s, err := azureblob.Open(azuritetest.BlobConnectionString(t), &azureblob.Options{Transport: asked})
	if err != nil {
		t.Fatal(err)
	}
	c, err := claimcheck.New(s, "claims-"+strings.ToLower(rand.Text()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), nil); err != nil { // it makes the container
		t.Fatal(err)
	}
	b := setup(t)
	b.claims = c
	asked.requests.Store(0)
	const jobs = 20
	text := strings.Repeat("x", 200_000)
	p := producer.New(b.queue, &producer.Options[job]{Claims: c})
	for n := range jobs {
		if _, err := p.Send(t.Context(), job{fmt.Sprint(n), text}, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := options(c)
	o.Concurrency, o.Fetch.Idle = 8, listener.Idle{Max: 100 * time.Millisecond}
	var settled atomic.Int64
	o.Observer.Settled = func(listener.Delivery, listener.Outcome, time.Duration) {
		if settled.Add(1) == jobs {
			stop()
		}
	}
	l := listener.New(b.queue, func(_ context.Context, m *listener.Message[job]) error {
		if m.Body.Text != text {
			t.Errorf("job %s: got %d bytes", m.Body.Name, len(m.Body.Text))
		}
		return nil
	}, o)
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := asked.requests.Load(); l.State().Outcomes[listener.Deleted] != jobs || n != 3*jobs {
		t.Errorf("got %d successes and %d requests, want %d and %d", l.State().Outcomes[listener.Deleted], n, jobs, 3*jobs)
	}
	waiting := 0
	for body := range c.List(t.Context()) {
		if !body.Settled {
			waiting++
		}
	}
	if waiting != 1 { // what made the container
		t.Errorf("got %d bodies left, want one", waiting)
	}
}
