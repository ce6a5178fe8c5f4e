package listener_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
)

// BenchmarkGroups sends jobs of 1 KiB in groups of 50 through a server on a socket that allows 2,000
// messages a second, and handles and deletes them: a put, a get and a delete count one each, so no more
// than 33,333 jobs a second can pass. One job at a time it would be 667. An iteration is a job.
func BenchmarkGroups(b *testing.B) {
	const perGroup, limit = 50, 2000
	server := must(emulator.New(nil, &emulator.Options{Quotas: emulator.Quotas{Messages: limit}}))
	endpoint, err := server.Start("")
	if err != nil {
		b.Fatal(err)
	}
	defer endpoint.Close()
	transport, err := http1.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer transport.Close()
	q, err := azurequeue.Open(endpoint.ConnectionString(), "records", &azurequeue.Options{Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	if err := q.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	for range limit { // the burst that the limit allows would be a gain without a merit
		_ = q.Delete(b.Context(), queue.Lease{ID: "00000000-0000-0000-0000-000000000000", Receipt: "AAAAAAAA"})
	}

	groups := (b.N + perGroup - 1) / perGroup
	jobs := make([]record, perGroup)
	for i := range jobs {
		jobs[i] = record{i, strings.Repeat("x", 1024-len(`{"Number":10,"Text":""}`))}
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var handled atomic.Int64
	o := &listener.Options[record]{Logger: dayOptions().Logger}
	o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		if outcome == listener.Deleted && handled.Add(1) == int64(groups) {
			cancel()
		}
	}
	l := listener.New(q, func(_ context.Context, m *listener.Message[record]) error { return nil }, o)

	b.ReportAllocs()
	b.ResetTimer()
	begin := time.Now()
	var senders sync.WaitGroup
	p := producer.New[record](q, nil)
	var next atomic.Int64
	for range 4 {
		senders.Go(func() {
			for g := next.Add(1) - 1; g < int64(groups); g = next.Add(1) - 1 {
				time.Sleep(time.Until(begin.Add(time.Duration(g) * time.Second * 3 / limit))) // a third is for puts
				if _, err := p.SendGroup(b.Context(), jobs, nil); err != nil {
					b.Error(err)
					cancel()
				}
			}
		})
	}
	if err := l.Run(ctx); err != nil {
		b.Fatal(err)
	}
	senders.Wait()
	took := time.Since(begin)
	counts := server.Counts()
	b.ReportMetric(float64(groups*perGroup)/took.Seconds(), "jobs/s")
	b.ReportMetric(float64(counts.OverQuota)/float64(groups), "refused/group")
}
