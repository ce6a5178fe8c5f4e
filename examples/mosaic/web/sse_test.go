package web

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// deaf is a connection whose client does not read: a write blocks until its deadline.
type deaf struct {
	header   http.Header
	deadline time.Time
}

func (d *deaf) Header() http.Header                  { return d.header }
func (d *deaf) WriteHeader(int)                      {}
func (d *deaf) Flush()                               {}
func (d *deaf) SetWriteDeadline(end time.Time) error { d.deadline = end; return nil }

func (d *deaf) Write([]byte) (int, error) {
	if d.deadline.IsZero() {
		select {} // for ever
	}
	time.Sleep(time.Until(d.deadline))
	return 0, os.ErrDeadlineExceeded
}

func TestAClientThatDoesNotReadIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		s := w.serve(func(o *Options) { o.Data += "/page" }, withoutSocket)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/events", nil)
		s.ServeHTTP(&deaf{header: http.Header{}}, r) // returns
		s.stop()
	})
}
