package table_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/tabletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func memory(_ *testing.T, name string) table.Store { return table.Memory(name) }

// TestMemoryConforms settles T-01, T-03, T-04, T-10 and T-11 for the store in memory.
func TestMemoryConforms(t *testing.T) {
	tabletest.Run(t, tabletest.Harness{Open: memory})
}

// TestMemoryConformsInABubble has exact times.
func TestMemoryConformsInABubble(t *testing.T) {
	tabletest.Run(t, tabletest.Harness{Bubble: true, Open: memory})
}
