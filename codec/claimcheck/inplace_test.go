package claimcheck_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// codec.Bytes does not copy: a handler may change the body in place. What it fails with is not
// what comes again, and what it saves is saved, whether the body is in the message or stored.
func TestABodyThatIsChangedInPlaceIsSavedOnlyIfAsked(t *testing.T) {
	for name, size := range map[string]int{"in the message": 3, "stored": 3 * limit} {
		for _, saves := range []bool{false, true} {
			bubble(t, func(b *bundle) {
				want := bytes.Repeat([]byte("a"), size)
				if _, err := producer.New(b.queue, &producer.Options[[]byte]{Codec: codec.Bytes(), Claims: b.claims}).Send(b.Context(), want, nil); err != nil {
					b.Fatal(err)
				}
				same := options(b.claims)
				o := &listener.Options[[]byte]{
					Codec: codec.Bytes(), Claims: same.Claims, Logger: same.Logger, Lease: listener.LeaseOptions{Visibility: same.Lease.Visibility}, RetryDelay: same.RetryDelay,
					Concurrency: 1, Poison: same.Poison,
				}
				var got [][]byte
				l := listener.New(b.queue, func(ctx context.Context, m *listener.Message[[]byte]) error {
					got = append(got, bytes.Clone(m.Body))
					if len(got) > 1 {
						return nil
					}
					m.Body[0] = 'b'
					if saves {
						if err := m.Save(ctx, m.Body); err != nil {
							b.Error(err)
						}
						m.Body[1] = 'c' // after that
					}
					return errors.New("broken")
				}, o)
				ctx, stop := context.WithCancel(b.Context())
				done := make(chan error, 1)
				go func() { done <- l.Run(ctx) }()
				time.Sleep(time.Minute)
				stop()
				if err := <-done; err != nil {
					b.Error(err)
				}
				again := bytes.Clone(want)
				if saves {
					again[0] = 'b'
				}
				if !slices.EqualFunc(got, [][]byte{want, again}, bytes.Equal) {
					b.Errorf("%s, saves %v: got %.10q, want %.10q and then %.10q", name, saves, got, want, again)
				}
			})
		}
	}
}

// Items of a group are parts of one body: what one changes in place is not what another one saves.
func TestAnItemThatIsChangedInPlaceIsNotSavedByAnother(t *testing.T) {
	for name, size := range map[string]int{"in the message": 3, "stored": 3 * limit} {
		bubble(t, func(b *bundle) {
			p := producer.New(b.queue, &producer.Options[[]byte]{Codec: codec.Bytes(), Claims: b.claims})
			item := bytes.Repeat([]byte("a"), size)
			if _, err := p.SendGroup(b.Context(), [][]byte{item, item}, nil); err != nil {
				b.Fatal(err)
			}
			same := options(b.claims)
			o := &listener.Options[[]byte]{
				Codec: codec.Bytes(), Claims: same.Claims, Logger: same.Logger, Lease: listener.LeaseOptions{Visibility: same.Lease.Visibility}, RetryDelay: same.RetryDelay,
				Concurrency: 1, Poison: same.Poison,
			}
			var got []string
			l := listener.New(b.queue, func(ctx context.Context, m *listener.Message[[]byte]) error {
				got = append(got, string(m.Body[:3]))
				if m.Attempt > 1 {
					return nil
				}
				m.Body[0] = 'b'
				if m.Item == 1 {
					if err := m.Save(ctx, m.Body); err != nil {
						b.Error(err)
					}
					m.Body[1] = 'c' // after that
				}
				return errors.New("broken")
			}, o)
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx) }()
			time.Sleep(time.Minute)
			stop()
			if err := <-done; err != nil {
				b.Error(err)
			}
			if want := []string{"aaa", "aaa", "aaa", "baa"}; !slices.Equal(got, want) {
				b.Errorf("%s: got %q, want %q", name, got, want)
			}
		})
	}
}
