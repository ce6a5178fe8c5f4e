package azureblob_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/blob/blobtest"
	"github.com/millrace/millrace/internal/azuritetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const changes = "the service does not keep what was replaced"

// TestTheFakeServiceConforms: pages of two, blocks of a kilobyte.
func TestTheFakeServiceConforms(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{
		Bubble: true, Large: 10_000, Secrets: []string{azuritetest.Key},
		Quirks: blobtest.Quirks{ReadersChange: changes},
		Open: func(t *testing.T) blob.Manager {
			s := newService()
			s.pageSize = 2
			return s.open(t, azureblob.Options{})
		},
	})
}

// TestAzuriteConforms settles BL-05 and BL-06.
func TestAzuriteConforms(t *testing.T) {
	location := azuritetest.BlobConnectionString(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	blobtest.Run(t, blobtest.Harness{
		Large: 64 << 10, Secrets: []string{azuritetest.Key},
		Quirks: blobtest.Quirks{ReadersChange: changes},
		Open: func(t *testing.T) blob.Manager {
			s, err := azureblob.Open(location, &azureblob.Options{BlockSize: 4 << 10, Transport: &http.Client{Transport: transport}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	})
}
