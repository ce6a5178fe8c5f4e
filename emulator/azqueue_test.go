package emulator

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"github.com/millrace/millrace/queue/localqueue"
)

// clientOptions keeps azqueue from repeating requests.
func clientOptions(transport http.RoundTripper) *azqueue.ClientOptions {
	return &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Transport: &http.Client{Transport: transport},
	}}
}

func service(t *testing.T, connection string, transport http.RoundTripper) *azqueue.ServiceClient {
	t.Helper()
	c, err := azqueue.NewServiceClientFromConnectionString(connection, clientOptions(transport))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serviceOverSocket starts an endpoint, which the test's end closes, and returns a client of it.
func serviceOverSocket(t *testing.T, s *Server) *azqueue.ServiceClient {
	t.Helper()
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = e.Close()
	})
	return service(t, e.ConnectionString(), transport)
}

func TestAzqueueInProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must(New(nil, nil))
		useAzqueue(t, service(t, s.ConnectionString(), s))
	})
}

func TestAzqueueOverSocket(t *testing.T) {
	useAzqueue(t, serviceOverSocket(t, must(New(must(localqueue.New(&localqueue.Options{DeletingFor: -1})), nil))))
}

// useAzqueue calls with the real client every operation that does not have to wait.
func useAzqueue(t *testing.T, c *azqueue.ServiceClient) {
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	q := c.NewQueueClient("orders")
	meta := map[string]*string{"kind": to.Ptr("test"), "owner_1": to.Ptr("us, too")}
	_, err := q.Create(ctx, &azqueue.CreateOptions{Metadata: meta})
	must(err)
	_, err = q.Create(ctx, &azqueue.CreateOptions{Metadata: meta})
	must(err)
	if _, err = q.Create(ctx, nil); !queueerror.HasCode(err, queueerror.QueueAlreadyExists) {
		t.Fatalf("create with other metadata: got %v, want QueueAlreadyExists", err)
	}
	text := "<&>\"' \r\n\tпривет 🐎 ]]> end "
	put, err := q.EnqueueMessage(ctx, text, &azqueue.EnqueueMessageOptions{TimeToLive: to.Ptr(int32(-1))})
	must(err)
	if e := put.Messages[0].ExpirationTime; e.Year() != 9999 {
		t.Fatalf("ExpirationTime: got %v, want the year 9999", e)
	}
	_, err = q.EnqueueMessage(ctx, "", nil)
	must(err)
	peek, err := q.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: to.Ptr(int32(32))})
	must(err)
	if len(peek.Messages) != 2 || *peek.Messages[0].MessageText != text || *peek.Messages[0].DequeueCount != 0 {
		t.Fatalf("peeked: got %+v, want two messages, the first with the text and count 0", peek.Messages)
	}
	got, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: to.Ptr(int32(32)), VisibilityTimeout: to.Ptr(int32(60))})
	must(err)
	if len(got.Messages) != 2 || *got.Messages[0].MessageText != text || *got.Messages[0].DequeueCount != 1 || *got.Messages[1].MessageText != "" {
		t.Fatalf("dequeued: got %+v, want two messages, the first with the text and count 1", got.Messages)
	}
	m := got.Messages[0]
	if _, err = q.DeleteMessage(ctx, *m.MessageID, *got.Messages[1].PopReceipt, nil); !queueerror.HasCode(err, queueerror.PopReceiptMismatch) {
		t.Fatalf("delete with another message's receipt: got %v, want PopReceiptMismatch", err)
	}
	up, err := q.UpdateMessage(ctx, *m.MessageID, *m.PopReceipt, "new", &azqueue.UpdateMessageOptions{VisibilityTimeout: to.Ptr(int32(0))})
	must(err)
	if _, err = q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil); !queueerror.HasCode(err, queueerror.PopReceiptMismatch) {
		t.Fatalf("delete with an old receipt: got %v, want PopReceiptMismatch", err)
	}
	props, err := q.GetProperties(ctx, nil)
	must(err)
	if *props.ApproximateMessagesCount != 2 || *props.Metadata["Kind"] != "test" || *props.Metadata["Owner_1"] != "us, too" {
		t.Fatalf("properties: got %+v, want 2 messages and the metadata", props)
	}
	_, err = q.DeleteMessage(ctx, *m.MessageID, *up.PopReceipt, nil)
	must(err)
	if _, err = q.DeleteMessage(ctx, *m.MessageID, *up.PopReceipt, nil); !queueerror.HasCode(err, queueerror.MessageNotFound) {
		t.Fatalf("second delete: got %v, want MessageNotFound", err)
	}
	if _, err = q.EnqueueMessage(ctx, strings.Repeat("x", 65_537), nil); !queueerror.HasCode(err, queueerror.RequestBodyTooLarge) {
		t.Fatalf("text that is too large: got %v, want RequestBodyTooLarge", err)
	}
	_, err = q.EnqueueMessage(ctx, strings.Repeat("x", 65_536), nil)
	must(err)
	_, err = q.ClearMessages(ctx, nil)
	must(err)
	_, err = q.SetMetadata(ctx, &azqueue.SetMetadataOptions{Metadata: map[string]*string{"only": to.Ptr("one")}})
	must(err)
	for _, name := range []string{"aaa", "bbb", "ccc"} {
		_, err = c.CreateQueue(ctx, name, nil)
		must(err)
	}
	var names []string
	pages := 0
	pager := c.NewListQueuesPager(&azqueue.ListQueuesOptions{MaxResults: to.Ptr(int32(3)), Include: azqueue.ListQueuesInclude{Metadata: true}})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		must(err)
		pages++
		for _, q := range page.Queues {
			names = append(names, *q.Name)
			if *q.Name == "orders" && *q.Metadata["only"] != "one" {
				t.Fatalf("listed metadata: got %v, want only=one", q.Metadata)
			}
		}
	}
	if strings.Join(names, " ") != "aaa bbb ccc orders" || pages != 2 {
		t.Fatalf("listed: got %v in %d pages, want aaa bbb ccc orders in 2", names, pages)
	}
	_, err = q.Delete(ctx, nil)
	must(err)
	if _, err = q.GetProperties(ctx, nil); !queueerror.HasCode(err, queueerror.QueueNotFound) {
		t.Fatalf("properties of a deleted queue: got %v, want QueueNotFound", err)
	}
}

func TestAzqueueOnFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must(New(nil, &Options{Delay: 10 * time.Millisecond}))
		q := service(t, s.ConnectionString(), s).NewQueueClient("orders")
		ctx := t.Context()
		if _, err := q.Create(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := q.EnqueueMessage(ctx, "hello", nil); err != nil {
			t.Fatal(err)
		}
		for count := int64(1); count <= 3; count++ {
			start := time.Now()
			r, err := q.DequeueMessage(ctx, nil) // 30 s
			if err != nil || len(r.Messages) != 1 || *r.Messages[0].DequeueCount != count {
				t.Fatalf("dequeue %d: got %v, %v; want one message with that count", count, r.Messages, err)
			}
			if d := time.Since(start); d != 10*time.Millisecond {
				t.Fatalf("delay: got %v, want 10ms", d)
			}
			r, err = q.DequeueMessage(ctx, nil)
			if err != nil || len(r.Messages) != 0 {
				t.Fatalf("dequeue while it is hidden: got %v, %v; want none", r.Messages, err)
			}
			time.Sleep(30 * time.Second)
		}
		c := s.Counts()
		if c.Operations[GetMessages] != 6 || c.EmptyGets != 3 || c.Messages != 3 || c.Requests() != 8 || c.Statuses[2] != 8 {
			t.Fatalf("counts: got %+v, want 6 gets, 3 of them empty, 3 messages and 8 requests", c)
		}
	})
}

// TestAzqueueEmptyMetadataValue: a metadata name with an empty value is kept, and differs from a
// missing name.
func TestAzqueueEmptyMetadataValue(t *testing.T) {
	s := must(New(nil, nil))
	for way, c := range map[string]*azqueue.ServiceClient{
		"process": service(t, s.ConnectionString(), s),
		"socket":  serviceOverSocket(t, s),
	} {
		q := c.NewQueueClient(way)
		create := &azqueue.CreateOptions{Metadata: map[string]*string{"Empty": to.Ptr("")}}
		for range 2 { // the second time it exists with the same metadata
			if _, err := q.Create(t.Context(), create); err != nil {
				t.Fatalf("%s: %v", way, err)
			}
		}
		if _, err := q.Create(t.Context(), nil); !queueerror.HasCode(err, queueerror.QueueAlreadyExists) {
			t.Errorf("%s: create without metadata: got %v, want QueueAlreadyExists", way, err)
		}
		got, err := q.GetProperties(t.Context(), nil)
		if value, ok := got.Metadata["Empty"]; err != nil || !ok || *value != "" || len(got.Metadata) != 1 {
			t.Errorf("%s: properties: got %v, %v; want Empty with an empty value", way, got.Metadata, err)
		}
		listed, err := c.NewListQueuesPager(&azqueue.ListQueuesOptions{Prefix: &way, Include: azqueue.ListQueuesInclude{Metadata: true}}).NextPage(t.Context())
		if err != nil || len(listed.Queues) != 1 {
			t.Fatalf("%s: listed: got %v, %v; want one queue", way, listed.Queues, err)
		}
		if value, ok := listed.Queues[0].Metadata["empty"]; !ok || *value != "" {
			t.Errorf("%s: listed metadata: got %v, want empty with an empty value", way, listed.Queues[0].Metadata)
		}
	}
}
