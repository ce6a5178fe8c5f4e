package gather_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/blob/gather"
	"github.com/millrace/millrace/internal/azuritetest"
)

// Three processes at once put 60 parts, each of them twice, and end the gather, on every store.
func TestStores(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) blob.Store{
		"memory": func(*testing.T) blob.Store { return blob.Memory() },
		"directory": func(t *testing.T) blob.Store {
			d, err := blob.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d
		},
		"azurite": func(t *testing.T) blob.Store {
			s, err := azureblob.Open(azuritetest.BlobConnectionString(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) { gatherOn(t, open(t)) })
	}
}

func gatherOn(t *testing.T, s blob.Store) {
	t.Helper()
	const parts, processes = 60, 3
	container := "gather-" + strings.ToLower(rand.Text())
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		ends   []gather.End
		firsts int
	)
	for p := range processes {
		g, err := gather.New(s, container, nil)
		if err != nil {
			t.Fatal(err)
		}
		for h := range 2 {
			all.Go(func() {
				for i := range parts * 2 / (2 * processes) {
					end, err := handle(t.Context(), g, (i*2*processes+h*processes+p)%parts, parts)
					if err != nil {
						t.Error(err)
					}
					if end == nil {
						continue
					}
					mu.Lock()
					if ends = append(ends, *end); end.First {
						firsts++
					}
					mu.Unlock()
				}
				// One message comes again, late for most.
				if _, err := handle(t.Context(), g, h*processes+p, parts); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	g, err := gather.New(s, container, nil)
	if err != nil {
		t.Fatal(err)
	}
	end, ended, err := g.End(t.Context(), batch)
	if want := strings.Repeat("x", parts*(parts+1)/2); string(end.Result) != want || !ended || err != nil || firsts != 1 || len(ends) == 0 {
		t.Fatalf("got an end of %d bytes, %v, %v, %d times first; want %d bytes, once", len(end.Result), ended, err, firsts, len(want))
	}
	for _, other := range ends {
		if string(other.Result) != string(end.Result) {
			t.Errorf("got another end, of %d bytes", len(other.Result))
		}
	}
	if stored, err := g.Stored(t.Context(), batch); len(stored) > 0 || err != nil {
		t.Errorf("parts that are left: got %v, %v; want none", stored, err)
	}
	if err := g.Forget(t.Context(), batch); err != nil {
		t.Error(err)
	}
	if _, ended, err := g.End(t.Context(), batch); ended || err != nil {
		t.Errorf("end after Forget: got %v, %v; want none", ended, err)
	}
}

// handle is the handler of a part: it has as many bytes as its number and one.
func handle(ctx context.Context, g *gather.Gather, part, parts int) (*gather.End, error) {
	if err := g.Put(ctx, batch, part, strings.NewReader(strings.Repeat("x", part+1))); err != nil {
		return nil, err
	}
	done, err := g.Complete(ctx, batch, parts)
	if err != nil || !done {
		return nil, err
	}
	end, err := g.Once(ctx, batch, func(ctx context.Context) (result []byte, err error) {
		for p, err := range g.Parts(ctx, batch, parts) {
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(p)
			if err != nil {
				return nil, err
			}
			if len(text) != p.Number+1 {
				return nil, fmt.Errorf("part %d has %d bytes", p.Number, len(text))
			}
			result = append(result, text...)
		}
		return result, nil
	})
	if err != nil {
		return nil, err
	}
	return &end, g.Sweep(ctx, batch)
}
