package azurequeue

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

// Enqueue implements [queue.Queue] with Put Message. The error is [queue.ErrTooLarge] also if the
// request exceeds the service's limit once the text is escaped for XML.
func (q *Queue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	bad := queue.CheckEnqueue(o)
	if bad == nil {
		bad = checkText(text)
	}
	if o == nil {
		o = &queue.EnqueueOptions{}
	}
	ttl := int64(-1)
	if o.Life() != queue.Forever {
		ttl = queue.Seconds(o.Life())
	}
	var m queue.Message
	err := q.call(ctx, "enqueue", "", "", bad, func(ctx context.Context) error {
		l := &messageList{part: queuexml.Put, capacity: 1}
		r, err := q.client.EnqueueMessage(l.withContext(ctx), text, &azqueue.EnqueueMessageOptions{
			TimeToLive:        to.Ptr(int32(ttl)),
			VisibilityTimeout: seconds(o.Delay),
		})
		if err != nil {
			return err
		}
		if !l.decoded {
			for _, e := range r.Messages {
				if e != nil {
					l.add(&queuexml.Message{
						ID: value(e.MessageID), Receipt: value(e.PopReceipt), NextVisible: value(e.TimeNextVisible),
						Inserted: value(e.InsertionTime), Expires: value(e.ExpirationTime),
					})
				}
			}
		}
		if len(l.messages) != 1 {
			return incompleteResponse(http.StatusCreated, r.RequestID, "message in it, or several")
		}
		m = l.messages[0]
		m.Text = text
		return nil
	})
	return m, err
}

// Dequeue implements [queue.Queue] with Get Messages.
func (q *Queue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	var batch []queue.Message
	err := q.call(ctx, "dequeue", "", "", queue.CheckDequeue(n, visibility), func(ctx context.Context) error {
		l := &messageList{part: queuexml.Get, capacity: n}
		r, err := q.client.DequeueMessages(l.withContext(ctx), &azqueue.DequeueMessagesOptions{
			NumberOfMessages:  to.Ptr(int32(n)),
			VisibilityTimeout: seconds(visibility),
		})
		if err != nil {
			return err
		}
		if !l.decoded {
			for _, d := range r.Messages {
				if d != nil {
					l.add(&queuexml.Message{
						ID: value(d.MessageID), Receipt: value(d.PopReceipt), NextVisible: value(d.TimeNextVisible),
						Text: value(d.MessageText), DequeueCount: value(d.DequeueCount),
						Inserted: value(d.InsertionTime), Expires: value(d.ExpirationTime),
					})
				}
			}
		}
		batch = l.messages
		return nil
	})
	return batch, err
}

// Peek implements [queue.Queue] with Peek Messages.
func (q *Queue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	var batch []queue.Message
	err := q.call(ctx, "peek", "", "", queue.CheckPeek(n), func(ctx context.Context) error {
		l := &messageList{part: queuexml.Peek, capacity: n}
		r, err := q.client.PeekMessages(l.withContext(ctx), &azqueue.PeekMessagesOptions{NumberOfMessages: to.Ptr(int32(n))})
		if err != nil {
			return err
		}
		if !l.decoded {
			for _, p := range r.Messages {
				if p != nil {
					l.add(&queuexml.Message{
						ID: value(p.MessageID), Text: value(p.MessageText), DequeueCount: value(p.DequeueCount),
						Inserted: value(p.InsertionTime), Expires: value(p.ExpirationTime),
					})
				}
			}
		}
		batch = l.messages
		return nil
	})
	return batch, err
}

// Update implements [queue.Queue] with Update Message. It always sends the text: azqueue cannot
// update without one, and an empty text would erase the body.
func (q *Queue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	bad := queue.CheckUpdate(l, text, visibility)
	if bad == nil {
		bad = queue.CheckRequest(text, 0)
	}
	if bad == nil {
		bad = checkID(l.ID)
	}
	var renewed queue.Lease
	err := q.call(ctx, "update", l.ID, l.Receipt, bad, func(ctx context.Context) error {
		r, err := q.client.UpdateMessage(ctx, url.PathEscape(string(l.ID)), string(l.Receipt), text,
			&azqueue.UpdateMessageOptions{VisibilityTimeout: seconds(visibility)})
		if err != nil {
			return err
		}
		id := string(l.ID)
		if renewed = lease(&id, r.PopReceipt, r.TimeNextVisible); renewed.Receipt == "" {
			renewed = queue.Lease{}
			return incompleteResponse(http.StatusNoContent, r.RequestID, "new receipt")
		}
		return nil
	})
	return renewed, err
}

// Delete implements [queue.Queue] with Delete Message.
func (q *Queue) Delete(ctx context.Context, l queue.Lease) error {
	bad := queue.CheckLease(l)
	if bad == nil {
		bad = checkID(l.ID)
	}
	return q.call(ctx, "delete", l.ID, l.Receipt, bad, func(ctx context.Context) error {
		_, err := q.client.DeleteMessage(ctx, url.PathEscape(string(l.ID)), string(l.Receipt), nil)
		return err
	})
}

func checkText(text string) error {
	if err := queue.CheckText(text); err != nil {
		return err
	}
	return queue.CheckRequest(text, 0)
}

// checkID refuses ids that are not path segments. azqueue joins paths, and queue/messages/.. is
// the queue: deleting that message would delete the queue.
func checkID(id queue.ID) error {
	if id == "." || id == ".." {
		return invalid("", "%q is not a message id", string(id))
	}
	return nil
}

func lease(id, receipt *string, until *time.Time) queue.Lease {
	return queue.Lease{ID: queue.ID(value(id)), Receipt: queue.Receipt(value(receipt)), Until: value(until)}
}

func seconds(d time.Duration) *int32 { return to.Ptr(int32(queue.Seconds(d))) }

// value returns *p, or the zero value if p is nil. azqueue's fields are pointers, nil if the
// response lacks them.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
