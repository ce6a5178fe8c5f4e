package blob_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/blobtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMemoryConforms settles BL-05 and BL-06.
func TestMemoryConforms(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{Bubble: true, Large: 64 << 10, Open: func(*testing.T) blob.Manager { return blob.Memory() }})
}

// TestDirectoryConforms settles BL-05 and BL-06.
func TestDirectoryConforms(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{Large: 64 << 10, Open: func(t *testing.T) blob.Manager { return dir(t, t.TempDir()) }})
}
