package localqueue

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

func TestAccessPolicy(t *testing.T) {
	ctx := context.Background()
	q := must(New(&Options{DeletingFor: -1})).queue(name("policies"))
	checkPolicy := func(want string) {
		t.Helper()
		got, err := q.AccessPolicy(ctx)
		if err != nil || string(got) != want || want == "" && got != nil {
			t.Fatalf("AccessPolicy: got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := q.AccessPolicy(ctx); !errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("AccessPolicy of a missing queue: got %v, want ErrQueueMissing", err)
	}
	if err := q.SetAccessPolicy(ctx, []byte("x")); !errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("SetAccessPolicy of a missing queue: got %v, want ErrQueueMissing", err)
	}
	if err := q.Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	checkPolicy("")
	given := []byte("first")
	if err := q.SetAccessPolicy(ctx, given); err != nil {
		t.Fatal(err)
	}
	given[0] = 'F'
	checkPolicy("first")
	got, _ := q.AccessPolicy(ctx)
	got[0] = 'F'
	checkPolicy("first")
	if err := q.SetAccessPolicy(ctx, make([]byte, maxSettings+1)); !errors.Is(err, queue.ErrTooLarge) {
		t.Errorf("SetAccessPolicy of too many bytes: got %v, want ErrTooLarge", err)
	}
	checkPolicy("first")
	if err := errors.Join(q.Drop(ctx), q.Create(ctx, nil)); err != nil {
		t.Fatal(err)
	}
	checkPolicy("")
	if err := errors.Join(q.SetAccessPolicy(ctx, []byte("again")), q.SetAccessPolicy(ctx, nil)); err != nil {
		t.Fatal(err)
	}
	checkPolicy("")
}

func TestServiceProperties(t *testing.T) {
	ctx := context.Background()
	e := must(New(nil))
	account := func(name string) localengine.Account { return e.Account(name).(localengine.Account) }
	if got, err := account("a").ServiceProperties(ctx); got != nil || err != nil {
		t.Errorf("ServiceProperties before they are set: got %q, %v; want none", got, err)
	}
	given := []byte("a's")
	if err := errors.Join(account("a").SetServiceProperties(ctx, given), account("b").SetServiceProperties(ctx, []byte("b's"))); err != nil {
		t.Fatal(err)
	}
	given[0] = 'x'
	for name, want := range map[string]string{"a": "a's", "b": "b's"} {
		if got, err := account(name).ServiceProperties(ctx); err != nil || string(got) != want {
			t.Errorf("ServiceProperties(%s): got %q, %v; want %q", name, got, err, want)
		}
	}
	if err := account("a").SetServiceProperties(ctx, bytes.Repeat(given, maxSettings)); !errors.Is(err, queue.ErrTooLarge) {
		t.Errorf("SetServiceProperties of too many bytes: got %v, want ErrTooLarge", err)
	}
	if err := account("a").SetServiceProperties(ctx, []byte{}); err != nil {
		t.Fatal(err)
	}
	if got, err := account("a").ServiceProperties(ctx); got != nil || err != nil {
		t.Errorf("ServiceProperties after setting none: got %q, %v; want none", got, err)
	}
}
