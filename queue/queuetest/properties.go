package queuetest

import (
	"maps"
	"strings"

	"github.com/millrace/millrace/queue"
)

// depth waits for a depth, which is approximate but never too low.
func (e *env) depth(want int64, when string) {
	e.Helper()
	e.until("depth is right "+when, func() bool {
		p, err := e.q.Properties(e.ctx)
		e.ok(err)
		if p.Depth < want {
			e.Fatalf("depth %s: got %d, want at least %d", when, p.Depth, want)
		}
		return p.Depth == want
	})
}

// metadata checks the queue's metadata. Names lose their case in HTTP headers.
func (e *env) metadata(want map[string]string, when string) {
	e.Helper()
	p, err := e.q.Properties(e.ctx)
	e.ok(err)
	got := make(map[string]string)
	for name, value := range p.Metadata {
		got[strings.ToLower(name)] = value
	}
	lower := make(map[string]string)
	for name, value := range want {
		lower[strings.ToLower(name)] = value
	}
	if !maps.Equal(got, lower) || len(got) != len(p.Metadata) {
		e.Errorf("metadata %s: got %v, want %v", when, p.Metadata, want)
	}
}

var propertyTests = []test{
	{"DepthCountsHiddenMessagesToo", func(e *env) {
		e.create()
		e.depth(0, "at first")
		for range 3 {
			e.enqueue("x", nil)
		}
		e.enqueue("later", &queue.EnqueueOptions{Delay: long})
		e.depth(4, "with a delayed one")
		batch := e.take(2, long)
		e.depth(4, "with two leased")
		e.ok(e.q.Delete(e.ctx, batch[0].Lease))
		e.depth(3, "with one deleted")
	}},
	{"MetadataRoundTrip", func(e *env) {
		want := map[string]string{
			"visibility":      "30",
			"PoisonThreshold": "5",
			"_x9":             `punctuation !"#$%&'()*+,-./:;<=>?@[\]^_{|}~`,
			"blanks":          "a b c",
			"nothing":         "",
			"a":               strings.Repeat("v", 1000),
		}
		e.ok(e.q.Create(e.ctx, want))
		e.metadata(want, "after create")
		e.enqueue("x", nil)
		e.metadata(want, "after an enqueue")
	}},
	{"SetMetadataReplacesTheWholeSet", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1", "b": "2"}))
		e.ok(e.q.SetMetadata(e.ctx, map[string]string{"b": "3", "c": "4", "d": ""}))
		e.metadata(map[string]string{"b": "3", "c": "4", "d": ""}, "after a set")
		e.ok(e.q.SetMetadata(e.ctx, nil))
		e.metadata(nil, "after a set of none")
	}},
	{"MetadataLimit", func(e *env) {
		e.create()
		largest := map[string]string{}
		for _, name := range []string{"a", "b", "c", "d"} {
			largest[name] = strings.Repeat("x", queue.MaxMetadata/4-1)
		}
		e.ok(e.q.SetMetadata(e.ctx, largest))
		e.metadata(largest, "at the limit")
		largest["d"] += "x"
		e.is(e.q.SetMetadata(e.ctx, largest), queue.ErrInvalid, "a byte over the limit")
	}},
}
