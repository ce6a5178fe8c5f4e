package blobtest

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/blob"
)

var listTests = []test{
	{"ListYieldsByPrefixInOrder", listsByPrefixInOrder},
	{"ListTellsWhatStatTells", listTellsWhatStatTells},
	{"BlobsCanBeDeletedWhileTheyAreListed", blobsCanBeDeletedWhileListed},
}

func listsByPrefixInOrder(e *env) {
	for _, name := range []string{"b/2", "b/10", "a", "b", "b-c", "b_c", "b.c", "b/1/x", "c.png"} {
		e.put(name, name)
	}
	e.ok(e.s.Put(e.Context(), blob.Ref{Container: e.another(), Name: "b/3"}, strings.NewReader(""), nil))
	for prefix, want := range map[string][]string{
		"":     {"a", "b", "b-c", "b.c", "b/1/x", "b/10", "b/2", "b_c", "c.png"},
		"b":    {"b", "b-c", "b.c", "b/1/x", "b/10", "b/2", "b_c"},
		"b/":   {"b/1/x", "b/10", "b/2"},
		"b/1":  {"b/1/x", "b/10"},
		"none": nil,
	} {
		if got := e.list(e.container, prefix); !slices.Equal(got, want) {
			e.Errorf("prefix %q: got %v, want %v", prefix, got, want)
		}
	}
	if got := e.list(e.another(), ""); got != nil {
		e.Errorf("a container that does not exist has %v", got)
	}
	for _, err := range e.s.List(e.Context(), e.container, "") {
		e.ok(err)
		break // leaving early is fine
	}
}

// listTellsWhatStatTells has sizes, times and metadata in a list.
func listTellsWhatStatTells(e *env) {
	e.put("a", "some text")
	e.ok(e.s.Put(e.Context(), e.ref("b"), strings.NewReader("more text"), &blob.PutOptions{Metadata: map[string]string{"kind": "text"}}))
	e.ok(e.s.Create(e.Context(), e.ref("c"), strings.NewReader(""), nil))
	n := 0
	for got, err := range e.s.List(e.Context(), e.container, "") {
		e.ok(err)
		want, err := e.s.Stat(e.Context(), got.Ref)
		e.ok(err)
		e.same(got, want)
		n++
	}
	if n != 3 {
		e.Errorf("listed %d blobs", n)
	}
}

func blobsCanBeDeletedWhileListed(e *env) {
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		e.put(name, name)
	}
	for b, err := range e.s.List(e.Context(), e.container, "") {
		e.ok(err)
		e.ok(e.s.Delete(e.Context(), b.Ref))
		e.ok(e.s.Delete(e.Context(), e.ref("c"))) // which may still be listed
	}
	if got := e.list(e.container, ""); got != nil {
		e.Errorf("left are %v", got)
	}
}
