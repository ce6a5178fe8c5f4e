package blobtest

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/millrace/millrace/blob"
)

var argumentTests = []test{
	{"BadReferencesAreRefused", badReferencesAreRefused},
	{"AnEndedContextEndsEveryCall", endedContextsEndCalls},
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

func badReferencesAreRefused(e *env) {
	bad := [][2]string{
		{}, {"pictures", ""}, {"", "a"}, {"ab", "a"}, {strings.Repeat("c", 64), "a"}, {"Pictures", "a"}, {"pic--tures", "a"},
		{"-pictures", "a"}, {"pictures-", "a"}, {"pictures/sub", "a"}, {"..", "a"}, {"pic.tures", "a"},
		{"pictures", ".."}, {"pictures", "../others/a"}, {"pictures", "a/../b"}, {"pictures", "."}, {"pictures", "a/./b"},
		{"pictures", "/a"}, {"pictures", "a/"}, {"pictures", "a//b"}, {"pictures", ".hidden"}, {"pictures", "a/.b"}, {"pictures", "a."},
		{"pictures", `a\b`}, {"pictures", "a+b"}, {"pictures", "A"}, {"pictures", "ä"}, {"pictures", "a b"}, {"pictures", "a\x00"},
		{"pictures", "a\n"}, {"pictures", "c:a"}, {"pictures", "a%2fb"}, {"pictures", strings.Repeat("n", blob.MaxName+1)},
	}
	for _, b := range bad {
		r := blob.Ref{Container: b[0], Name: b[1]}
		for op, err := range e.calls(e.Context(), r) {
			if !errors.Is(err, blob.ErrBadRef) {
				e.Errorf("%s of %q: %v", op, r, err)
			}
		}
	}
	for _, l := range [][2]string{{"..", ""}, {"Pictures", ""}, {"pictures", "A"}} {
		if err := e.listError(e.Context(), l[0], l[1]); !errors.Is(err, blob.ErrBadRef) {
			e.Errorf("list of %q: %v", l, err)
		}
	}
	long := strings.Repeat("n", blob.MaxName)
	e.put(long, "long")
	e.put(strings.Repeat("a/", 99)+"a", "deep")
	if got := e.get(long); got != "long" {
		e.Errorf("the longest name: %s", got)
	}
}

func endedContextsEndCalls(e *env) {
	why := errors.New("the worker stops")
	e.put("a", "text")
	ctx, cancel := context.WithCancelCause(e.Context())
	data := &cancelling{cancel: func() { cancel(why) }}
	e.is(e.s.Put(ctx, e.ref("a"), data, nil), why, "put that was interrupted")
	for op, err := range e.calls(ctx, e.ref("a")) {
		e.is(err, why, op)
	}
	e.is(e.listError(ctx, e.container, ""), why, "list")
	_, err := e.s.Access(ctx, e.container)
	e.is(err, why, "access")
	e.is(e.s.SetAccess(ctx, e.container, blob.PublicRead), why, "set access")
	if got := e.get("a"); got != "text" {
		e.Errorf("got %q", got)
	}
}

// cancelling never ends, but cancels its reader's context.
type cancelling struct{ cancel func() }

func (c *cancelling) Read(p []byte) (int, error) {
	c.cancel()
	return copy(p, "endless "), nil
}
