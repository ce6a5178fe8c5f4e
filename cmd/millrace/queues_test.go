package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestQueuesListsQueues(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		first := createQueue(t, v)
		prefix := first[:strings.LastIndex(first, "-")+1]
		if got := v.ok(t, "queues", first); got != first+"\n" {
			t.Errorf("queues with a prefix: got %q, want %s", got, first)
		}
		r := v.call(t, "queues", first+"x")
		if r.status != exitOK || r.out != "" || !strings.Contains(r.errs, `begin with "`+first+`x"`) || !strings.Contains(r.errs, "millrace create QUEUE") {
			t.Errorf("queues without a match: got %+v, want success and a hint", r)
		}
		if r := v.call(t, "queues", "-json", first+"x"); r != (result{}) {
			t.Errorf("queues -json without a match: got %+v, want no output", r)
		}
		second := createQueue(t, v)
		if err := v.open(t, second).SetMetadata(t.Context(), map[string]string{"owner": "<ada>"}); err != nil {
			t.Fatal(err)
		}
		listed := strings.Fields(v.ok(t, "queues"))
		if !slices.IsSorted(listed) || !slices.Contains(listed, first) || !slices.Contains(listed, second) {
			t.Errorf("queues: got %q, want both, sorted", listed)
		}
		var objects []string
		for line := range strings.Lines(v.ok(t, "queues", prefix, "-json")) {
			if strings.Contains(line, second) {
				objects = append(objects, line)
			}
			if !json.Valid([]byte(line)) {
				t.Errorf("queues -json: got the line %q, want JSON", line)
			}
		}
		if want := `{"name":"` + second + `","paused":false,"pausedSince":null,"metadata":{"owner":"<ada>"}}` + "\n"; len(objects) != 1 || objects[0] != want {
			t.Errorf("queues -json: got %q, want %q", objects, want)
		}
	})
}

func TestQueuesRefusesAnImpossiblePrefix(t *testing.T) {
	t.Parallel()
	invocation{}.fails(t, exitUsage, []string{`begins with "Orders"`, "lower-case"}, "queues", "Orders")
	invocation{}.fails(t, exitUsage, []string{"unexpected argument", "millrace queues [PREFIX]"}, "queues", "a", "b")
}
