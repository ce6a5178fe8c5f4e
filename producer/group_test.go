package producer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// onlyGroup returns the only message on the queue, which is a group, taken apart.
func onlyGroup(t *testing.T, q queue.Queue) (envelope.Head, envelope.Group) {
	t.Helper()
	batch, err := q.Peek(t.Context(), 2)
	if err != nil || len(batch) != 1 {
		t.Fatalf("got %v, %v, want one message", batch, err)
	}
	h, body, _, err := envelope.Open(batch[0].Text, codec.Auto, envelope.Groups, envelope.Kinds)
	if err != nil {
		t.Fatal(err)
	}
	g, err := envelope.DecodeGroup(body, h.Items)
	if err != nil {
		t.Fatal(err)
	}
	return h, g
}

func TestAGroupIsOneMessage(t *testing.T) {
	q := setup(t)
	p := producer.New(q, &producer.Options[order]{Kind: "order", Interceptors: []producer.Interceptor{
		func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			if s.Items != 3 {
				t.Errorf("the interceptor sees %d items", s.Items)
			}
			s.Items = 7 // it cannot know better than the body
			s.Key = "set"
			return next(ctx)
		},
	}})
	sent, err := p.SendGroup(t.Context(), []order{{"7"}, {"8"}, {"9"}}, &producer.SendOptions{JobID: "three"})
	if err != nil || sent.JobID != "three" {
		t.Fatalf("got %+v, %v", sent, err)
	}
	h, g := onlyGroup(t, q)
	if h.Items != 3 || h.ID != "three" || h.Kind != "order" || h.Key != "set" || len(g) != 3 || string(g[2]) != `{"ID":"9"}` {
		t.Errorf("got %+v, %q", h, g)
	}
}

var errUnlucky = errors.New("unlucky")

// unluckyCodec encodes no order 13.
type unluckyCodec struct{ codec.Codec[order] }

func (c unluckyCodec) Encode(o order) ([]byte, error) {
	if o.ID == "13" {
		return nil, errUnlucky
	}
	return c.Codec.Encode(o)
}

// What cannot be sent as a whole is refused before any of it is sent.
func TestAGroupThatCannotBeSentIsRefused(t *testing.T) {
	fifty := make([]order, 50)
	for i := range fifty {
		fifty[i].ID = strings.Repeat("x", 1500)
	}
	for _, c := range []struct {
		what string
		jobs []order
		o    *producer.Options[order]
		kind error
		want string
	}{
		{"empty", nil, nil, queue.ErrInvalid, "a group of 0 jobs is outside 1…65536"},
		{"too many", make([]order, envelope.MaxItems+1), nil, queue.ErrInvalid, "65537 jobs"},
		{"too large", fifty, nil, queue.ErrTooLarge, "a group of 50 jobs"},
		{"plain", fifty[:1], &producer.Options[order]{Format: codec.Plain}, queue.ErrInvalid, "a group needs an envelope"},
		{"Base64", fifty[:1], &producer.Options[order]{Format: codec.Base64}, queue.ErrInvalid, "a group needs an envelope"},
		{"not encoded", []order{{"1"}, {"13"}}, &producer.Options[order]{Codec: unluckyCodec{codec.JSON[order]()}}, nil, "item 1 of a group of 2: unlucky"},
	} {
		q := setup(t)
		_, err := producer.New(q, c.o).SendGroup(t.Context(), c.jobs, nil)
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.what, err, c.want)
		}
		if p, err := q.Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("%s: %d messages were sent, %v", c.what, p.Depth, err)
		}
	}
	if _, err := (*producer.Producer[order])(nil).SendGroup(t.Context(), fifty, nil); err == nil {
		t.Error("the zero producer sends groups")
	}
}

// Whatever is accepted leaves room for everything that is recorded later.
func TestAGroupLeavesRoomForItsRecord(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := setup(t)
		jobs := make([]order, rapid.IntRange(1, 4000).Draw(r, "jobs"))
		text := rapid.SampledFrom([]string{"x", `"`, "<&", "\x00"}).Draw(r, "text")
		filler := rapid.IntRange(0, 65536).Draw(r, "size") / len(jobs) / len(text)
		for i := range jobs {
			jobs[i].ID = strings.Repeat(text, filler)
		}
		if _, err := producer.New[order](q, nil).SendGroup(t.Context(), jobs, nil); err != nil {
			if !errors.Is(err, queue.ErrTooLarge) {
				r.Fatal(err)
			}
			return
		}
		h, g := onlyGroup(t, q)
		all := envelope.NewItemSet(len(g), func(int) bool { return true })
		h.Attempts, h.Settled, h.Starts, h.Poison, h.Done, h.Failed = 1<<31-1, 1<<63-1, 1<<31-1, "undecodable", all, all
		h.Failure = envelope.ShortFailure(strings.Repeat("&", 1000))
		recorded, err := envelope.Seal(h, g.Encode(), codec.Envelope)
		if err != nil {
			r.Fatal(err)
		}
		if err := driver.CheckRequest(recorded, 0); err != nil {
			r.Fatal(err)
		}
	})
}
