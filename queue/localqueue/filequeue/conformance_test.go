package filequeue

import (
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/queuetest"
)

func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) queue.Manager {
			s, err := openStore(memoryDirectory(t))
			if err != nil {
				t.Fatal(err)
			}
			e, err := engineOver(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closed(t, e) })
			return e.Queue(queue.Name{Account: account, Queue: name})
		},
	})
}
