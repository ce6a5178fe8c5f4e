package blobtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/suitetest"
)

// Harness connects the suite to a store. Open is required; the zero values of the other fields
// describe a store in this process.
type Harness struct {
	// Open returns a store. Tests use different containers, so it may be the same store each
	// time, unless Bubble is set. Use t.Cleanup to clean up.
	Open func(t *testing.T) blob.Manager

	// Bubble runs each test in a testing/synctest bubble with simulated time. The store must
	// then be in this process and read time from package time. Defaults to false.
	Bubble bool

	// Large is the size of the largest blob that the suite stores, in bytes. A store that
	// uploads in blocks should get several. Defaults to 2 MiB.
	Large int

	// Secrets are texts that errors must not contain, such as keys. Defaults to none.
	Secrets []string

	// Quirks are known differences between the store and the others.
	Quirks Quirks
}

// Quirks are known differences of a store. A field that is not empty is the reason, which the
// test prints. The zero value means none.
type Quirks struct {
	// ReadersChange: a reader of a blob that is replaced or deleted meanwhile may fail with
	// [blob.ErrChanged] instead of reading the old content to its end.
	ReadersChange string
}

// test is one part of the suite.
type test struct {
	name string
	run  func(e *env)
}

// Run runs the suite against a store, each test in containers of its own.
func Run(t *testing.T, h Harness) {
	h.Large = cmp.Or(h.Large, 2<<20)
	all := slices.Concat(contentTests, createTests, readerTests, listTests, metadataTests, accessTests, argumentTests, modelTests)
	for _, c := range all {
		suitetest.Run(t, c.name, h.Bubble, func(t *testing.T) { c.run(newEnv(t, h)) })
	}
}

// env is what a test works with.
type env struct {
	*testing.T
	h          Harness
	s          blob.Manager
	container  string
	containers []string
}

func newEnv(t *testing.T, h Harness) *env {
	e := &env{T: t, h: h, s: h.Open(t)}
	e.container = e.another()
	t.Cleanup(func() {
		for _, c := range e.containers {
			e.empty(c)
		}
	})
	return e
}

// another returns a container that nobody has used.
func (e *env) another() string {
	c := "blobtest-" + strings.ToLower(rand.Text())
	e.containers = append(e.containers, c)
	return c
}

// empty deletes the blobs of a container. The test's context has ended when it is called last.
func (e *env) empty(container string) {
	ctx := context.WithoutCancel(e.Context())
	for b, err := range e.s.List(ctx, container, "") {
		if err == nil {
			err = e.s.Delete(ctx, b.Ref)
		}
		if err != nil {
			e.Errorf("clean up: %v", err)
		}
	}
}

func (e *env) ref(name string) blob.Ref { return blob.Ref{Container: e.container, Name: name} }

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// is checks the kind and the form of an error: one line that names what was attempted, without
// secrets.
func (e *env) is(err, kind error, op string) {
	e.Helper()
	if !errors.Is(err, kind) {
		e.Errorf("%s: error is %v, want %v", op, err, kind)
		return
	}
	if known := (*blob.Error)(nil); !errors.As(err, &known) || known.Op == "" || known.Ref.Container == "" && !errors.Is(kind, blob.ErrInvalid) {
		e.Errorf("%s: error %q (%T) does not say what failed and where", op, err, err)
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		e.Errorf("%s: error has more than one line: %q", op, err)
	}
	for _, secret := range e.h.Secrets {
		if strings.Contains(err.Error(), secret) {
			e.Errorf("%s: error has a secret in it: %q", op, err)
		}
	}
}

func (e *env) put(name, text string) {
	e.Helper()
	e.ok(e.s.Put(e.Context(), e.ref(name), strings.NewReader(text), nil))
}

// missing is what get returns for a blob that does not exist.
const missing = "(missing)"

// get returns the content of a blob, and checks that Open, Stat and content agree.
func (e *env) get(name string) string {
	e.Helper()
	r, err := e.s.Open(e.Context(), e.ref(name))
	if errors.Is(err, blob.ErrMissing) {
		return missing
	}
	e.ok(err)
	data, err := io.ReadAll(r)
	e.ok(errors.Join(err, r.Close()))
	if r.Size != int64(len(data)) || r.Ref != e.ref(name) {
		e.Errorf("the reader says that %v has %d bytes, and %v has %d", r.Ref, r.Size, e.ref(name), len(data))
	}
	info, err := e.s.Stat(e.Context(), e.ref(name))
	e.ok(err)
	if info.Ref != r.Ref || info.Size != r.Size || !info.Modified.Equal(r.Modified) {
		e.Errorf("stat says %+v and open %+v", info, r.Info)
	}
	return string(data)
}

// list returns the names of blobs in the order in which they are listed.
func (e *env) list(container, prefix string) []string {
	e.Helper()
	var names []string
	for b, err := range e.s.List(e.Context(), container, prefix) {
		e.ok(err)
		if b.Ref.Container != container {
			e.Errorf("listed %v of container %s", b.Ref, container)
		}
		names = append(names, b.Ref.Name)
	}
	return names
}

func errorOf[T any](_ T, err error) error { return err }
