package blobtest

import (
	"errors"

	"github.com/millrace/millrace/blob"
)

var accessTests = []test{{"AContainerKeepsItsAccessPolicy", accessIsKept}}

func accessIsKept(e *env) {
	e.hasAccess(e.container, blob.Private) // it does not exist
	e.ok(e.s.SetAccess(e.Context(), e.container, blob.PublicRead))
	e.hasAccess(e.container, blob.PublicRead)
	e.put("a", "text")
	e.hasAccess(e.container, blob.PublicRead)
	if got := e.list(e.container, ""); len(got) != 1 {
		e.Errorf("listed %v", got)
	}
	e.ok(e.s.SetAccess(e.Context(), e.container, blob.Private))
	e.hasAccess(e.container, blob.Private)
	if got := e.get("a"); got != "text" {
		e.Errorf("got %q", got)
	}
	e.is(e.s.SetAccess(e.Context(), e.container, "everybody"), blob.ErrInvalid, "set access")
	_, err := e.s.Access(e.Context(), "Bad")
	for _, err := range []error{err, e.s.SetAccess(e.Context(), "..", blob.Private)} {
		if !errors.Is(err, blob.ErrBadRef) {
			e.Errorf("bad container: %v", err)
		}
	}
}

func (e *env) hasAccess(container string, want blob.Access) {
	e.Helper()
	if got, err := e.s.Access(e.Context(), container); got != want || err != nil {
		e.Errorf("access is %q, %v, want %q", got, err, want)
	}
}
