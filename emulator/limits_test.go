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

// TestLimitOfMessages: a second's worth at once, and then as much as time passes,
// for each queue by itself.
func TestLimitOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, &Options{Limits: Limits{Messages: 2000}})
		put := func(queue string) outcome {
			return attempt(t, s, signed("POST", "/"+queue+"/messages", wrap("x")))
		}
		for range 3 {
			for i := range 2000 {
				if got := put("orders"); got.status != 201 {
					t.Fatalf("message %d: %+v", i+1, got)
				}
			}
			got := put("orders")
			if got.status != 503 || got.code != "ServerBusy" || got.header.Get("Retry-After") != "" {
				t.Fatalf("message 2001: %+v", got)
			}
			if got := attempt(t, s, signed("PUT", "/others", "")); got.status >= 300 {
				t.Fatalf("%+v", got)
			}
			if got := put("others"); got.status != 201 {
				t.Fatalf("another queue: %+v", got)
			}
			if got := attempt(t, s, signed("GET", "/orders/messages?peekonly=true", "")); got.status != 200 {
				t.Fatalf("peek: %+v", got)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour) // saves up no more than a second's worth
		for i := range 2001 {
			if got := put("orders"); (got.status == 201) != (i < 2000) {
				t.Fatalf("message %d after an hour: %+v", i+1, got)
			}
		}
		time.Sleep(500 * time.Microsecond) // which is worth one
		if got := put("orders"); got.status != 201 {
			t.Errorf("%+v", got)
		}
		if got := put("orders"); got.status != 503 {
			t.Errorf("%+v", got)
		}
		counts := s.Counts()
		if counts.Limited != 5 || counts.Busy != 5 || len(counts.Faults) != 0 || depth(t, q) != 8001 {
			t.Errorf("depth %d, counted\n%v", depth(t, q), counts)
		}
	})
}

// TestLimitOfGets: a get takes what it brings, and what it takes too much is
// missing later. An empty one takes nothing.
func TestLimitOfGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, &Options{Limits: Limits{Messages: 10}})
		get := func() outcome { return attempt(t, s, signed("GET", "/orders/messages?numofmessages=32", "")) }
		for range 100 {
			if got := get(); got.status != 200 {
				t.Fatalf("empty: %+v", got)
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
			t.Fatalf("32 of 10: %+v", got)
		}
		time.Sleep(2300*time.Millisecond - time.Nanosecond) // 22 too many, and the next one
		if got := get(); got.status != 503 {
			t.Fatalf("too early: %+v", got)
		}
		time.Sleep(time.Nanosecond)
		if got := get(); got.status != 200 {
			t.Fatalf("in time: %+v", got)
		}
		time.Sleep(4100 * time.Millisecond) // 31 too many, and ten
		for i := range 11 {
			address := "/orders/messages/" + string(leases[i].ID) + "?popreceipt=" + url.QueryEscape(string(leases[i].Receipt))
			if got := attempt(t, s, signed("DELETE", address, "")); (got.status == 503) != (i == 10) {
				t.Errorf("delete %d: %+v", i+1, got)
			}
		}
		if got := s.Counts().Messages; got != 64 {
			t.Errorf("%d messages got", got)
		}
	})
}

// TestLimitOfRequests: of one account, by whoever may send them.
func TestLimitOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, err := base64.StdEncoding.DecodeString(DevelopmentKey)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := withOptions(t, &Options{Limits: Limits{Requests: 100}, Accounts: map[string][]byte{"second": key}})
		list := func(account string, status int) {
			t.Helper()
			r := signed("GET", "?comp=list", "")
			r.URL.Path = "/" + account
			sign(r)
			if got := attempt(t, s, r); got.status != status {
				t.Errorf("%+v, want %d", got, status)
			}
		}
		for range 1000 { // which keep nobody out
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
			t.Error(body)
		}
		time.Sleep(10 * time.Millisecond)
		list(DevelopmentAccount, 200)
		list(DevelopmentAccount, 503)
		if got := s.Counts(); got.Limited != 4 || got.Busy != 4 {
			t.Errorf("counted\n%v", got)
		}
	})
}

// TestBucket holds a bucket to what it is for, at whatever pace it is used: it
// never lets out more than a second's worth and what has flowed in, and never
// refuses what is there.
func TestBucket(t *testing.T) {
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
		rate := int64(rapid.SampledFrom([]int{1, 3, 7, 2000, maxLimitValue}).Draw(r, "rate"))
		all, failed := steps.Draw(r, "steps"), ""
		synctest.Test(t, func(*testing.T) {
			b := newTokenBucket(int(rate))
			level := rate * oneToken // the same sum, done another way
			for i, step := range all {
				time.Sleep(step.Wait)
				for range step.Wait / time.Second {
					level = min(rate*oneToken, level+rate*oneToken)
				}
				level = min(rate*oneToken, level+int64(step.Wait%time.Second)*rate)
				if got, want := b.take(), level >= oneToken; got != want {
					failed = fmt.Sprintf("step %d: taken: %v, want %v at %d", i, got, want, level)
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
				failed = "not full after a hundred years"
			}
		})
		if failed != "" {
			r.Fatal(failed)
		}
	})
}

// TestBucketsOfQueues: names that were made up do not stay.
func TestBucketsOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buckets := newQueueBuckets(10)
		for round := range 10 {
			for i := range minPrune {
				if b := buckets.of(queue.Name{Account: "a", Queue: fmt.Sprintf("queue-%d-%d", round, i)}); !b.take() {
					t.Fatal("a new one is empty")
				}
			}
			time.Sleep(time.Second)
		}
		if n := len(buckets.buckets); n > 2*minPrune {
			t.Errorf("%d buckets", n)
		}
		name := queue.Name{Account: "a", Queue: "busy"}
		for range 10 {
			buckets.of(name).take()
		}
		for i := range 3 * minPrune { // as many as it takes to sweep
			buckets.of(queue.Name{Account: "b", Queue: fmt.Sprint("queue-", i)}).take()
		}
		if buckets.of(name).take() {
			t.Error("a bucket that is not full was thrown out")
		}
	})
}
