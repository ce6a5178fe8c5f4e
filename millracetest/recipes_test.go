package millracetest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// The recipes of the package comment, as tests. The last test checks that their code is the
// same.

type Order struct{ ID string }

var errNoAddress = errors.New("no address")

func ship(context.Context, *listener.Message[Order]) error { return listener.Poison(errNoAddress) }

func TestRecipeOneJob(t *testing.T) {
	r := millracetest.Work(t, ship, Order{ID: "7"}, nil)
	if r.Outcome != listener.Poisoned || !errors.Is(r.Err, errNoAddress) {
		t.Errorf("got %v, %v; want poisoned, %v", r.Outcome, r.Err, errNoAddress)
	}
}

func bill(ctx context.Context, q queue.Queue) {
	p := producer.New[Order](q, nil)
	p.Send(ctx, Order{ID: "8"}, &producer.SendOptions{Delay: time.Hour})
	p.Send(ctx, Order{ID: "7"}, nil)
}

func TestRecipeEnqueued(t *testing.T) {
	q := millracetest.Queue(t)
	bill(t.Context(), q) // the code under test, with a producer for q
	millracetest.RequireEnqueued(t, q, Order{ID: "7"}, Order{ID: "8"})
}

func TestRecipeLargeBodies(t *testing.T) {
	large := Order{ID: strings.Repeat("7", 60_000)}
	claims, err := claimcheck.New(blob.Memory(), "bodies", nil)
	q := millracetest.WithClaims(millracetest.Queue(t), claims)
	millracetest.Send(t, q, large)
	millracetest.Drain(t, q, ship, &listener.Options[Order]{Claims: claims})
	if held := len(millracetest.Enqueued[poison.Record](t, q.Sibling(poison.Suffix))); err != nil || held != 1 {
		t.Errorf("got %d records, error %v; want 1", held, err)
	}
}

func flaky(_ context.Context, m *listener.Message[Order]) error {
	if m.Attempt < 3 {
		return errors.New("not yet")
	}
	return nil
}

func TestRecipeRetryDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.Send(t, q, Order{ID: "7"})
		millracetest.Drain(t, q, flaky, nil) // attempt 1 fails
		time.Sleep(2 * time.Second)
		millracetest.Drain(t, q, flaky, nil) // so does attempt 2
		time.Sleep(20 * time.Second)
		millracetest.Drain(t, q, flaky, nil) // attempt 3 succeeds
		millracetest.RequireEmpty(t, q)
	})
}

func TestRecipeLongJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := millracetest.Work(t, func(ctx context.Context, m *listener.Message[Order]) error {
			time.Sleep(time.Hour)
			return ctx.Err()
		}, Order{ID: "7"}, nil)
		if r.Outcome != listener.Deleted {
			t.Errorf("got %v, %v; want deleted", r.Outcome, r.Err)
		}
	})
}

func shipSlowly(ctx context.Context, _ *listener.Message[Order]) error {
	select {
	case <-time.After(time.Hour):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestRecipeLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.Send(t, q, Order{ID: "7"})
		got := millracetest.Drain(t, q, func(ctx context.Context, m *listener.Message[Order]) error {
			if err := q.Clear(ctx); err != nil {
				return err
			}
			return shipSlowly(ctx, m) // must notice that ctx ends
		}, nil)
		if got[listener.Lost] != 1 {
			t.Errorf("got %v, want one lost", got)
		}
	})
}

func shipOnce(_ context.Context, m *listener.Message[Order]) error {
	if m.DequeueCount != 2 || m.Attempt != 1 {
		return errors.New("want dequeue count 2 and attempt 1")
	}
	return nil
}

func TestRecipeKilledWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.Send(t, q, Order{ID: "7"})
		if _, err := q.Dequeue(t.Context(), 1, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		millracetest.Drain(t, q, shipOnce, nil) // sees DequeueCount 2, Attempt 1
		millracetest.RequireEmpty(t, q)
	})
}

func TestRecipeShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.Send(t, q, Order{ID: "7"})
		ctx, stop := context.WithCancel(t.Context())
		l := listener.New(q, shipSlowly, &listener.Options[Order]{Grace: 10 * time.Second})
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait() // the handler is running
		stop()
		if err := <-done; err != nil { // ten seconds later
			t.Errorf("Run: got error %v, want nil", err)
		}
		millracetest.RequireEnqueued(t, q, Order{ID: "7"}) // given back
	})
}

// withoutFormatting returns code with single spaces.
func withoutFormatting(code string) string { return strings.Join(strings.Fields(code), " ") }

// Every recipe of the package comment is tested here.
func TestTheRecipesOfThePackageCommentAreTested(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	tested, err := os.ReadFile("recipes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var recipes []string
	within := false
	for line := range strings.Lines(string(doc)) {
		code, ok := strings.CutPrefix(line, "//\t")
		if ok && !within {
			recipes = append(recipes, "")
		}
		if within = ok; ok {
			recipes[len(recipes)-1] += code
		}
	}
	if len(recipes) != 8 {
		t.Errorf("recipes in the package comment: got %d, want 8", len(recipes))
	}
	for _, recipe := range recipes {
		if !strings.Contains(withoutFormatting(string(tested)), withoutFormatting(recipe)) {
			t.Errorf("recipes_test.go: got no test with this recipe, want one:\n%s", recipe)
		}
	}
}
