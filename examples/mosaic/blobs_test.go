package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/internal/azuritetest"
)

// A blob service that cannot be used is an error at the start, not a wait.
func TestABlobServiceIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	own, err := openServer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer own.close()
	location, err := own.start()
	if err != nil {
		t.Fatal(err)
	}
	nothing := httptest.NewServer(nil)
	nothing.Close()
	r := mosaic(t, "processor", "-account", location+"BlobEndpoint="+nothing.URL+"/devstoreaccount1;")
	if r.status != cli.StatusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "blob service") || !strings.Contains(r.stderr, "-blobs") || strings.Contains(r.stderr, azuritetest.Key) {
		t.Errorf("got %+v; want status %d, one line on the blob service and -blobs, without the key", r, cli.StatusFailed)
	}
}
