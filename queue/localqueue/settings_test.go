package localqueue

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/queue"
)

func TestAccessPolicy(t *testing.T) {
	ctx := context.Background()
	q := New(&Options{DeletingFor: -1}).Queue(name("policies"))
	wants := func(want string) {
		t.Helper()
		got, err := q.AccessPolicy(ctx)
		if err != nil || string(got) != want || want == "" && got != nil {
			t.Fatalf("policy %q, %v; want %q", got, err, want)
		}
	}
	if _, err := q.AccessPolicy(ctx); !errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("of no queue: %v", err)
	}
	if err := q.SetAccessPolicy(ctx, []byte("x")); !errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("for no queue: %v", err)
	}
	if err := q.Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	wants("")
	given := []byte("first")
	if err := q.SetAccessPolicy(ctx, given); err != nil {
		t.Fatal(err)
	}
	given[0] = 'F'
	wants("first")
	got, _ := q.AccessPolicy(ctx)
	got[0] = 'F'
	wants("first")
	if err := q.SetAccessPolicy(ctx, make([]byte, maxSettings+1)); !errors.Is(err, queue.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	wants("first")
	if err := errors.Join(q.Drop(ctx), q.Create(ctx, nil)); err != nil {
		t.Fatal(err)
	}
	wants("")
	if err := errors.Join(q.SetAccessPolicy(ctx, []byte("again")), q.SetAccessPolicy(ctx, nil)); err != nil {
		t.Fatal(err)
	}
	wants("")
}

func TestServiceProperties(t *testing.T) {
	ctx := context.Background()
	e := New(nil)
	if got, err := e.ServiceProperties(ctx, "a"); got != nil || err != nil {
		t.Errorf("of an account without any: %q, %v", got, err)
	}
	given := []byte("a's")
	if err := errors.Join(e.SetServiceProperties(ctx, "a", given), e.SetServiceProperties(ctx, "b", []byte("b's"))); err != nil {
		t.Fatal(err)
	}
	given[0] = 'x'
	for account, want := range map[string]string{"a": "a's", "b": "b's"} {
		if got, err := e.ServiceProperties(ctx, account); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", account, got, err)
		}
	}
	if err := e.SetServiceProperties(ctx, "a", bytes.Repeat(given, maxSettings)); !errors.Is(err, queue.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if err := e.SetServiceProperties(ctx, "a", []byte{}); err != nil {
		t.Fatal(err)
	}
	if got, err := e.ServiceProperties(ctx, "a"); got != nil || err != nil {
		t.Errorf("after none was set: %q, %v", got, err)
	}
}
