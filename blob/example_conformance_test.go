package blob_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/blobtest"
	"github.com/millrace/millrace/internal/suitetest"
)

// counted is a store of our own: a wrapper that counts opens.
type counted struct {
	blob.Manager
	opens *atomic.Int64
}

func (s counted) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	s.opens.Add(1)
	return s.Manager.Open(ctx, ref)
}

// conformance is TestConformance in the package of the store.
func conformance(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{
		Bubble: true, // the store is in this process, so times are exact
		Large:  10_000,
		Open:   func(*testing.T) blob.Manager { return counted{blob.Memory(), new(atomic.Int64)} },
	})
}

// A test of an own store is one call.
func Example_conformance() {
	fmt.Println("conforms:", suitetest.Passes(conformance))
	// Output: conforms: true
}
