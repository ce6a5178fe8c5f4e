package table_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/tabletest"
)

// counted is a store of our own: a wrapper that counts queries.
type counted struct {
	table.Store
	queries *atomic.Int64
}

func (s counted) Query(ctx context.Context, q table.Query) (table.Page, error) {
	s.queries.Add(1)
	return s.Store.Query(ctx, q)
}

// conformance is TestConformance in the package of the store.
func conformance(t *testing.T) {
	tabletest.Run(t, tabletest.Harness{
		Bubble: true, // the store is in this process, so times are exact
		Open: func(_ *testing.T, name string) table.Store {
			return counted{table.Memory(name), new(atomic.Int64)}
		},
	})
}

// A test of an own store is one call.
func Example_conformance() {
	fmt.Println("conforms:", suitetest.Passes(conformance))
	// Output: conforms: true
}
