package internal_test

import (
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/retry"
)

// A time-out so long that it cannot be doubled stays as it is.
func TestATryTimeoutThatCannotBeDoubledStays(t *testing.T) {
	for _, most := range []time.Duration{math.MaxInt64, math.MaxInt64/2 + 1, math.MaxInt64/4 + 1} {
		for n := range 4 {
			if got := azurestorage.TryTimeout(retry.Repeated(t.Context(), n), most); got < most {
				t.Errorf("%v, repeated %d times: got %v", most, n, got)
			}
		}
	}
}

// TestTLSFailuresAreNotMissingServers: a server on this machine that is not trusted is there, so no
// hint says to start one.
func TestTLSFailuresAreNotMissingServers(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports each handshake that fails
	secure.StartTLS()
	defer secure.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	trusting := secure.Client()
	for _, c := range []struct {
		client *http.Client
		url    string
		want   string
	}{
		{azurestorage.NewClient(1), secure.URL, "does not trust the server's certificate"},
		{trusting, strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), "certificate is for other names"},
		{azurestorage.NewClient(1), strings.Replace(plain.URL, "http:", "https:", 1), "the address says https"},
		{azurestorage.NewClient(1), closed.URL, "start a server"},
	} {
		response, err := c.client.Get(c.url)
		if err == nil {
			response.Body.Close()
			t.Fatalf("%s: got a response", c.url)
		}
		if got := (azurestorage.Location{Hint: "start a server there"}).NetworkHint(err); !azurestorage.Unsent(err) || !strings.Contains(got, c.want) {
			t.Errorf("%s: got the hint %q for %v, want %q", c.url, got, err, c.want)
		}
		c.client.CloseIdleConnections()
	}
}
