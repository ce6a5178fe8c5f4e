package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// TestNoMessageIsLostUnderFaults sends and receives messages with azurequeue and retries under all
// faults and a quota. Every message must arrive, and the messages that the server's log says
// were put must be those that the consumer got.
func TestNoMessageIsLostUnderFaults(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				// A delay that ends when a client gives up (10 s or 20 s) would leave it to chance whether a
				// request without a response was executed.
				rules, err := ParseFaults("*:503@5% *:500@5% *:408@3% *:403@3% *:reset@5% *:drop@5% *:duplicate@5% *:delay=21s@5% put:503@#1,2,3 delete:drop@1/7")
				if err != nil {
					t.Fatal(err)
				}
				s, q := withOptions(t, &Options{Log: j.log(), Faults: &Faults{Seed: seed, Rules: rules}, Quotas: Quotas{Messages: 20, Requests: 100}})
				client, err := azurequeue.Open(s.ConnectionString(), "orders", &azurequeue.Options{Transport: &http.Client{Transport: s}})
				if err != nil {
					t.Fatal(err)
				}
				const n = 100
				for i := range n {
					text := fmt.Sprint("order ", i)
					if err := retry.Do(t.Context(), text, transientOrRefused, func(ctx context.Context) error {
						_, err := client.Enqueue(ctx, text, nil)
						return err
					}); err != nil {
						t.Fatal(err)
					}
				}
				texts, ids := map[string]int{}, map[queue.ID]bool{}
				for depth(t, q) > 0 {
					consumeOne(t, client, texts, ids)
				}
				if len(texts) != n {
					t.Errorf("orders that arrived: got %d, want %d", len(texts), n)
				}
				checkCounts(t, s, j.records(t), len(ids))
			})
		})
	}
}

// transientOrRefused is queue.Transient, and reports a fault that looks like a lost right too.
func transientOrRefused(err error) bool {
	return queue.Transient(err) || errors.Is(err, queue.ErrUnauthorized)
}

// consumeOne gets some messages and deletes them. A request without a response may have been
// executed, so it is no error if a repeated delete finds the message gone.
func consumeOne(t *testing.T, client queue.Queue, texts map[string]int, ids map[queue.ID]bool) {
	t.Helper()
	var got []queue.Message
	if err := retry.Do(t.Context(), "get", transientOrRefused, func(ctx context.Context) (err error) {
		got, err = client.Dequeue(ctx, 32, 10*time.Minute)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 {
		time.Sleep(time.Minute) // until the messages of a dropped response are visible again
	}
	for _, m := range got {
		texts[m.Text]++
		ids[m.ID] = true
		err := retry.Do(t.Context(), string(m.ID), transientOrRefused, func(ctx context.Context) error { return client.Delete(ctx, m.Lease) })
		if err != nil && !errors.Is(err, queue.ErrMessageGone) && !errors.Is(err, queue.ErrReceiptMismatch) {
			t.Fatal(err)
		}
	}
}

// checkCounts compares the log with the counts, and the messages that were put with those that
// the consumer got.
func checkCounts(t *testing.T, s *Server, log []record, seen int) {
	t.Helper()
	counts := s.Counts()
	if int64(len(log)) != counts.Requests() {
		t.Errorf("log records: got %d, want %d, one for each request", len(log), counts.Requests())
	}
	put, dropped, limited, faults := 0, 0, 0, map[FaultKind]int64{}
	ids := map[string]bool{} // of requests: those of a duplicate are the same
	for _, r := range log {
		if r.Limited {
			limited++
		}
		if r.Operation == string(PutMessage) {
			put += count(r.Status == 201)
			dropped += count(r.Fault == "drop" && !r.Limited) // one that was limited was not executed
		}
		if ids[r.ID] || r.Fault == "" {
			continue
		}
		ids[r.ID] = true
		for kind := range strings.FieldsSeq(r.Fault) {
			kind, _, _ = strings.Cut(kind, "=")
			faults[FaultKind(kind)]++
		}
	}
	for _, kind := range faultKinds {
		if faults[kind] != counts.Faults[kind] || faults[kind] == 0 {
			t.Errorf("fault %s: got %d in the log and %d in the counts, want the same and more than 0", kind, faults[kind], counts.Faults[kind])
		}
	}
	if int64(limited) != counts.OverQuota || limited == 0 {
		t.Errorf("requests over a quota: got %d in the log and %d in the counts, want the same and more than 0", limited, counts.OverQuota)
	}
	if seen != put+dropped || dropped == 0 {
		t.Errorf("messages seen: got %d, want %d, those put plus %d put without a response (want more than 0)", seen, put+dropped, dropped)
	}
	if int64(seen) > counts.Messages {
		t.Errorf("Counts.Messages: got %d, want at least the %d messages seen", counts.Messages, seen)
	}
}
