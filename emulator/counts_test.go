package emulator

import (
	"reflect"
	"testing"
)

// TestCountsAddUp: whatever the requests are, the tallies add up to the requests and responses.
func TestCountsAddUp(t *testing.T) {
	s, _ := faulty(t, 3, "*:503@10%,*:reset@10%,*:drop@10%,put:duplicate@20%,get:500@10%")
	var sent, unanswered int64
	var in, out int64
	for i := range 300 {
		r := signed("POST", "/orders/messages", wrap("x"))
		switch i % 3 {
		case 1:
			r = signed("GET", "/orders/messages", "")
		case 2:
			r = signed("PATCH", "/orders", "")
		}
		sent++
		response, err := s.RoundTrip(r)
		if err != nil {
			unanswered++
			continue
		}
		out += response.ContentLength
		response.Body.Close()
	}
	c := s.Counts()
	var responses, faults int64
	for op, tally := range c.Tallies {
		if c.Operations[op] == 0 {
			t.Errorf("%s: got a tally without a request", op)
		}
		responses += sum(tally.Responses)
		faults += tally.Faults
		in += tally.Received
	}
	var statuses, kinds int64
	for _, n := range c.Statuses {
		statuses += n
	}
	for _, n := range c.Faults {
		kinds += n
	}
	if sent+c.Faults[FaultDuplicate] != c.Requests() || c.Requests()-responses != unanswered || statuses != responses || kinds != faults {
		t.Errorf("%d requests sent, %d without a response: counts do not add up:\n%v", sent, unanswered, c)
	}
	if c.Busy != c.Faults[FaultBusy] || unanswered != c.Faults[FaultReset]+c.Faults[FaultDrop] || c.OverQuota != 0 {
		t.Errorf("Busy, Faults or OverQuota do not match the %d requests without a response:\n%v", unanswered, c)
	}
	puts := c.Tallies[PutMessage]
	if put := int64(len(wrap("x"))); in%put != 0 || in != puts.Received || in > 100*put || in < 50*put {
		t.Errorf("received: got %d bytes, want 50 to 100 bodies of %d", in, put)
	}
	got := c.Tallies[PutMessage].Sent + c.Tallies[GetMessages].Sent + c.Tallies[Unknown].Sent
	if per := out / (sent - unanswered); got < out || got > out+c.Faults[FaultDuplicate]*2*per+1000 {
		t.Errorf("sent: got %d bytes in the counts, want about the %d that arrived", got, out)
	}
	if len(c.Faults) != 5 {
		t.Errorf("faults: got %v, want each of five kinds", c.Faults)
	}
}

// TestCountsBeforeTheFirstRequest: before the first request the counts are empty, and formatted
// like the zero value.
func TestCountsBeforeTheFirstRequest(t *testing.T) {
	empty := must(New(nil, nil)).Counts()
	if empty.Requests() != 0 || len(empty.Operations)+len(empty.Tallies)+len(empty.Statuses)+len(empty.Faults) != 0 {
		t.Errorf("counts: got %+v, want none", empty)
	}
	if got, want := empty.String(), (Counts{}).String(); got != want {
		t.Errorf("String: got\n%s\nwant\n%s", got, want)
	}
}

// TestEveryOperationIsCounted: there is a counter for each listed operation.
func TestEveryOperationIsCounted(t *testing.T) {
	seen := map[Operation]bool{}
	for _, op := range operations {
		seen[op] = true
	}
	counted := map[Operation]bool{}
	for op := range newCounters().operations {
		counted[op] = true
	}
	if len(seen) != len(operations) || !reflect.DeepEqual(seen, counted) || operations[len(operations)-1] != Unknown {
		t.Errorf("operations: got %v, counters for %v; want the same, each once, Unknown last", operations, counted)
	}
}
