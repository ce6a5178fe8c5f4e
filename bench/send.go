package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/azurequeue"
)

// producing measures producers beside the requests that they send, made with net/http alone. The senders are in this
// process, and the server, the same for all, in another one.
type producing struct {
	turns
	contenders  []sender
	concurrency int
	jobs        int
}

func (s *producing) flags(f *flag.FlagSet) {
	s.turns.flags(f)
	several(f, &s.contenders, allSenders, named(allSenders), "contenders", "who sends; the others are compared with the first")
	one(f, &s.concurrency, 32, between(1, 1024, strconv.Atoi), "concurrency", "how many requests at once")
	one(f, &s.jobs, 20_000, positive, "jobs", "how many jobs of 1 KB; packed ones are five times as many")
}

func (s *producing) check() error { return nil }

// sender is a way to send a number of jobs.
type sender struct {
	name  string
	fast  bool // over http1
	share int  // how many times -jobs it sends
	send  func(ctx context.Context, to recipient, jobs int) error
}

func (s sender) String() string { return s.name }

var allSenders = []sender{
	{"post", false, 1, sendPosts},
	{"send", false, 1, sendEach},
	{"send-http1", true, 1, sendEach},
	{"sendall", false, 1, sendTogether(1)},
	{"sendall-http1", true, 1, sendTogether(1)},
	{"packed", false, 5, sendTogether(packed)},
	{"packed-http1", true, 5, sendTogether(packed)},
}

// recipient is a queue for one measurement.
type recipient struct {
	queue       *azurequeue.Queue
	address     string // for posts, with the right to send
	body        []byte // of a post
	concurrency int
}

type senderTurn struct {
	sender
	samples samples
}

func (s *producing) run(ctx context.Context, h *harness) (*report, error) {
	server, err := startServer(serverOptions{})
	if err != nil {
		return nil, err
	}
	var all []*senderTurn
	for _, one := range s.contenders {
		all = append(all, &senderTurn{sender: one})
	}
	err = takeTurns(ctx, h, s.rounds, all, func(t *senderTurn, _ int) error {
		taken, err := s.once(ctx, server, t.sender)
		t.samples = append(t.samples, taken)
		return err
	})
	return &report{head: h.machine + ".\n\n", table: sendingTable(all)}, errors.Join(err, server.stop())
}

// once measures a contender on a queue of its own, after a tenth of its jobs, so that connections are open.
func (s *producing) once(ctx context.Context, server *server, who sender) (taken sample, err error) {
	location, name := server.started.Locations[0], fmt.Sprintf("bench-%d", time.Now().UnixNano())
	q, stop, err := consumption{location: location, queue: name, concurrency: s.concurrency}.open(who.fast)
	if err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := q.Create(ctx, nil); err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, q.Drop(context.WithoutCancel(ctx))) }()
	address, err := signedAddress(location, name)
	if err != nil {
		return taken, err
	}
	body, err := putRequest(ctx, q)
	if err != nil {
		return taken, err
	}
	to := recipient{q, address, body, s.concurrency}
	jobs := s.jobs * who.share
	if err := who.send(ctx, to, max(1, jobs/10)); err != nil {
		return taken, err
	}
	runtime.GC() // so that no contender pays for another's garbage
	before, err := lookAt(server)
	if err != nil {
		return taken, err
	}
	if err := who.send(ctx, to, jobs); err != nil {
		return taken, err
	}
	after, err := lookAt(server)
	taken = after.minus(before)
	taken.messages = int64(jobs)
	return taken, err
}

// signedAddress returns the address of the messages of a queue with the right to add to them.
func signedAddress(location, name string) (string, error) {
	client, err := azqueue.NewQueueClientFromConnectionString(location, name, nil)
	if err != nil {
		return "", err
	}
	key, err := azqueue.NewSharedKeyCredential(emulator.DevelopmentAccount, emulator.DevelopmentKey)
	if err != nil {
		return "", err
	}
	add := sas.QueuePermissions{Add: true}
	query, err := sas.QueueSignatureValues{
		QueueName: name, Permissions: add.String(), ExpiryTime: time.Now().Add(24 * time.Hour), Protocol: sas.ProtocolHTTPSandHTTP,
	}.SignWithSharedKey(key)
	return client.URL() + "/messages?" + query.Encode(), err
}

func lookAt(server *server) (sample, error) {
	state, err := server.look()
	if err != nil {
		return sample{}, err
	}
	taken, err := (&running{done: func() int64 { return 0 }}).look()
	taken.requests = state.Requests
	return taken, err
}

// atOnce calls one for each job, at most so many at once.
func (to recipient) atOnce(ctx context.Context, jobs int, one func(context.Context) error) error {
	var begun atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range to.concurrency {
		g.Go(func() error {
			for begun.Add(1) <= int64(jobs) {
				if err := one(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// putRequest returns the body of the request that puts a job.
func putRequest(ctx context.Context, q *azurequeue.Queue) ([]byte, error) {
	if _, err := producer.New[parcel](q, nil).Send(ctx, kilobyte, nil); err != nil {
		return nil, err
	}
	sent, err := q.Peek(ctx, 1)
	if err != nil || len(sent) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d messages on the queue, want one", len(sent)))
	}
	var body bytes.Buffer
	body.WriteString(xml.Header + "<QueueMessage><MessageText>")
	err = xml.EscapeText(&body, []byte(sent[0].Text))
	body.WriteString("</MessageText></QueueMessage>")
	return body.Bytes(), err
}

// sendPosts posts the same body each time. The address has a signature, so that no request needs one of its own.
func sendPosts(ctx context.Context, to recipient, jobs int) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.Proxy = 0, to.concurrency, nil
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	return to.atOnce(ctx, jobs, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.address, bytes.NewReader(to.body))
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); resp.StatusCode != http.StatusCreated {
			err = errors.Join(err, errors.New(resp.Status))
		}
		return err
	})
}

// sendEach calls Send for each job.
func sendEach(ctx context.Context, to recipient, jobs int) error {
	p := producer.New[parcel](to.queue, nil)
	return to.atOnce(ctx, jobs, func(ctx context.Context) error {
		_, err := p.Send(ctx, kilobyte, nil)
		return err
	})
}

// sendTogether calls SendAll, with so many jobs in a message at most.
func sendTogether(perMessage int) func(context.Context, recipient, int) error {
	return func(ctx context.Context, to recipient, jobs int) error {
		_, err := producer.New[parcel](to.queue, nil).SendAll(ctx, slices.Repeat([]parcel{kilobyte}, jobs),
			&producer.SendAllOptions[parcel]{Concurrency: to.concurrency, PerMessage: perMessage})
		return err
	}
}

// sendingTable returns the results as Markdown. Ratios are to the first contender, in the same round.
func sendingTable(all []*senderTurn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| sender | jobs a second | × %s | jobs per client-processor-second | × %[1]s | allocations a job | requests a job |\n|---|--:|--:|--:|--:|--:|--:|\n", all[0].name)
	for _, t := range all {
		fmt.Fprintf(&b, "| %v | %.0f | %.2f | %.0f | %.2f | %.1f | %.3f |\n", t.sender,
			t.samples.median(sample.perSecond), t.samples.times(all[0].samples, sample.perSecond),
			t.samples.median(sample.perProcessorSecond), t.samples.times(all[0].samples, sample.perProcessorSecond),
			t.samples.median(func(s sample) float64 { return s.perMessage(float64(s.mallocs)) }),
			t.samples.median(func(s sample) float64 { return s.perMessage(float64(s.requests)) }))
	}
	return b.String()
}
