package blobtest

import (
	"bytes"
	"maps"
	"strings"

	"github.com/millrace/millrace/blob"
)

var metadataTests = []test{
	{"MetadataAppearWithTheBlob", metadataAppearWithTheBlob},
	{"MetadataOfTheCallerAreItsOwn", metadataAreCopied},
	{"BadMetadataAreRefused", badMetadataAreRefused},
}

// same checks that two descriptions are of the same version of a blob.
func (e *env) same(got, want blob.Info) {
	e.Helper()
	if got.Ref != want.Ref || got.Size != want.Size || !got.Modified.Equal(want.Modified) || !maps.Equal(got.Metadata, want.Metadata) {
		e.Errorf("got %+v, want %+v", got, want)
	}
}

// carries checks the metadata that a blob has.
func (e *env) carries(name string, want map[string]string) {
	e.Helper()
	info, err := e.s.Stat(e.Context(), e.ref(name))
	e.ok(err)
	if !maps.Equal(info.Metadata, want) || len(want) == 0 && info.Metadata != nil {
		e.Errorf("%s has the metadata %v, want %v", name, info.Metadata, want)
	}
	r, err := e.s.Open(e.Context(), e.ref(name))
	e.ok(err)
	e.same(r.Info, info)
	e.ok(r.Close())
}

func metadataAppearWithTheBlob(e *env) {
	longest := map[string]string{"long_1_": strings.Repeat("x", blob.MaxMetadata-len("long_1_"))}
	for name, text := range map[string][]byte{"small": []byte("text"), "large": content(e.h.Large), "empty": nil} {
		for _, metadata := range []map[string]string{{"kind": "claim", "at": `2026-11-22 "04:00" <&> ~`}, nil, longest, {}, {"a": "1"}} {
			e.ok(e.s.Put(e.Context(), e.ref(name), bytes.NewReader(text), &blob.PutOptions{Metadata: metadata}))
			e.carries(name, metadata)
		}
		e.ok(e.s.Put(e.Context(), e.ref(name), bytes.NewReader(text), nil))
		e.carries(name, nil)
		if got := e.get(name); got != string(text) {
			e.Errorf("%s: content is %.40q", name, got)
		}
		e.ok(e.s.Create(e.Context(), e.ref(name+"-new"), bytes.NewReader(text), &blob.PutOptions{Metadata: longest}))
		e.carries(name+"-new", longest)
		if got := e.get(name + "-new"); got != string(text) {
			e.Errorf("%s: content is %.40q", name, got)
		}
	}
}

func metadataAreCopied(e *env) {
	mine := map[string]string{"a": "1"}
	e.ok(e.s.Put(e.Context(), e.ref("a"), strings.NewReader(""), &blob.PutOptions{Metadata: mine}))
	mine["a"] = "2"
	info, err := e.s.Stat(e.Context(), e.ref("a"))
	e.ok(err)
	info.Metadata["a"] = "3"
	e.carries("a", map[string]string{"a": "1"})
}

func badMetadataAreRefused(e *env) {
	for _, bad := range []map[string]string{
		{"": "x"}, {"A": "x"}, {"1a": "x"}, {"_": "x"}, {"_a": "x"}, {"a-b": "x"}, {"a b": "x"}, {"ä": "x"}, {"millrace_a": "x"},
		{"a": ""}, {"a": " x"}, {"a": "x\t"}, {"a": "x\ny"}, {"a": "ä"}, {"a": strings.Repeat("x", blob.MaxMetadata)},
	} {
		o := &blob.PutOptions{Metadata: bad}
		e.is(e.s.Put(e.Context(), e.ref("a"), untouched{e}, o), blob.ErrInvalid, "put")
		e.is(e.s.Create(e.Context(), e.ref("a"), untouched{e}, o), blob.ErrInvalid, "create")
	}
}
