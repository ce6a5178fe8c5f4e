package shards_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/sharded"
	"github.com/millrace/millrace/wakeup"
)

// tenantLoad is what tenants send: each of the quiet ones a job of 50 ms in a second, and the noisy one, if
// there is one, 100 jobs of a second in a second, more than all slots can handle.
type tenantLoad struct {
	*bundle
	noisy bool

	perTenant int  // 0 for no tenants
	woken     bool // by the producers, with reserved slots; otherwise the shards are polled
	lasts     time.Duration

	waiting sync.Mutex
	sent    map[int]time.Time        // guarded by waiting
	waits   map[bool][]time.Duration // of quiet tenants, by whether they share a shard with the noisy one; guarded by waiting
	shares  []bool                   // by tenant
}

const (
	noisyTenant  = 0
	quietTenants = 24
)

// tenantJob is a job of a tenant.
type tenantJob struct{ N, Tenant int }

func tenant(i int) string { return fmt.Sprintf("tenant-%d", i) }

// run returns the 99th percentile of how long jobs of quiet tenants wait from the Send to the handler:
// of those that share no shard with the noisy one, and of the others.
func (w *tenantLoad) run() (apart, sharing time.Duration) {
	w.sent, w.waits = map[int]time.Time{}, map[bool][]time.Duration{}
	var all []queue.Queue
	for _, q := range w.bundle.shards(8) {
		all = append(all, must(faultqueue.New(q, &faultqueue.Options{Seed: 1, UsualLatency: faultqueue.Range{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}})))
	}
	q, err := sharded.New(all, &sharded.Options{PerTenant: w.perTenant, Seed: 1})
	if err != nil {
		w.Fatal(err)
	}
	w.findSharers(q)
	o := &shards.Options[tenantJob]{Slots: 64, Listener: &listener.Options[tenantJob]{Logger: w.options().Listener.Logger, Seed: 1}}
	po := &producer.Options[tenantJob]{}
	if w.woken {
		bus := new(wakeup.Bus)
		o.Listener.Wakeups, po.Wakeups = bus, bus
		o.Member = &slots.MemberOptions{Reserve: 4}
	}
	l := must(shards.New(all, w.handle, o))
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	w.send(producer.New(q, po))
	time.Sleep(10 * time.Second) // for the quiet ones; the noisy one has a backlog
	l.Halt()
	stop()
	if err := <-done; err != nil {
		w.Fatal(err)
	}
	return w.percentile(false), w.percentile(true)
}

// findSharers finds out which tenants share a shard with the noisy one.
func (w *tenantLoad) findSharers(q *sharded.Queue) {
	of := func(i int) (names []queue.Name) {
		for _, s := range q.ShardsOf(tenant(i)) {
			names = append(names, s.Name())
		}
		return names
	}
	noisy := of(noisyTenant)
	w.shares = make([]bool, quietTenants+1)
	for i := range w.shares {
		w.shares[i] = slices.ContainsFunc(of(i), func(n queue.Name) bool { return slices.Contains(noisy, n) })
	}
}

// send sends the jobs at random instants, the same in every run.
func (w *tenantLoad) send(p *producer.Producer[tenantJob]) {
	n := 0
	var all sync.WaitGroup
	begin := func(i int, perSecond float64) {
		random, first := rand.New(rand.NewPCG(1, uint64(i))), n
		n += 1_000_000
		all.Go(func() {
			for at, end := time.Now(), time.Now().Add(w.lasts); ; first++ {
				at = at.Add(time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)))
				if at.After(end) {
					return
				}
				time.Sleep(time.Until(at))
				number := first
				all.Go(func() {
					w.note(number)
					if _, err := p.Send(w.Context(), tenantJob{number, i}, &producer.SendOptions{Key: tenant(i)}); err != nil {
						w.Error(err)
					}
				})
			}
		})
	}
	for i := range quietTenants {
		begin(1+i, 1)
	}
	if w.noisy {
		begin(noisyTenant, 100)
	}
	all.Wait()
}

func (w *tenantLoad) note(n int) {
	w.waiting.Lock()
	defer w.waiting.Unlock()
	w.sent[n] = time.Now()
}

func (w *tenantLoad) handle(ctx context.Context, m *listener.Message[tenantJob]) error {
	took := time.Second
	if m.Body.Tenant != noisyTenant {
		took = 50 * time.Millisecond
		w.waiting.Lock()
		shares := w.shares[m.Body.Tenant]
		w.waits[shares] = append(w.waits[shares], time.Since(w.sent[m.Body.N]))
		w.waiting.Unlock()
	}
	select {
	case <-time.After(took):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// percentile returns the 99th percentile of the tenants that share, or of those that do not.
func (w *tenantLoad) percentile(sharing bool) time.Duration {
	waits := slices.Sorted(slices.Values(w.waits[sharing]))
	if len(waits) < 100 {
		return 0
	}
	return waits[len(waits)*99/100]
}

// S-05: with two of eight shards for each tenant, a tenant that floods its shards adds at most a tenth to the 99th
// percentile of those that share no shard with it, polled and woken. Without tenants it
// adds much more to everybody, as it does to those that share a shard.
func TestANoisyTenantSlowsOnlyThoseThatShareAShard(t *testing.T) {
	if testing.Short() {
		t.Skip("a percentile needs many jobs")
	}
	for _, woken := range []bool{true, false}[:suitetest.Size(1, 2)] {
		lasts := 2 * time.Minute
		if !woken {
			lasts = 5 * time.Minute
		}
		measure := func(noisy bool, perTenant int) (apart, sharing time.Duration) {
			bubble(t, func(b *bundle) {
				apart, sharing = (&tenantLoad{bundle: b, noisy: noisy, perTenant: perTenant, woken: woken, lasts: lasts}).run()
			})
			return apart, sharing
		}
		quiet, quietSharing := measure(false, 2)
		loud, loudSharing := measure(true, 2)
		_, mixed := measure(true, 0)
		t.Logf("woken %v: 99th percentile without a noisy tenant %v and %v, with one %v apart and %v sharing; without tenants %v", woken, quiet, quietSharing, loud, loudSharing, mixed)
		chance := max(quiet, quietSharing) // the two differ by chance alone
		if quiet == 0 || loud > chance+chance/10 {
			t.Errorf("woken %v: got a 99th percentile of %v, want at most a tenth more than %v", woken, loud, chance)
		}
		if loudSharing < 2*quietSharing || mixed < 2*quiet {
			t.Errorf("woken %v: got %v for those that share, %v without tenants; want much more than %v: the load is no flood", woken, loudSharing, mixed, quiet)
		}
	}
}
