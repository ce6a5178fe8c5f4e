package azurequeue

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

// messageList collects a response's messages. The request's context carries it to
// [decodeMessages], which fills it. If that cannot decode the response, the caller fills it with
// what azqueue decoded.
type messageList struct {
	part     queuexml.Part
	capacity int // number of messages expected
	messages []queue.Message
	decoded  bool // whether decodeMessages filled it
}

type messageListKey struct{}

// add appends a message. It skips a message without an id or, in a dequeue, without a receipt,
// because it could not be deleted; it becomes visible again.
func (l *messageList) add(m *queuexml.Message) {
	if m.ID == "" || l.part == queuexml.Get && m.Receipt == "" {
		return
	}
	if l.messages == nil {
		l.messages = make([]queue.Message, 0, l.capacity)
	}
	to := queue.Message{Lease: queue.Lease{ID: queue.ID(m.ID)}, Inserted: m.Inserted, Expires: m.Expires}
	if l.part != queuexml.Peek {
		to.Receipt, to.Until = queue.Receipt(m.Receipt), m.NextVisible
	}
	if l.part != queuexml.Put {
		to.Text, to.DequeueCount = m.Text, m.DequeueCount
	}
	l.messages = append(l.messages, to)
}

// decodeMessages is a pipeline policy that decodes message lists. The SDK's decoder,
// encoding/xml, takes about 26 µs and 98 allocations a message, more than everything else a
// consumer does for it; this one needs about one allocation. A message list that it does not
// understand goes to the SDK's decoder unchanged.
type decodeMessages struct{}

// emptyList is the document that the SDK decodes instead.
const emptyList = "<QueueMessagesList/>"

// Do implements [policy.Policy].
func (decodeMessages) Do(r *policy.Request) (*http.Response, error) {
	l, ok := r.Raw().Context().Value(messageListKey{}).(*messageList)
	if !ok {
		return r.Next()
	}
	// The pipeline would allocate a new buffer for each body.
	runtime.SkipBodyDownload(r)
	resp, err := r.Next()
	if err != nil {
		return resp, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		_, err := runtime.Payload(resp) // as the pipeline would have done
		return resp, err
	}
	buffer := documentBuffers.Get().(*bytes.Buffer)
	if err := download(buffer, resp); err != nil {
		return resp, err
	}
	if l.decoded = queuexml.ParseMessages(buffer.Bytes(), l.add) == nil; !l.decoded {
		l.messages = nil // not understood to the last byte
		// For any other document the SDK's decoder would report an empty list.
		switch err := checkList(buffer.Bytes()); {
		case err == nil:
			resp.Body = io.NopCloser(buffer) // the SDK owns the buffer now
			return resp, nil
		case errors.Is(err, errNotAList):
			return nil, foreignResponse(resp, buffer.Bytes()) // likewise
		default:
			return nil, &unusableResponseError{status: resp.StatusCode, requestID: resp.Header.Get(azurestorage.RequestIDHeader), why: err.Error()}
		}
	}
	if buffer.Cap() <= maxPooled {
		documentBuffers.Put(buffer)
	}
	resp.Body = io.NopCloser(strings.NewReader(emptyList))
	return resp, nil
}

// documentBuffers hold responses while they are decoded.
var documentBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled is the largest buffer that is kept, in bytes: 32 messages of 64 KiB fit.
const maxPooled = 4 << 20

func download(into *bytes.Buffer, resp *http.Response) error {
	into.Reset()
	if n := resp.ContentLength; 0 < n && n <= maxPooled {
		into.Grow(int(n) + bytes.MinRead) // ReadFrom needs this much spare room
	}
	_, err := into.ReadFrom(resp.Body)
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	return err
}
