package azurequeue

import (
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/queue"
)

// Properties implements [queue.Queue] with Get Queue Metadata. Metadata names are in lower case,
// because HTTP headers lose their case.
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	var p queue.Properties
	err := q.call(ctx, "properties", "", "", nil, func(ctx context.Context) error {
		var resp *http.Response
		r, err := q.client.GetProperties(policy.WithCaptureResponse(ctx, &resp), nil)
		if err != nil {
			return err
		}
		if value(r.ApproximateMessagesCount) < 0 || r.ApproximateMessagesCount == nil { // a missing depth is not 0
			if body, err := runtime.Payload(resp); err == nil && len(body) > 0 {
				return foreignResponse(resp, body) // the service sends no body
			}
			return incompleteResponse(http.StatusOK, r.RequestID, "depth and an empty body")
		}
		p = queue.Properties{Depth: *r.ApproximateMessagesCount, Metadata: lower(r.Metadata)}
		return nil
	})
	return p, err
}

// Create implements [queue.Queue] with Create Queue.
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	return q.call(ctx, "create", "", "", queue.CheckMetadata(metadata), func(ctx context.Context) error {
		_, err := q.client.Create(ctx, &azqueue.CreateOptions{Metadata: pointers(metadata)})
		return err
	})
}

// SetMetadata implements [queue.Manager] with Set Queue Metadata.
func (q *Queue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	return q.call(ctx, "set metadata", "", "", queue.CheckMetadata(metadata), func(ctx context.Context) error {
		_, err := q.client.SetMetadata(ctx, &azqueue.SetMetadataOptions{Metadata: pointers(metadata)})
		return err
	})
}

// Clear implements [queue.Manager] with Clear Messages.
func (q *Queue) Clear(ctx context.Context) error {
	return q.call(ctx, "clear", "", "", nil, func(ctx context.Context) error {
		_, err := q.client.ClearMessages(ctx, nil)
		return err
	})
}

// Drop implements [queue.Manager] with Delete Queue.
func (q *Queue) Drop(ctx context.Context) error {
	return q.call(ctx, "drop", "", "", nil, func(ctx context.Context) error {
		_, err := q.client.Delete(ctx, nil)
		return err
	})
}

func pointers(metadata map[string]string) map[string]*string {
	m := make(map[string]*string, len(metadata))
	for name, v := range metadata {
		m[name] = &v
	}
	return m
}
