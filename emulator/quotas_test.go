package emulator

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// TestMessageQuota: each queue accepts one second's worth of messages at once, and then as many as
// time passes.
func TestMessageQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, &Options{Quotas: Quotas{Messages: 2000}})
		put := func(queue string) outcome {
			return attempt(t, s, signed("POST", "/"+queue+"/messages", wrap("x")))
		}
		for range 3 {
			for i := range 2000 {
				if got := put("orders"); got.status != 201 {
					t.Fatalf("message %d: got %+v, want status 201", i+1, got)
				}
			}
			got := put("orders")
			if got.status != 503 || got.code != "ServerBusy" || got.header.Get("Retry-After") != "" {
				t.Fatalf("message 2001: got %+v, want 503 ServerBusy without Retry-After", got)
			}
			if got := attempt(t, s, signed("PUT", "/others", "")); got.status >= 300 {
				t.Fatalf("create others: got %+v, want a status below 300", got)
			}
			if got := put("others"); got.status != 201 {
				t.Fatalf("another queue: got %+v, want status 201", got)
			}
			if got := attempt(t, s, signed("GET", "/orders/messages?peekonly=true", "")); got.status != 200 {
				t.Fatalf("peek: got %+v, want status 200", got)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour) // tokens of more than a second are lost
		for i := range 2001 {
			if got := put("orders"); (got.status == 201) != (i < 2000) {
				t.Fatalf("message %d after an hour: got %+v, want 201 for the first 2000 only", i+1, got)
			}
		}
		time.Sleep(500 * time.Microsecond) // enough for one
		if got := put("orders"); got.status != 201 {
			t.Errorf("message after half a millisecond: got %+v, want status 201", got)
		}
		if got := put("orders"); got.status != 503 {
			t.Errorf("next message: got %+v, want status 503", got)
		}
		counts := s.Counts()
		if counts.OverQuota != 5 || counts.Busy != 5 || len(counts.Faults) != 0 || depth(t, q) != 8001 {
			t.Errorf("got depth %d, want 8001; counts want 5 limited and busy, and no faults:\n%v", depth(t, q), counts)
		}
	})
}

// TestGetsAreChargedTheirMessages: a get takes one token for each message it returns and may leave
// a debt. An empty get takes none.
func TestGetsAreChargedTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, &Options{Quotas: Quotas{Messages: 10}})
		get := func() outcome { return attempt(t, s, signed("GET", "/orders/messages?numofmessages=32", "")) }
		for range 100 {
			if got := get(); got.status != 200 {
				t.Fatalf("empty get: got %+v, want status 200", got)
			}
		}
		var leases []queue.Lease
		for range 64 {
			m, err := q.Enqueue(t.Context(), "x", nil)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, m.Lease)
		}
		if got := get(); got.status != 200 {
			t.Fatalf("get of 32 with 10 tokens: got %+v, want status 200", got)
		}
		time.Sleep(2300*time.Millisecond - time.Nanosecond) // a debt of 22, and one token
		if got := get(); got.status != 503 {
			t.Fatalf("get a nanosecond too early: got %+v, want status 503", got)
		}
		time.Sleep(time.Nanosecond)
		if got := get(); got.status != 200 {
			t.Fatalf("get in time: got %+v, want status 200", got)
		}
		time.Sleep(4100 * time.Millisecond) // a debt of 31, and ten tokens
		for i := range 11 {
			address := "/orders/messages/" + string(leases[i].ID) + "?popreceipt=" + url.QueryEscape(string(leases[i].Receipt))
			if got := attempt(t, s, signed("DELETE", address, "")); (got.status == 503) != (i == 10) {
				t.Errorf("delete %d: got %+v, want 503 for the 11th only", i+1, got)
			}
		}
		if got := s.Counts().Messages; got != 64 {
			t.Errorf("messages counted: got %d, want 64", got)
		}
	})
}

// TestRequestQuota: authorized requests of one account are limited.
func TestRequestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, err := base64.StdEncoding.DecodeString(DevelopmentKey)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := withOptions(t, &Options{Quotas: Quotas{Requests: 100}, Accounts: map[string][]byte{"second": key}})
		list := func(account string, status int) {
			t.Helper()
			r := signed("GET", "?comp=list", "")
			r.URL.Path = "/" + account
			sign(r)
			if got := attempt(t, s, r); got.status != status {
				t.Errorf("list of %s: got %+v, want status %d", account, got, status)
			}
		}
		for range 1000 { // these take no tokens
			r := signed("GET", "?comp=list", "")
			r.Header.Del("Authorization")
			attempt(t, s, r)
			attempt(t, s, signed("OPTIONS", "/orders", ""))
		}
		for range 99 {
			list(DevelopmentAccount, 200)
		}
		list(DevelopmentAccount+"-secondary", 200)
		list(DevelopmentAccount, 503)
		list(DevelopmentAccount+"-secondary", 503)
		list("second", 200)
		body := do(t, s, signed("GET", "?comp=list", "")).body
		if !strings.Contains(body, "<Code>ServerBusy</Code><Message>Operations per second is over the account limit.\nRequestId:") {
			t.Errorf("response over the quota: got %s, want ServerBusy", body)
		}
		time.Sleep(10 * time.Millisecond)
		list(DevelopmentAccount, 200)
		list(DevelopmentAccount, 503)
		if got := s.Counts(); got.OverQuota != 4 || got.Busy != 4 {
			t.Errorf("counts: got\n%v\nwant 4 limited and busy", got)
		}
	})
}

// TestTokenBucketKeepsItsRate: at any pace, a bucket gives at most one second's worth of tokens
// plus those added since, and never refuses a token that it has.
func TestTokenBucketKeepsItsRate(t *testing.T) {
	type step struct {
		Wait time.Duration
		More int
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "wait")),
			rapid.IntRange(-1, 32).Draw(t, "more"),
		}
	}), 1, 50)
	rapid.Check(t, func(r *rapid.T) {
		rate := int64(rapid.SampledFrom([]int{1, 3, 7, 2000, maxQuota}).Draw(r, "rate"))
		all, failed := steps.Draw(r, "steps"), ""
		synctest.Test(t, func(*testing.T) {
			b := newTokenBucket(int(rate))
			level := rate * oneToken // computed in another way
			for i, step := range all {
				time.Sleep(step.Wait)
				for range step.Wait / time.Second {
					level = min(rate*oneToken, level+rate*oneToken)
				}
				level = min(rate*oneToken, level+int64(step.Wait%time.Second)*rate)
				if got, want := b.take(), level >= oneToken; got != want {
					failed = fmt.Sprintf("step %d: take: got %v, want %v with %d billionths of a token", i, got, want, level)
					return
				}
				if level >= oneToken {
					level -= oneToken
				}
				b.charge(step.More)
				level = min(rate*oneToken, level-int64(step.More)*oneToken)
			}
			time.Sleep(100 * 365 * 24 * time.Hour)
			if !b.isFull() {
				failed = "the bucket is not full after a hundred years"
			}
		})
		if failed != "" {
			r.Fatal(failed)
		}
	})
}

// TestFullBucketsAreRemoved: buckets of made-up queue names do not accumulate.
func TestFullBucketsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buckets := newQueueBuckets(10)
		for round := range 10 {
			for i := range minPrune {
				if b := buckets.of(queue.Name{Account: "a", Queue: fmt.Sprintf("queue-%d-%d", round, i)}); !b.take() {
					t.Fatal("a new bucket is empty")
				}
			}
			time.Sleep(time.Second)
		}
		if n := len(buckets.buckets); n > 2*minPrune {
			t.Errorf("buckets: got %d, want at most %d", n, 2*minPrune)
		}
		name := queue.Name{Account: "a", Queue: "busy"}
		for range 10 {
			buckets.of(name).take()
		}
		for i := range 3 * minPrune { // enough for full buckets to be removed
			buckets.of(queue.Name{Account: "b", Queue: fmt.Sprint("queue-", i)}).take()
		}
		if buckets.of(name).take() {
			t.Error("a bucket that is not full was removed")
		}
	})
}
