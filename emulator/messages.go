package emulator

import (
	"crypto/md5"
	"encoding/base64"
	"errors"
	"io"
	"iter"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

const (
	// maxBody is the largest request body in bytes, as the service's errors state it.
	// A text of queue.MaxText can exceed it once escaped.
	maxBody = 131_584

	weekSeconds = int64(queue.MaxVisibility / time.Second)

	// defaultTTL is the service's own (Put Message), not Millrace's.
	defaultTTL = weekSeconds

	// elementsSize is about how long a message is in XML without its text, in bytes.
	elementsSize = 512

	// maxPeeks is how many peeks read texts from the disk at a time. Each may take 2 MiB.
	maxPeeks = 4

	// defaultVisibility is that of Get Messages, in seconds.
	defaultVisibility = 30
)

func (c *call) putMessage() *failure {
	ttl, f := c.query.number("messagettl", defaultTTL, math.MinInt64, math.MaxInt64)
	if f != nil {
		return f
	}
	if ttl < 1 && ttl != -1 {
		return errInvalidQueryValue.ofQuery("messagettl", strconv.FormatInt(ttl, 10), "Value must be greater than or equal to 1, or -1 to indicate an infinite TTL.")
	}
	delay, f := c.query.number("visibilitytimeout", 0, 0, weekSeconds)
	if f != nil {
		return f
	}
	if ttl != -1 && delay >= ttl {
		return errInvalidQueryValue.ofQuery("visibilitytimeout", strconv.FormatInt(delay, 10), "messagettl must be greater than visibilitytimeout.")
	}
	text, f := c.text()
	if f != nil {
		return f
	}
	o := queue.EnqueueOptions{Delay: seconds(delay), TTL: queue.Forever}
	// Any positive number is allowed. The engine supports 68 years; a longer TTL
	// means that the message never expires.
	if ttl != -1 && ttl <= math.MaxInt32 {
		o.TTL = seconds(ttl)
	}
	m, err := c.target().Enqueue(c.request.Context(), text, &o)
	if err != nil {
		return toFailure(err)
	}
	return c.messages(http.StatusCreated, queuexml.Put, []queue.Message{m})
}

func (c *call) getMessages() *failure {
	n, f := c.query.number("numofmessages", 1, 1, queue.MaxBatch)
	if f != nil {
		return f
	}
	visibility, f := c.query.number("visibilitytimeout", defaultVisibility, 1, weekSeconds)
	if f != nil {
		return f
	}
	found, err := c.target().Dequeue(c.request.Context(), int(n), seconds(visibility))
	if err != nil {
		return toFailure(err)
	}
	c.gotMessages = len(found)
	c.server.counters.messages.Add(int64(len(found)))
	if len(found) == 0 {
		c.server.counters.emptyGets.Add(1)
	}
	return c.messages(http.StatusOK, queuexml.Get, found)
}

func (c *call) peekMessages() *failure {
	n, f := c.query.number("numofmessages", 1, 1, queue.MaxBatch)
	if f != nil {
		return f
	}
	c.server.peeks <- struct{}{}
	found, err := c.target().Peek(c.request.Context(), int(n))
	<-c.server.peeks
	if err != nil {
		return toFailure(err)
	}
	return c.messages(http.StatusOK, queuexml.Peek, found)
}

func (c *call) clearMessages() *failure {
	return c.noContent(c.target().Clear(c.request.Context()))
}

func (c *call) updateMessage() *failure {
	lease, f := c.lease()
	if f != nil {
		return f
	}
	if _, f = c.query.required("visibilitytimeout"); f != nil {
		return f
	}
	visibility, f := c.query.number("visibilitytimeout", 0, 0, weekSeconds)
	if f != nil {
		return f
	}
	var err error
	if c.input == nil { // without a body the text stays
		lease, err = c.target().Extend(c.request.Context(), lease, seconds(visibility))
	} else {
		var text string
		if text, f = c.text(); f != nil {
			return f
		}
		lease, err = c.target().Update(c.request.Context(), lease, text, seconds(visibility))
	}
	if errors.Is(err, queue.ErrInvalid) {
		// Everything else has been checked: the visibility exceeds the message's expiry.
		return errOutOfRangeQueryValue.ofQuery("visibilitytimeout", strconv.FormatInt(visibility, 10), "The message expires before that.")
	}
	if err != nil {
		return toFailure(err)
	}
	c.header["X-Ms-Popreceipt"] = []string{string(lease.Receipt)}
	c.header["X-Ms-Time-Next-Visible"] = []string{string(queuexml.AppendTime(nil, lease.Until))}
	c.status = http.StatusNoContent
	return nil
}

func (c *call) deleteMessage() *failure {
	lease, f := c.lease()
	if f != nil {
		return f
	}
	return c.noContent(c.target().Delete(c.request.Context(), lease))
}

// lease parses the message id and the receipt.
func (c *call) lease() (queue.Lease, *failure) {
	receipt, f := c.query.required("popreceipt")
	if f != nil {
		return queue.Lease{}, f
	}
	// A receipt is Base64. A client that does not escape a plus sign sends a space.
	var room [64]byte // receipts of the engine are much shorter
	if _, err := base64.StdEncoding.AppendDecode(room[:0], []byte(receipt)); err != nil {
		return queue.Lease{}, errInvalidQueryValue.with( // without the value, which may be part of a receipt
			queuexml.Detail{Name: "QueryParameterName", Value: "popreceipt"},
			queuexml.Detail{Name: "Reason", Value: "Invalid pop receipt format"})
	}
	return queue.Lease{ID: queue.ID(c.message), Receipt: queue.Receipt(receipt)}, nil
}

// receive reads the request body.
func (c *call) receive() *failure {
	length := c.request.ContentLength
	switch {
	case length < 0:
		return errMissingLength
	case length > maxBody:
		return errBodyTooLarge.with(maxLimit(maxBody))
	case length == 0, c.request.Body == nil:
		return nil
	}
	if f := c.reserve(int(length)); f != nil {
		return f
	}
	if c.conn != nil {
		c.conn.received.Add(-length)
	}
	c.input = buffers.Get().(*[]byte)
	if int64(cap(*c.input)) < length {
		*c.input = make([]byte, 0, length)
	}
	*c.input = (*c.input)[:length]
	if _, err := io.ReadFull(c.request.Body, *c.input); err != nil {
		return errInvalidInput.because("The request body is shorter than its Content-Length.")
	}
	c.tally.received.Add(length)
	return checkMD5(firstValue(c.request.Header, "Content-Md5"), *c.input)
}

// text returns the message text in the request body.
func (c *call) text() (string, *failure) {
	text, err := queuexml.ParseBody(c.content()) // returns a copy
	switch {
	case errors.Is(err, queuexml.ErrUnexpected):
		return "", errInvalidXMLValue.with(queuexml.Detail{Name: "Reason", Value: err.Error()})
	case err != nil:
		return "", errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: err.Error()})
	}
	if len(text) > queue.MaxText {
		return "", errBodyTooLarge.with(maxLimit(queue.MaxText))
	}
	return text, nil
}

// checkMD5 compares the body with its Content-MD5, if there is one.
func checkMD5(want string, body []byte) *failure {
	if want == "" {
		return nil
	}
	sum, err := base64.StdEncoding.DecodeString(want)
	if err != nil || len(sum) != md5.Size {
		return errInvalidMD5
	}
	if md5.Sum(body) != [md5.Size]byte(sum) {
		return errMD5Mismatch
	}
	return nil
}

func (c *call) messages(status int, part queuexml.Part, found []queue.Message) *failure {
	size := 0
	for i := range found {
		size += elementsSize
		if part != queuexml.Put {
			size += len(found[i].Text)
		}
	}
	if f := c.reserve(size); f != nil {
		return f
	}
	return c.document(status, queuexml.AppendMessages(slices.Grow(c.responseBuffer(), size), part, xmlMessages(found)))
}

func xmlMessages(messages []queue.Message) iter.Seq[queuexml.Message] {
	return func(yield func(queuexml.Message) bool) {
		for i := range messages {
			m := &messages[i]
			if !yield(queuexml.Message{
				ID:           string(m.ID),
				Inserted:     m.Inserted,
				Expires:      m.Expires,
				Receipt:      string(m.Receipt),
				NextVisible:  m.Until,
				DequeueCount: m.DequeueCount,
				Text:         m.Text,
			}) {
				return
			}
		}
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
