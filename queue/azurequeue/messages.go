package azurequeue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/bodytext"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Nearly all requests of a program put, get, or delete messages. azqueue takes as long for one of
// them as net/http does: it parses addresses and queries that it has just written, copies the
// request for a dozen policies and for retries that are switched off, writes log lines that nobody
// reads, and decodes XML by reflection, in 98 allocations a message. So these requests are written
// here, and sent through a pipeline of azcore that has the necessary policies only.

// pipelineFor returns the pipeline of these requests.
func pipelineFor(authorize policy.Policy, transport policy.Transporter) runtime.Pipeline {
	needed := []policy.Policy{azurestorage.MatchResponse{}, authorize, sender{sendOnce{transport}}}
	return runtime.NewPipeline("azqueue", "", runtime.PipelineOptions{PerCall: needed}, &policy.ClientOptions{Telemetry: policy.TelemetryOptions{Disabled: true}})
}

// sender is the last policy: what azcore has added after it is not called.
type sender struct{ transport policy.Transporter }

// Do implements [policy.Policy]. It reads the body of an error response: the policy before may send
// the request again.
func (s sender) Do(r *policy.Request) (*http.Response, error) {
	raw := r.Raw()
	if d, ok := r.Body().(document); ok {
		// net/http knows that this is in memory, and writes it together with the headers, by one system call.
		raw.Body = io.NopCloser(d.Reader)
	}
	resp, err := s.transport.Do(raw)
	switch {
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errors.New("the transport returned no response")
	case resp.Body == nil: // only net/http ensures one
		resp.Body = http.NoBody
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		if _, err := runtime.Payload(resp); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// document is the body of a request.
type document struct{ *bytes.Reader }

// Close implements [io.Closer].
func (document) Close() error { return nil }

// serviceVersion is the version of the service's API that azqueue uses too.
const serviceVersion = "2026-04-06"

// prefilled are parts of a request in one allocation. No other request has them: a transport may
// change them.
type prefilled struct {
	url             url.URL
	accept, version [1]string
}

// send sends a request about the queue's messages, or about one of them if id is not empty. The
// status of the response is want.
func (q *handle) send(ctx context.Context, want int, method string, id queue.ID, query string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "", nil)
	if err != nil {
		return nil, err
	}
	parts := &prefilled{*q.messages, [1]string{"application/xml"}, [1]string{serviceVersion}}
	u := &parts.url
	r.URL, r.Host, u.RawQuery = u, u.Host, query
	if id != "" {
		u.Path, u.RawPath = u.Path+"/"+string(id), u.EscapedPath()+"/"+url.PathEscape(string(id))
	}
	r.Header["Accept"], r.Header["X-Ms-Version"] = parts.accept[:], parts.version[:]
	sent, err := runtime.NewRequestFromRequest(r)
	if err == nil && body != nil {
		err = sent.SetBody(document{bytes.NewReader(body)}, "application/xml")
	}
	if err != nil {
		return nil, err
	}
	resp, err := q.account.pipeline.Do(sent)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != want {
		if _, err := runtime.Payload(resp); err != nil {
			return nil, err
		}
		return nil, runtime.NewResponseError(resp)
	}
	return resp, nil
}

// Enqueue implements [queue.Queue] with Put Message. The error is [queue.ErrTooLarge] also if the
// request exceeds the service's limit once the text is escaped for XML.
func (q *handle) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	bad := cmp.Or(driver.CheckEnqueue(o), driver.CheckText(text), driver.CheckRequest(text, 0))
	if o == nil {
		o = &queue.EnqueueOptions{}
	}
	ttl := int64(-1)
	if driver.TTL(o) != queue.Forever {
		ttl = driver.Seconds(driver.TTL(o))
	}
	var m queue.Message
	err := q.call(ctx, "enqueue", "", "", bad, func(ctx context.Context) error {
		query := "messagettl=" + strconv.FormatInt(ttl, 10) + "&visibilitytimeout=" + strconv.FormatInt(driver.Seconds(o.Delay), 10)
		resp, err := q.send(ctx, http.StatusCreated, http.MethodPost, "", query, messageBody(text)) //nolint:bodyclose // readList closes it
		if err != nil {
			return err
		}
		list, err := readList(resp, queuexml.Put, 1)
		if err != nil {
			return err
		}
		if len(list) != 1 {
			id := resp.Header.Get(azurestorage.RequestIDHeader)
			return incompleteResponse(http.StatusCreated, &id, "message in it, or several")
		}
		m = list[0]
		m.Text = text
		return nil
	})
	return m, err
}

// messageBody returns the document of a put, as azqueue writes it.
func messageBody(text string) []byte {
	const start, end = xml.Header + "<QueueMessage><MessageText>", "</MessageText></QueueMessage>"
	b := append(make([]byte, 0, driver.RequestSize(text)), start...)
	return append(bodytext.AppendEscaped(b, text), end...)
}

// Dequeue implements [queue.Queue] with Get Messages.
func (q *handle) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	query := "numofmessages=" + strconv.Itoa(n) + "&visibilitytimeout=" + strconv.FormatInt(driver.Seconds(visibility), 10)
	return q.get(ctx, "dequeue", driver.CheckDequeue(n, visibility), query, queuexml.Get, n)
}

// Peek implements [queue.Queue] with Peek Messages.
func (q *handle) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	return q.get(ctx, "peek", driver.CheckPeek(n), "numofmessages="+strconv.Itoa(n)+"&peekonly=true", queuexml.Peek, n)
}

func (q *handle) get(ctx context.Context, op string, bad error, query string, part queuexml.Part, n int) (batch []queue.Message, err error) {
	err = q.call(ctx, op, "", "", bad, func(ctx context.Context) error {
		resp, err := q.send(ctx, http.StatusOK, http.MethodGet, "", query, nil) //nolint:bodyclose // readList closes it
		if err != nil {
			return err
		}
		batch, err = readList(resp, part, n)
		return err
	})
	return batch, err
}

// Delete implements [queue.Queue] with Delete Message.
func (q *handle) Delete(ctx context.Context, l queue.Lease) error {
	bad := cmp.Or(driver.CheckLease(l), checkID(l.ID))
	return q.call(ctx, "delete", l.ID, l.Receipt, bad, func(ctx context.Context) error {
		resp, err := q.send(ctx, http.StatusNoContent, http.MethodDelete, l.ID, "popreceipt="+url.QueryEscape(string(l.Receipt)), nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// readList reads a response with a message list of about n messages. What queuexml does not
// understand is read with encoding/xml, as azqueue does.
func readList(resp *http.Response, part queuexml.Part, n int) ([]queue.Message, error) {
	buffer := documentBuffers.Get().(*bytes.Buffer)
	if err := download(buffer, resp); err != nil {
		return nil, err
	}
	document := buffer.Bytes()
	var list []queue.Message
	add := func(m *queuexml.Message) {
		if list == nil {
			list = make([]queue.Message, 0, n)
		}
		list = appendMessage(list, part, m)
	}
	if queuexml.ParseMessages(document, add) != nil {
		list = nil // not understood to the last byte
		switch err := checkList(document); {
		case errors.Is(err, errNotAList): // encoding/xml would report an empty list
			return nil, foreignResponse(resp, bytes.Clone(document))
		case err != nil:
			return nil, &unusableResponseError{status: resp.StatusCode, requestID: resp.Header.Get(azurestorage.RequestIDHeader), why: err.Error()}
		}
		if err := parseMessages(document, add); err != nil {
			return nil, err
		}
	}
	if buffer.Cap() <= maxPooled {
		documentBuffers.Put(buffer)
	}
	return list, nil
}

// parseMessages parses a list with encoding/xml.
func parseMessages(document []byte, take func(*queuexml.Message)) error {
	var list struct {
		Messages []azqueue.DequeuedMessage `xml:"QueueMessage"`
	}
	if err := xml.Unmarshal(document, &list); err != nil {
		return err
	}
	for _, m := range list.Messages {
		take(&queuexml.Message{
			ID: value(m.MessageID), Receipt: value(m.PopReceipt), NextVisible: value(m.TimeNextVisible),
			Text: value(m.MessageText), DequeueCount: value(m.DequeueCount),
			Inserted: value(m.InsertionTime), Expires: value(m.ExpirationTime),
		})
	}
	return nil
}

// appendMessage appends a message. It skips one without an id or, in a dequeue, without a receipt,
// because it could not be deleted; it becomes visible again.
func appendMessage(list []queue.Message, part queuexml.Part, m *queuexml.Message) []queue.Message {
	if m.ID == "" || part == queuexml.Get && m.Receipt == "" {
		return list
	}
	to := queue.Message{Lease: queue.Lease{ID: queue.ID(m.ID)}, Inserted: m.Inserted, Expires: m.Expires}
	if part != queuexml.Peek {
		to.Receipt, to.Until = queue.Receipt(m.Receipt), m.NextVisible
	}
	if part != queuexml.Put {
		to.Text, to.DequeueCount = m.Text, m.DequeueCount
	}
	return append(list, to)
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
