package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/table"
)

// Without any flag there is something to see, it can be deleted, and nothing is left in the end.
func TestANewcomerSeesSomething(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	r := run(t, "-addr", "127.0.0.1:0")
	b := &browser{t, r.address()}
	_, list := b.get("/")
	for _, s := range samples() {
		if !strings.Contains(list, "/channel?name=") || strings.Count(list, "<li>") != len(samples()) {
			t.Fatalf("the list lacks %q: %s", s.name, list)
		}
	}
	if _, page := b.get("/channel?name=The+mill%27s+diary"); !strings.Contains(page, `rel="next"`) {
		t.Errorf("the diary has one page: %s", page)
	}
	b.post(b.action("/delete?name=Welcome"), "once", "1")
	b.gone("/channel?name=Welcome")
	r.end()
	if left := names(t, tmp); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if said := r.out.String(); strings.Count(said, "\n") != 1 {
		t.Errorf("output: got %q, want one line", said)
	}
}

// gone waits until an address has no page any more.
func (b *browser) gone(path string) {
	b.t.Helper()
	azuritetest.Until(b.t, path+" is gone", func() bool { status, _ := b.get(path); return status == http.StatusNotFound })
}

func TestDataIsKept(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "new", "folder")
	r := run(t, "-addr", "127.0.0.1:0", "-data", data)
	b := &browser{t, r.address()}
	b.post("/channels", "name", "Kept", "owner", "Ann")
	b.post(b.action("/channel?name=Kept"), "user", "Ann", "title", "A kept title", "text", "text")
	for _, sample := range samples() {
		b.post(b.action("/delete?name="+url.QueryEscape(sample.name)), "once", sample.name)
	}
	b.gone("/channel?name=Welcome")

	other := run(t, "-addr", "127.0.0.1:0", "-data", data)
	if status := other.wait(); status != cli.StatusFailed || !strings.Contains(other.out.String(), "is in use: another microblog runs there") || strings.Count(other.out.String(), "\n") != 1 {
		t.Errorf("another process on the same data: got %d, %q", status, other.out)
	}
	r.end()

	r = run(t, "-addr", "127.0.0.1:0", "-data", data)
	b.address = r.address()
	if _, page := b.get("/channel?name=Kept"); !strings.Contains(page, "A kept title") {
		t.Errorf("after a restart: %s", page)
	}
	b.gone("/channel?name=Welcome")
	if _, list := b.get("/"); strings.Contains(list, "Welcome") {
		t.Errorf("the samples are back: %s", list)
	}
	r.end()
	r = run(t, "sweep", "-data", data)
	if status := r.wait(); status != cli.StatusDone || !strings.Contains(r.out.String(), "0 posts of channels that are gone were deleted") {
		t.Errorf("sweep: got %d, %q", status, r.out)
	}
}

// Posts of a channel that is gone are swept when no writer can be at work on them any more.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := t.TempDir()
		s, err := openFolder(data)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.site.Create(t.Context(), "Mills", "Ann")
		if err == nil {
			err = writeMany(t.Context(), s.site, c, 3)
		}
		if err == nil {
			err = s.site.Channels.Delete(t.Context(), table.Key{Partition: "Mills"}, table.Any)
		}
		if err = errors.Join(err, s.close()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * channels.WriteTimeout)
		for _, want := range []string{"3 posts of channels that are gone were deleted\n", "0 posts of channels that are gone were deleted\n"} {
			var stdout, stderr bytes.Buffer
			if status := command(t.Context(), []string{"sweep", "-data", data}, &stdout, &stderr); status != cli.StatusDone || stdout.String() != want {
				t.Errorf("got %d, %q, %q; want %q", status, stdout.String(), stderr.String(), want)
			}
		}
	})
}

// On a server without tables they are in a folder, which one process can have.
func TestTablesOfAServerThatHasNone(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lock")
	}
	t.Parallel()
	server, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r := run(t, "-addr", "127.0.0.1:0", "-account", server.ConnectionString())
	b := &browser{t, r.address()}
	if _, list := b.get("/"); !strings.Contains(list, "There are no channels yet") {
		t.Errorf("an account has samples: %s", list)
	}
	b.post("/channels", "name", "Mills", "owner", "Ann")
	other := run(t, "-role", "worker", "-account", server.ConnectionString())
	if status := other.wait(); status != cli.StatusFailed || !strings.Contains(other.out.String(), "in use by another process") || strings.Count(other.out.String(), "\n") != 1 {
		t.Errorf("another process: got %d, %q", status, other.out)
	}
	b.post(b.action("/delete?name=Mills"), "once", "1")
	b.gone("/channel?name=Mills")
	r.end()
	r = run(t, "-addr", "127.0.0.1:0", "-account", server.ConnectionString(), "-data", t.TempDir())
	b.address = r.address()
	b.post("/channels", "name", "Mills", "owner", "Ann")
	r.end()
}

// The same program on Azurite: its address is all that is different. The roles are processes of their own.
func TestTheProgramMovesToAzuriteByItsAddress(t *testing.T) {
	t.Parallel()
	account := azuritetest.ConnectionString(t)
	tables := azuritetest.TableConnectionString(t)
	_, endpoint, found := strings.Cut(tables, "TableEndpoint=")
	if !found {
		t.Fatalf("%s has no TableEndpoint", tables)
	}
	endpoint, _, _ = strings.Cut(endpoint, ";")
	account = strings.TrimSuffix(account, ";") + ";TableEndpoint=" + endpoint
	both := run(t, "-addr", "127.0.0.1:0", "-account", account)
	b := &browser{t, both.address()}
	b.post("/channels", "name", "Ann's <b>mills</b>", "owner", "Ann")
	b.post(b.action("/channel?name="+url.QueryEscape("Ann's <b>mills</b>")), "user", "Ann", "title", "in Azurite", "text", "text")
	both.end()

	front := run(t, "-addr", "127.0.0.1:0", "-role", "web", "-account", account)
	b.address = front.address()
	if _, page := b.get("/channel?name=" + url.QueryEscape("Ann's <b>mills</b>")); !strings.Contains(page, "in Azurite") {
		t.Errorf("the next process shows %s", page)
	}
	if page := b.post(b.action("/delete?name="+url.QueryEscape("Ann's <b>mills</b>")), "once", "1"); !strings.Contains(page, "has not begun") {
		t.Errorf("without a worker: %s", page)
	}
	worker := run(t, "-role", "worker", "-account", account)
	if place := worker.until(`The worker is at work: (.*); stop`); !strings.Contains(place, "the table service of the account "+azuritetest.Account) {
		t.Errorf("place: got %s", place)
	}
	b.gone("/channel?name=" + url.QueryEscape("Ann's <b>mills</b>"))
	worker.end()
	front.end()
	sweep := run(t, "sweep", "-account", account)
	if status := sweep.wait(); status != cli.StatusDone {
		t.Errorf("sweep: got %d, %q", status, sweep.out)
	}
}
