package account

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/table"
)

func openFor(t *testing.T, location string) *Account {
	t.Helper()
	a, err := Open(location, plainlog.New(t.Output()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // its error is that of an emulator that is gone
	return a
}

// use writes an entity to a table and reads it.
func use(t *testing.T, tables *Tables) {
	t.Helper()
	s, err := tables.Table(t.Context(), "Photos")
	if err != nil {
		t.Fatal(err)
	}
	k := table.Key{Partition: "a"}
	if _, err := table.Modify(t.Context(), s, k, func(e *table.Entity) error { e.Properties["N"] = int64(1); return nil }, nil); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Get(t.Context(), k); err != nil || e.Int("N") != 1 {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestTablesOfAFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lock")
	}
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	a := openFor(t, "AccountName=a;"+keyOfAnyone+";QueueEndpoint=http://127.0.0.1:1/a")
	given := filepath.Join(t.TempDir(), "new", "folder")
	for folder, want := range map[string]string{given: given, "": os.Getenv("XDG_DATA_HOME")} {
		tables, err := testProgram.OpenTables(t.Context(), a, folder)
		if err != nil {
			t.Fatal(err)
		}
		use(t, tables)
		if !strings.HasPrefix(tables.Place, want) {
			t.Errorf("place: got %s, want one in %s", tables.Place, want)
		}
		if other, err := testProgram.OpenTables(t.Context(), a, folder); err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("opened twice: got %v, %v", other, err)
		}
		if err := tables.Close(); err != nil {
			t.Error(err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := testProgram.OpenTables(t.Context(), a, file); err == nil {
		t.Error("a file is no folder")
	}
}

func TestTablesOfAnEmbeddedAccountAreTemporary(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	tables, err := testProgram.OpenTables(t.Context(), openFor(t, Embedded), "")
	if err != nil {
		t.Fatal(err)
	}
	use(t, tables)
	if err := tables.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestTablesOfAzurite(t *testing.T) {
	t.Parallel()
	location := azuritetest.TableConnectionString(t)
	a := openFor(t, location+";QueueEndpoint=http://127.0.0.1:1/"+azuritetest.Account) // no request is sent there
	tables, err := testProgram.OpenTables(t.Context(), a, "")
	if err != nil {
		t.Fatal(err)
	}
	use(t, tables)
	if !strings.Contains(tables.Place, "the table service of the account "+azuritetest.Account) {
		t.Errorf("place: got %s", tables.Place)
	}
	if err := tables.Close(); err != nil {
		t.Error(err)
	}
}

func TestATableServiceThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	a := openFor(t, "AccountName=a;"+keyOfAnyone+";QueueEndpoint=http://127.0.0.1:1/a;TableEndpoint=http://127.0.0.1:1/a")
	tables, err := testProgram.OpenTables(t.Context(), a, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.Table(t.Context(), "Photos"); !errors.Is(err, table.ErrUnavailable) || !strings.HasPrefix(err.Error(), "the albums belong into the table service of the account a, which cannot be used: ") || !strings.Contains(err.Error(), "-data") {
		t.Errorf("got %v", err)
	}
}

// The table service says that it is away by itself, apart from the queue server.
func TestAnOutageOfTheTableServiceIsTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		server := &switched{}
		a := &Account{client: &http.Client{Transport: server}}
		transport := &tableTransport{account: a, outage: outage{server: "table server", logger: plainlog.New(&out)}}
		for _, up := range []bool{true, false, false, false, false, true, true} {
			server.up = up
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if response, err := transport.Do(r); err == nil {
				_ = response.Body.Close()
			}
			time.Sleep(500 * time.Millisecond)
		}
		if want := "the table server does not answer, trying again\nthe table server answers again\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
		if a.Requests() != 0 {
			t.Errorf("requests to queues: got %d, want none", a.Requests())
		}
	})
}

// switched is a transport to a server that answers or does not.
type switched struct{ up bool }

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.up {
		return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}
