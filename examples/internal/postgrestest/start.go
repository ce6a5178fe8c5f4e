package postgrestest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/azuritetest"
)

var errAbsent = errors.New("no PostgreSQL: install the package postgresql, or name the folder with postgres and initdb in POSTGRES_BIN")

var shared struct {
	mu     sync.Mutex
	begun  bool
	server *Server
	err    error
}

var databases atomic.Int64

// Database returns the address of a new database, on a server that the tests share. It skips the
// test without PostgreSQL, or fails it if PostgreSQL is required.
func Database(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.begun {
		shared.begun = true
		shared.server, shared.err = begin()
	}
	check(t, shared.err)
	return shared.server.Database(t)
}

// Stop stops the shared server. TestMain calls it after the tests.
func Stop() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.end()
	}
	shared.begun, shared.server, shared.err = false, nil, nil
}

// Start starts a server for one test, which ends with it.
func Start(t testing.TB) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	s, err := begin()
	check(t, err)
	t.Cleanup(s.end)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errAbsent) && !azuritetest.Required("postgres"):
		t.Skipf("NOT TRIED WITH POSTGRESQL: %v", err)
	default:
		t.Fatalf("this test needs PostgreSQL: %v", err)
	}
}
