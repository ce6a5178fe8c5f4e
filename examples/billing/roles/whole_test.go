package roles

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/billing/totals"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup"
)

// From the spool folder over HTTP, a folder of blobs and the queues to SQLite, as the command puts it together.
func TestTheWholeWayFromASpoolToTheBooks(t *testing.T) {
	const days, perDay = 3, 2000
	store, err := blob.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	ledger, err := books.Open(t.Context(), filepath.Join(t.TempDir(), "books.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	var bus wakeup.Bus
	reported := make(chan books.Batch, days)
	s, err := New(localqueue.New(nil).Account("test"), store, &Options{
		Roles: All, Books: ledger, Group: 300, Source: &bus, Publisher: &bus,
		Reported: func(b books.Batch) { reported <- b },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runAll(ctx, s.Runners()) }()

	shipAll(t, s, store, days*perDay, days)
	for range days {
		select {
		case b := <-reported:
			if !b.Reported.After(b.HandedOver) {
				t.Errorf("batch %s: reported %v, handed over %v", b.Name, b.Reported, b.HandedOver)
			}
		case err := <-ended:
			t.Fatalf("the roles ended early: %v", err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	compare(t, ledger, days*perDay, days)
}

// shipAll ships generated records over HTTP.
func shipAll(t *testing.T, s *System, store blob.Store, n, days int) {
	server := httptest.NewServer(shipping.NewServer(store,
		func(ctx context.Context, m shipping.Manifest) error { return s.Submit(ctx, m.Batch) },
		&shipping.ServerOptions{Reported: s.Reported}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	client, err := shipping.NewClient(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	source := shipping.Records("generated", records.Generate(1, n, days))
	spool, err := shipping.Consolidate(t.Context(), t.TempDir(), slices.Values([]shipping.Source{source}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = spool.Close() }()
	for batch, err := range spool.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Ship(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
}

// compare compares the books with a straight computation.
func compare(t *testing.T, ledger *books.Books, n, days int) {
	var want totals.Totals
	for r := range records.Generate(1, n, days) {
		currency, amount, err := records.BuiltInTariffs().Charge(&r)
		if err != nil {
			t.Fatal(err)
		}
		want.Add(totals.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}, r.Quantity, amount)
	}
	sums := make(map[totals.Key]totals.Sum)
	err := ledger.Read(t.Context(), func(s *books.Snapshot) error {
		for total, err := range s.Totals(t.Context()) {
			if err != nil {
				return err
			}
			sums[total.Key] = total.Sum
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, sum := range want.All() {
		got := sums[key]
		if got.Records != sum.Records || !got.Quantity.Equal(sum.Quantity) || !got.Amount.Equal(sum.Amount) {
			t.Errorf("%v: got %v, want %v", key, got, sum)
		}
		delete(sums, key)
	}
	if len(sums) > 0 {
		t.Errorf("sums of nothing: %v", sums)
	}
}
