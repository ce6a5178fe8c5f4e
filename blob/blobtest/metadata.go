package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/suitetest"
)

var metadataTests = []test{
	{"MetadataAppearWithTheBlob", func(e *env) {
		longest := map[string]string{"long_1_": strings.Repeat("x", blobcheck.MaxMetadata-len("long_1_"))}
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
	}},
	{"MetadataOfTheCallerAreItsOwn", func(e *env) {
		mine := map[string]string{"a": "1"}
		e.ok(e.s.Put(e.Context(), e.ref("a"), strings.NewReader(""), &blob.PutOptions{Metadata: mine}))
		mine["a"] = "2"
		info, err := e.s.Stat(e.Context(), e.ref("a"))
		e.ok(err)
		info.Metadata["a"] = "3"
		e.carries("a", map[string]string{"a": "1"})
	}},
	{"BadMetadataAreRefused", func(e *env) {
		for _, bad := range []map[string]string{
			{"": "x"}, {"A": "x"}, {"1a": "x"}, {"_": "x"}, {"_a": "x"}, {"a-b": "x"}, {"a b": "x"}, {"ä": "x"}, {"millrace_a": "x"},
			{"a": ""}, {"a": " x"}, {"a": "x\t"}, {"a": "x\ny"}, {"a": "ä"}, {"a": strings.Repeat("x", blobcheck.MaxMetadata)},
		} {
			o := &blob.PutOptions{Metadata: bad}
			e.is(e.s.Put(e.Context(), e.ref("a"), untouched{e}, o), blob.ErrInvalid, "put")
			e.is(e.s.Create(e.Context(), e.ref("a"), untouched{e}, o), blob.ErrInvalid, "create")
		}
	}},
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

var listTests = []test{
	{"ListYieldsByPrefixInOrder", func(e *env) {
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
	}},
	// A list has sizes, times and metadata.
	{"ListTellsWhatStatTells", func(e *env) {
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
	}},
	{"BlobsCanBeDeletedWhileTheyAreListed", func(e *env) {
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
	}},
}

var accessTests = []test{{"AContainerKeepsItsAccessPolicy", func(e *env) {
	e.isPublic(e.container, false) // it does not exist
	e.ok(e.s.SetPublic(e.Context(), e.container, true))
	e.isPublic(e.container, true)
	e.put("a", "text")
	e.isPublic(e.container, true)
	if got := e.list(e.container, ""); len(got) != 1 {
		e.Errorf("listed %v", got)
	}
	e.ok(e.s.SetPublic(e.Context(), e.container, false))
	e.isPublic(e.container, false)
	if got := e.get("a"); got != "text" {
		e.Errorf("got %q", got)
	}
	_, err := e.s.Public(e.Context(), "Bad")
	for _, err := range []error{err, e.s.SetPublic(e.Context(), "..", false)} {
		if !errors.Is(err, blob.ErrInvalid) {
			e.Errorf("bad container: %v", err)
		}
	}
}}}

func (e *env) isPublic(container string, want bool) {
	e.Helper()
	if got, err := e.s.Public(e.Context(), container); got != want || err != nil {
		e.Errorf("public is %v, %v, want %v", got, err, want)
	}
}

var argumentTests = []test{
	{"BadReferencesAreRefused", func(e *env) {
		bad := [][2]string{
			{}, {"pictures", ""}, {"", "a"}, {"ab", "a"}, {strings.Repeat("c", 64), "a"}, {"Pictures", "a"}, {"pic--tures", "a"},
			{"-pictures", "a"}, {"pictures-", "a"}, {"pictures/sub", "a"}, {"..", "a"}, {"pic.tures", "a"},
			{"pictures", ".."}, {"pictures", "../others/a"}, {"pictures", "a/../b"}, {"pictures", "."}, {"pictures", "a/./b"},
			{"pictures", "/a"}, {"pictures", "a/"}, {"pictures", "a//b"}, {"pictures", ".hidden"}, {"pictures", "a/.b"}, {"pictures", "a."},
			{"pictures", `a\b`}, {"pictures", "a+b"}, {"pictures", "A"}, {"pictures", "ä"}, {"pictures", "a b"}, {"pictures", "a\x00"},
			{"pictures", "a\n"}, {"pictures", "c:a"}, {"pictures", "a%2fb"}, {"pictures", strings.Repeat("n", blobcheck.MaxName+1)},
		}
		for _, b := range bad {
			r := blob.Ref{Container: b[0], Name: b[1]}
			for op, err := range e.calls(e.Context(), r) {
				if !errors.Is(err, blob.ErrInvalid) {
					e.Errorf("%s of %q: %v", op, r, err)
				}
			}
		}
		for _, l := range [][2]string{{"..", ""}, {"Pictures", ""}, {"pictures", "A"}} {
			if err := e.listError(e.Context(), l[0], l[1]); !errors.Is(err, blob.ErrInvalid) {
				e.Errorf("list of %q: %v", l, err)
			}
		}
		long := strings.Repeat("n", blobcheck.MaxName)
		e.put(long, "long")
		e.put(strings.Repeat("a/", 99)+"a", "deep")
		if got := e.get(long); got != "long" {
			e.Errorf("the longest name: %s", got)
		}
	}},
	{"AnEndedContextEndsEveryCall", func(e *env) {
		e.put("a", "text")
		for _, ctx := range suitetest.EndedContexts(e.Context()) {
			for op, err := range e.calls(ctx, e.ref("a")) {
				e.matches(err, ctx, op)
			}
			e.matches(e.listError(ctx, e.container, ""), ctx, "list")
			e.matches(errorOf(e.s.Public(ctx, e.container)), ctx, "access")
			e.matches(e.s.SetPublic(ctx, e.container, true), ctx, "set access")
			for op, err := range e.calls(ctx, blob.Ref{Container: "..", Name: "a"}) {
				e.is(err, blob.ErrInvalid, op)
			}
		}
		if got := e.get("a"); got != "text" {
			e.Errorf("got %q", got)
		}
	}},
	{"AContextThatEndsMeanwhileEndsTheCall", func(e *env) {
		why := errors.New("the worker stops")
		e.put("a", "text")
		e.put("b", "more text")
		e.put("large", string(content(e.h.Large)))
		for op, call := range map[string]func(ctx context.Context, cancel func()) error{
			"put": func(ctx context.Context, cancel func()) error {
				return e.s.Put(ctx, e.ref("a"), &cancelling{cancel}, nil)
			},
			"create": func(ctx context.Context, cancel func()) error {
				return e.s.Create(ctx, e.ref("new"), &cancelling{cancel}, nil)
			},
			"list": func(ctx context.Context, cancel func()) (last error) {
				for _, err := range e.s.List(ctx, e.container, "") {
					last = err
					cancel()
				}
				return last
			},
		} {
			ctx, cancel := context.WithCancelCause(e.Context())
			e.matches(call(ctx, func() { cancel(why) }), suitetest.EndedContext{Errors: []error{context.Canceled, why}}, op)
		}
		if got := e.get("a") + e.get("new"); got != "text"+missing {
			e.Errorf("got %q", got)
		}
	}},
}

// matches checks that an error says how and why its context ended.
func (e *env) matches(err error, ctx suitetest.EndedContext, op string) {
	e.Helper()
	for _, want := range ctx.Errors {
		e.is(err, want, op)
	}
}

// untouched fails the test if it is read.
type untouched struct{ e *env }

func (u untouched) Read([]byte) (int, error) {
	u.e.Error("the data was read before the arguments were checked")
	return 0, io.EOF
}

// calls returns the error of every call with a context and a reference.
func (e *env) calls(ctx context.Context, r blob.Ref) map[string]error {
	_, open := e.s.Open(ctx, r)
	_, stat := e.s.Stat(ctx, r)
	return map[string]error{
		"put":    e.s.Put(ctx, r, untouched{e}, nil),
		"create": e.s.Create(ctx, r, untouched{e}, nil),
		"delete": e.s.Delete(ctx, r),
		"open":   open,
		"stat":   stat,
	}
}

func (e *env) listError(ctx context.Context, container, prefix string) (last error) {
	for b, err := range e.s.List(ctx, container, prefix) {
		if last = err; err != nil && b.Ref != (blob.Ref{}) {
			e.Errorf("an error of a list came with %v", b.Ref)
		}
	}
	return last
}

// cancelling never ends, but cancels its reader's context.
type cancelling struct{ cancel func() }

func (c *cancelling) Read(p []byte) (int, error) {
	c.cancel()
	return copy(p, "endless "), nil
}
