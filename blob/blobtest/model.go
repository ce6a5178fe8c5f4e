package blobtest

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
)

var modelTests = []test{{"AnyHistoryFollowsTheModel", func(e *env) {
	if testing.Short() {
		e.Skip("thousands of calls")
	}
	rapid.Check(noDeadline{e.T}, func(t *rapid.T) {
		e.empty(e.container)
		m := &model{e: e, blobs: make(map[string]modelled)}
		t.Repeat(map[string]func(*rapid.T){
			"put":    m.put,
			"create": m.create,
			"open":   m.open,
			"stat":   m.stat,
			"delete": m.remove,
			"list":   m.list,
		})
	})
}}}

// noDeadline hides the Deadline method, which rapid calls and a bubble does not support.
type noDeadline struct{ rapid.TB }

// model is a simple model of a container.
type model struct {
	e     *env
	blobs map[string]modelled
}

// modelled is a blob of the model.
type modelled struct {
	content  string
	metadata map[string]string
}

func drawName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "a/b", "a-b", "b"}).Draw(t, "name")
}

// draw returns a small or large blob, often without metadata.
func (m *model) draw(t *rapid.T) (modelled, *blob.PutOptions) {
	size := rapid.SampledFrom([]int{0, 1, 10, m.e.h.Large / 4, m.e.h.Large / 2}).Draw(t, "size")
	var b modelled
	for seed := rapid.Byte().Draw(t, "seed"); len(b.content) < size; seed++ {
		b.content += strings.Repeat(string(rune('a'+seed%26)), min(size-len(b.content), 1+m.e.h.Large/5))
	}
	if rapid.Bool().Draw(t, "with metadata") {
		b.metadata = rapid.MapOfN(rapid.StringMatching(`[a-z][a-z0-9_]{0,5}`), rapid.StringMatching(`[!-~]([ -~]{0,8}[!-~])?`), 1, 3).Draw(t, "metadata")
		return b, &blob.PutOptions{Metadata: b.metadata}
	}
	return b, nil
}

func (m *model) put(t *rapid.T) {
	name := drawName(t)
	b, o := m.draw(t)
	if err := m.e.s.Put(m.e.Context(), m.e.ref(name), strings.NewReader(b.content), o); err != nil {
		t.Fatal(err)
	}
	m.blobs[name] = b
}

func (m *model) create(t *rapid.T) {
	name := drawName(t)
	b, o := m.draw(t)
	err := m.e.s.Create(m.e.Context(), m.e.ref(name), strings.NewReader(b.content), o)
	if _, exists := m.blobs[name]; exists {
		if !errors.Is(err, blob.ErrExists) {
			t.Fatalf("create of a blob that exists: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.blobs[name] = b
}

func (m *model) open(t *rapid.T) {
	name := drawName(t)
	r, err := m.e.s.Open(m.e.Context(), m.e.ref(name))
	m.check(t, name, err, func() blob.Info {
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, []byte(m.blobs[name].content)) {
			t.Fatalf("%s: read %d bytes that are not what was put", name, len(data))
		}
		return r.Info
	})
}

func (m *model) stat(t *rapid.T) {
	name := drawName(t)
	info, err := m.e.s.Stat(m.e.Context(), m.e.ref(name))
	m.check(t, name, err, func() blob.Info { return info })
}

// check compares what a call said of a blob with the model.
func (m *model) check(t *rapid.T, name string, err error, info func() blob.Info) {
	want, exists := m.blobs[name]
	if !exists {
		if !errors.Is(err, blob.ErrMissing) {
			t.Fatalf("%s does not exist, and the error is %v", name, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := info(); got.Ref != m.e.ref(name) || got.Size != int64(len(want.content)) || got.Modified.IsZero() || !maps.Equal(got.Metadata, want.metadata) {
		t.Fatalf("%s is %+v, want %d bytes with %v", name, got, len(want.content), want.metadata)
	}
}

func (m *model) remove(t *rapid.T) {
	name := drawName(t)
	if err := m.e.s.Delete(m.e.Context(), m.e.ref(name)); err != nil {
		t.Fatal(err)
	}
	delete(m.blobs, name)
}

func (m *model) list(t *rapid.T) {
	prefix := rapid.SampledFrom([]string{"", "a", "a/", "b"}).Draw(t, "prefix")
	var want []string
	for name := range m.blobs {
		if strings.HasPrefix(name, prefix) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	var got []string
	for b, err := range m.e.s.List(m.e.Context(), m.e.container, prefix) {
		m.check(t, b.Ref.Name, err, func() blob.Info { return b })
		got = append(got, b.Ref.Name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("listed %v, want %v", got, want)
	}
}
