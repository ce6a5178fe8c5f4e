package emulator

import (
	"reflect"
	"testing"
)

// TestCountsAddUp: whatever comes, the tallies are the requests and the answers.
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
	var answers, faults int64
	for op, tally := range c.Tallies {
		if c.Operations[op] == 0 {
			t.Errorf("%s has a tally and no request", op)
		}
		answers += sum(tally.Answers)
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
	if sent+c.Faults[FaultDuplicate] != c.Requests() || c.Requests()-answers != unanswered || statuses != answers || kinds != faults {
		t.Errorf("%d sent, %d unanswered, counted\n%v", sent, unanswered, c)
	}
	if c.Busy != c.Faults[FaultBusy] || unanswered != c.Faults[FaultReset]+c.Faults[FaultDrop] || c.Limited != 0 {
		t.Errorf("counted\n%v", c)
	}
	puts := c.Tallies[PutMessage]
	if put := int64(len(wrap("x"))); in%put != 0 || in != puts.Received || in > 100*put || in < 50*put {
		t.Errorf("%d bytes received for 100 of %d", in, put)
	}
	got := c.Tallies[PutMessage].Sent + c.Tallies[GetMessages].Sent + c.Tallies[Unknown].Sent
	if per := out / (sent - unanswered); got < out || got > out+c.Faults[FaultDuplicate]*2*per+1000 {
		t.Errorf("%d bytes sent, counted %d", out, got)
	}
	if len(c.Faults) != 5 {
		t.Errorf("some fault never came up: %v", c.Faults)
	}
}

// TestNoCounts: before the first request there is nothing, and the zero value is
// that too.
func TestNoCounts(t *testing.T) {
	empty := New(nil, nil).Counts()
	if empty.Requests() != 0 || len(empty.Operations)+len(empty.Tallies)+len(empty.Statuses)+len(empty.Faults) != 0 {
		t.Errorf("%+v", empty)
	}
	if got, want := empty.String(), (Counts{}).String(); got != want {
		t.Errorf("%s\nand\n%s", got, want)
	}
}

// TestOperationsAreAll: what counts and what is listed are the same.
func TestOperationsAreAll(t *testing.T) {
	seen := map[Operation]bool{}
	for _, op := range operations {
		seen[op] = true
	}
	counted := map[Operation]bool{}
	for op := range newCounters().operations {
		counted[op] = true
	}
	if len(seen) != len(operations) || !reflect.DeepEqual(seen, counted) || operations[len(operations)-1] != Unknown {
		t.Errorf("%v", operations)
	}
}
