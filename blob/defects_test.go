package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/blobtest"
	"github.com/millrace/millrace/internal/suitetest"
)

// Each defect is a mistake that a store could have, wrapped around a correct store. The suite must
// find it.
var defects = []struct {
	name  string
	found string // the test that must find it
	make  func(s blob.Manager) blob.Manager
}{
	{"the content is read at once and cut", "LargeBlobsComeBackWhole", func(s blob.Manager) blob.Manager {
		return puts{Manager: s, put: func(data []byte, o *blob.PutOptions) ([]byte, *blob.PutOptions) {
			return data[:min(len(data), 5000)], o
		}}
	}},
	{"half a blob is stored", "AFailedPutChangesNothing", func(s blob.Manager) blob.Manager { return puts{Manager: s, careless: true} }},
	{"metadata are dropped", "MetadataAppearWithTheBlob", func(s blob.Manager) blob.Manager {
		return puts{Manager: s, put: func(data []byte, _ *blob.PutOptions) ([]byte, *blob.PutOptions) { return data, nil }}
	}},
	{"metadata are dropped", "AnyHistoryFollowsTheModel", func(s blob.Manager) blob.Manager {
		return puts{Manager: s, put: func(data []byte, _ *blob.PutOptions) ([]byte, *blob.PutOptions) { return data, nil }}
	}},
	{"create replaces", "CreateTellsThatABlobExists", func(s blob.Manager) blob.Manager { return replaces{s} }},
	{"create replaces", "OfManyCreatesOneSucceeds", func(s blob.Manager) blob.Manager { return replaces{s} }},
	{"create replaces", "AnyHistoryFollowsTheModel", func(s blob.Manager) blob.Manager { return replaces{s} }},
	{"a missing blob cannot be deleted", "ABlobIsPutReadReplacedAndDeleted", func(s blob.Manager) blob.Manager { return strict{s} }},
	{"a reader sees what is new", "AReaderNeverSeesAnotherVersion", func(s blob.Manager) blob.Manager { return lazy{s} }},
	{"a list is in reverse", "ListYieldsByPrefixInOrder", func(s blob.Manager) blob.Manager {
		return lists{s, func(all []blob.Info, _ string) []blob.Info { slices.Reverse(all); return all }}
	}},
	{"a list ignores the prefix", "ListYieldsByPrefixInOrder", func(s blob.Manager) blob.Manager {
		return lists{s, func(all []blob.Info, _ string) []blob.Info { return all }}
	}},
	{"a list ends after two", "AnyHistoryFollowsTheModel", func(s blob.Manager) blob.Manager {
		return lists{s, func(all []blob.Info, prefix string) []blob.Info {
			all = slices.DeleteFunc(all, func(b blob.Info) bool { return !strings.HasPrefix(b.Ref.Name, prefix) })
			return all[:min(len(all), 2)]
		}}
	}},
	{"a list has no times", "ListTellsWhatStatTells", func(s blob.Manager) blob.Manager {
		return lists{s, func(all []blob.Info, _ string) []blob.Info {
			for i := range all {
				all[i].Modified = time.Time{}
			}
			return all
		}}
	}},
	{"a list does not say its time", "StatAndListTellTheAge", func(s blob.Manager) blob.Manager {
		return lists{s, func(all []blob.Info, _ string) []blob.Info {
			for i := range all {
				all[i].Now = time.Time{}
			}
			return all
		}}
	}},
	{"a context is ignored", "AnEndedContextEndsEveryCall", func(s blob.Manager) blob.Manager { return deaf{s} }},
	{"access is forgotten", "AContainerKeepsItsAccessPolicy", func(s blob.Manager) blob.Manager { return forgets{s} }},
	{"errors are bare", "CreateTellsThatABlobExists", func(s blob.Manager) blob.Manager { return terse{s} }},
}

// puts changes what is put.
type puts struct {
	blob.Manager
	put      func(data []byte, o *blob.PutOptions) ([]byte, *blob.PutOptions)
	careless bool // stores what it got before an error
}

func (s puts) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	data, err := io.ReadAll(r)
	if err != nil && !s.careless {
		return s.Manager.Put(ctx, ref, io.MultiReader(bytes.NewReader(data), failing{err}), o)
	}
	if s.put != nil {
		data, o = s.put(data, o)
	}
	return errors.Join(s.Manager.Put(ctx, ref, bytes.NewReader(data), o), err)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type replaces struct{ blob.Manager }

func (s replaces) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.Put(ctx, ref, r, o)
}

type strict struct{ blob.Manager }

func (s strict) Delete(ctx context.Context, ref blob.Ref) error {
	if _, err := s.Stat(ctx, ref); err != nil {
		return err
	}
	return s.Manager.Delete(ctx, ref)
}

// lazy opens a blob anew for each read.
type lazy struct{ blob.Manager }

func (s lazy) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	r, err := s.Manager.Open(ctx, ref)
	if err == nil {
		r.ReadCloser = &lazyReader{ReadCloser: r.ReadCloser, open: func() (*blob.Reader, error) { return s.Manager.Open(ctx, ref) }}
	}
	return r, err
}

type lazyReader struct {
	io.ReadCloser
	open   func() (*blob.Reader, error)
	offset int64
}

func (l *lazyReader) Read(p []byte) (int, error) {
	r, err := l.open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, l.offset); err != nil {
		return 0, err
	}
	n, err := r.Read(p)
	l.offset += int64(n)
	return n, err
}

// lists changes a list of a whole container.
type lists struct {
	blob.Manager
	change func(all []blob.Info, prefix string) []blob.Info
}

func (s lists) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		var all []blob.Info
		for b, err := range s.Manager.List(ctx, container, "") {
			if err != nil {
				yield(blob.Info{}, err)
				return
			}
			all = append(all, b)
		}
		for _, b := range s.change(all, prefix) {
			if !yield(b, nil) {
				return
			}
		}
	}
}

type deaf struct{ blob.Manager }

func (s deaf) Delete(ctx context.Context, ref blob.Ref) error {
	return s.Manager.Delete(context.WithoutCancel(ctx), ref)
}

type forgets struct{ blob.Manager }

func (s forgets) Public(ctx context.Context, container string) (bool, error) {
	_, err := s.Manager.Public(ctx, container)
	return false, err
}

type terse struct{ blob.Manager }

func (s terse) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	err := s.Manager.Create(ctx, ref, r, o)
	if errors.Is(err, blob.ErrExists) {
		return blob.ErrExists
	}
	return err
}

const chosen = "BLOBTEST_DEFECT"

// TestDefective runs the suite against one defect. It fails, and so runs only inside
// TestSuiteFindsDefects.
func TestDefective(t *testing.T) {
	name := os.Getenv(chosen)
	if name == "" {
		t.Skip("run by TestSuiteFindsDefects")
	}
	for _, d := range defects {
		if d.name+d.found == name {
			blobtest.Run(t, blobtest.Harness{Bubble: true, Large: 10_000, Open: func(*testing.T) blob.Manager { return d.make(blob.Memory()) }})
		}
	}
}

func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name+" "+d.found, func(t *testing.T) {
			t.Parallel()
			suitetest.Defect{Variable: chosen, Name: d.name, Found: d.found}.MustBeFound(t)
		})
	}
}

// TestSuitePassesWithoutDefects: the suite passes the store that the defects wrap.
func TestSuitePassesWithoutDefects(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{Bubble: true, Large: 10_000, Open: func(*testing.T) blob.Manager { return blob.Memory() }})
}
