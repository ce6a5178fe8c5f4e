package roles

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/table"
)

func TestADeletionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := &channels.Site{Channels: table.Memory("Channels"), Blogs: table.Memory("Blogs")}
		q, err := localqueue.New(nil).Account("test").Open(QueueName)
		if err != nil {
			t.Fatal(err)
		}
		c, err := site.Create(t.Context(), "C#", "ann")
		if err != nil {
			t.Fatal(err)
		}
		for range 25 {
			if _, err := site.Write(t.Context(), c, "ann", "title", "text"); err != nil {
				t.Fatal(err)
			}
		}
		if err := NewRequester(q, nil).Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- NewWorker(q, site, nil, nil).Run(ctx) }()
		time.Sleep(5 * time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, _, _, err := site.Page(t.Context(), "C#", "", 10); !errors.Is(err, channels.ErrNoChannel) {
			t.Error(err)
		}
		p, _ := q.Properties(t.Context())
		b, _ := site.Blogs.Query(t.Context(), table.Query{})
		c2, _ := site.Channels.Query(t.Context(), table.Query{})
		if p.Depth != 0 || len(b.Entities) != 0 || len(c2.Entities) != 0 {
			t.Error(p, b, c2)
		}
	})
}
