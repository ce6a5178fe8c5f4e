package emulator

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue/localqueue"
)

// statusClient is a client that knows HTTP and no storage error code. Of a response without success it
// reads the status alone.
type statusClient struct {
	t        *testing.T
	server   *Server
	statuses map[int]int // how often each came
}

// send sends a request until it is answered for good. It returns the body of a success.
func (c *statusClient) send(method, path, body string) (status int, document string) {
	c.t.Helper()
	for range 100 {
		response, err := c.server.RoundTrip(signed(method, path, body))
		if err != nil { // no answer: the request may have had its effect
			continue
		}
		data, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			continue
		}
		c.statuses[response.StatusCode]++
		switch class := response.StatusCode / 100; {
		case class == 5, response.StatusCode == http.StatusRequestTimeout:
			time.Sleep(time.Second)
		case class == 2:
			return response.StatusCode, string(data)
		default:
			return response.StatusCode, ""
		}
	}
	c.t.Fatalf("%s %s: not answered for good after 100 tries", method, path)
	return 0, ""
}

// want sends a request whose final status must be one of these.
func (c *statusClient) want(method, path, body string, statuses ...int) (document string) {
	c.t.Helper()
	got, document := c.send(method, path, body)
	for _, one := range statuses {
		if got == one {
			return document
		}
	}
	c.t.Errorf("%s %s: got status %d, want one of %v", method, path, got, statuses)
	return document
}

// TestTheStatusAloneIsEnough (N-06): a worker that reads no storage error code handles every job, while
// the service is busy, fails, and loses requests and responses. After a lost response a repeated request
// meets its own effect: a queue that exists, or a message that is gone, which the status says.
func TestTheStatusAloneIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, err := ParseFaults("*:503@20% *:500@10% *:408@5% *:reset@5% *:drop@10%")
		if err != nil {
			t.Fatal(err)
		}
		s := must(New(must(localqueue.New(&localqueue.Options{Seed: 1})), &Options{Faults: &Faults{Seed: 1, Rules: rules}}))
		c := &statusClient{t, s, make(map[int]int)}
		c.want("GET", "/orders/messages", "", 404)
		c.want("PUT", "/orders", "", 201, 204)
		const jobs = 50
		for n := range jobs {
			c.want("POST", "/orders/messages", queuexml.Prolog+wrap(fmt.Sprint(n)), 201)
		}
		handled := make(map[string]bool)
		for idle := 0; idle < 2; {
			var list struct {
				QueueMessage []struct{ MessageId, PopReceipt, MessageText string }
			}
			if err := xml.Unmarshal([]byte(c.want("GET", "/orders/messages?numofmessages=8&visibilitytimeout=30", "", 200)), &list); err != nil {
				t.Fatal(err)
			}
			if len(list.QueueMessage) == 0 {
				idle++
				time.Sleep(time.Minute) // messages of lost responses come again
				continue
			}
			idle = 0
			for _, m := range list.QueueMessage {
				handled[m.MessageText] = true
				address := "/orders/messages/" + m.MessageId + "?popreceipt=" + url.QueryEscape(m.PopReceipt)
				if gone, _ := c.send("DELETE", address, ""); gone != 204 && gone != 404 {
					t.Errorf("delete: got status %d, want 204, or 404 after a lost response", gone)
				}
				c.want("DELETE", address, "", 404)
			}
		}
		if len(handled) != jobs {
			t.Errorf("jobs: got %d handled, want %d", len(handled), jobs)
		}
		c.want("DELETE", "/orders", "", 204, 404)
		c.want("PUT", "/orders", "", 409) // it is being deleted
		for _, status := range []int{200, 201, 204, 404, 408, 409, 500, 503} {
			if c.statuses[status] == 0 {
				t.Errorf("statuses: got %v, want %d among them", c.statuses, status)
			}
		}
	})
}

// TestStatusesSayWhetherToRepeat (N-06): a request that may succeed when it is repeated unchanged gets a
// status from 500, or 408. No other response has such a status.
func TestStatusesSayWhetherToRepeat(t *testing.T) {
	again := map[string]bool{"InternalError": true, "OperationTimedOut": true, "ServerBusy": true}
	check := func(name string, status int, code string) {
		repeat := status >= 500 && status != http.StatusNotImplemented || status == http.StatusRequestTimeout
		if repeat != again[code] {
			t.Errorf("%s: got %d %s, want a status that says whether to repeat the request", name, status, code)
		}
	}
	for x := range all {
		check(x.name, x.status, x.code)
	}
	for _, f := range []*failure{errInternal, errTimedOut, errRequestTimeout, errServerBusy, errAccountBusy, errTooManyStreams} { // no exchange gets these
		check(f.code, f.status, f.code)
	}
}
