package azurequeue

import (
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

// client returns the azqueue client of q.
func client(q *Queue) *azqueue.QueueClient { return q.Manager.(*handle).client }

// lists are the calls whose response is a message list.
var lists = map[queuexml.Part]func(*testing.T, *Queue) ([]queue.Message, error){
	queuexml.Put: func(t *testing.T, q *Queue) ([]queue.Message, error) {
		m, err := q.Enqueue(t.Context(), "x", nil)
		return []queue.Message{m}, err
	},
	queuexml.Get:  func(t *testing.T, q *Queue) ([]queue.Message, error) { return q.Dequeue(t.Context(), 32, time.Second) },
	queuexml.Peek: func(t *testing.T, q *Queue) ([]queue.Message, error) { return q.Peek(t.Context(), 32) },
}

// status is the status of a successful response.
func status(part queuexml.Part) int {
	if part == queuexml.Put {
		return http.StatusCreated
	}
	return http.StatusOK
}

// agree fails the test unless azqueue reads the same from a response to a dequeue.
func agree(t *testing.T, part queuexml.Part, code int, body string, header ...string) {
	t.Helper()
	got, err := lists[part](t, openCanned(t, responding(code, body, header...)))
	if code == status(part) {
		code = http.StatusOK
	}
	q := openCanned(t, responding(code, body, header...))
	theirs, theirErr := client(q).DequeueMessages(t.Context(), nil)
	var want []queue.Message
	for _, m := range theirs.Messages {
		want = appendMessage(want, part, &queuexml.Message{
			ID: value(m.MessageID), Receipt: value(m.PopReceipt), NextVisible: value(m.TimeNextVisible), Text: value(m.MessageText),
			Inserted: value(m.InsertionTime), Expires: value(m.ExpirationTime), DequeueCount: value(m.DequeueCount),
		})
	}
	if theirErr != nil {
		known := q.account.translate(t.Context(), t.Context(), "", "", theirErr)
		if ours := (*queue.Error)(nil); !errors.As(err, &ours) || !errors.Is(ours.Kind, known.Kind) || ours.Status != known.Status || ours.Code != known.Code {
			t.Errorf("part %d: got the error %v, want as from azqueue: %v", part, err, known)
		}
		return
	}
	if part == queuexml.Put {
		if len(want) != 1 {
			if !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Errorf("part %d: got the error %v for a list of %d, want ErrOutcomeUnknown", part, err, len(want))
			}
			return
		}
		want[0].Text = "x"
	}
	equal := func(a, b queue.Message) bool {
		// The SDK's times in GMT have a location with that name.
		sameTimes := a.Inserted.Equal(b.Inserted) && a.Expires.Equal(b.Expires) && a.Until.Equal(b.Until)
		a.Inserted, a.Expires, a.Until = b.Inserted, b.Expires, b.Until
		return sameTimes && a == b
	}
	if err != nil || !slices.EqualFunc(got, want, equal) {
		t.Errorf("part %d: got %#v, %v\nwant, as from azqueue, %#v", part, got, err, want)
	}
}

var someMessages = []queuexml.Message{
	{
		ID: "0f7a-1", Receipt: string(someReceipt), Text: "a & b\r\n\"<c>\"", DequeueCount: 3,
		Inserted: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Expires: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		NextVisible: time.Date(2026, 1, 2, 3, 4, 35, 0, time.UTC),
	},
	{ID: "0f7a-2", Receipt: "r", Text: ""},
	{ID: "", Receipt: "r", Text: "no id"},
	{ID: "0f7a-3", Receipt: "", Text: "no receipt"},
}

// strange are lists that only the SDK's decoder accepts, or neither decoder.
var strange = []string{
	"<QueueMessagesList/>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><New>x</New></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt></QueueMessage><QueueMessage><MessageId>2</MessageId><PopReceipt>r</PopReceipt><New/></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><MessageId>2</MessageId><PopReceipt>r</PopReceipt></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><DequeueCount> 7 </DequeueCount></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><DequeueCount>x</DequeueCount></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><InsertionTime>Fri, 2 Jan 2026 03:04:05 CET</InsertionTime></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><InsertionTime>yesterday</InsertionTime></QueueMessage></QueueMessagesList>",
	"\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><MessageText>\uFEFF</MessageText></QueueMessage></QueueMessagesList>",
	"\uFEFF<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><New/></QueueMessage></QueueMessagesList>",
	"<!DOCTYPE x><!-- --><QueueMessagesList xmlns=\"urn:x\"><QueueMessage a='b'><MessageId>1</MessageId><PopReceipt>r</PopReceipt><New/></QueueMessage></QueueMessagesList>\n<!-- -->\n",
}

// Counts up to the largest are accepted, and none becomes negative.
func TestCountsAreReadUpTo2To63(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "999999999999999999": 999999999999999999, "1000000000000000000": 1e18, "9223372036854775807": math.MaxInt64,
		"9223372036854775808": -1, "9999999999999999999": -1, "18446744073709551617": -1, "-1": -1,
	} {
		answer := responding(200, "<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><DequeueCount>"+text+"</DequeueCount></QueueMessage></QueueMessagesList>")
		batch, err := openCanned(t, answer).Dequeue(t.Context(), 1, time.Second)
		switch {
		case err == nil && len(batch) == 1 && batch[0].DequeueCount == want:
		case want < 0 && (errors.Is(err, queue.ErrOutcomeUnknown) || text == "-1"):
		default:
			t.Errorf("count of %s: got %+v, %v; want %d", text, batch, err, want)
		}
		depth, err := openCanned(t, responding(200, "", "x-ms-approximate-messages-count", text)).Properties(t.Context())
		if want >= 0 && (err != nil || depth.Depth != want) || want < 0 && !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("depth of %s: got %d, %v; want %d", text, depth.Depth, err, want)
		}
	}
}

func TestTheDecodersAgree(t *testing.T) {
	for part := range lists {
		for n := range len(someMessages) + 1 {
			agree(t, part, status(part), string(queuexml.AppendMessages(nil, part, slices.Values(someMessages[:n]))))
			agree(t, part, status(part), string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(someMessages[:n]))))
		}
		for _, body := range strange {
			agree(t, part, status(part), body)
		}
	}
}

// A response with another status is not decoded.
func TestOtherResponsesAreNotDecoded(t *testing.T) {
	list := string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(someMessages)))
	refusal := string(queuexml.AppendError(nil, "ServerBusy", "Try later.\nRequestId:x", nil))
	for part := range lists {
		for _, status := range []int{202, 204, 302, 400, 404, 503} {
			agree(t, part, status, list)
			agree(t, part, status, refusal, "x-ms-error-code", "ServerBusy")
		}
	}
}

// A truncated body counts as a missing response.
//
// Requirement B-01.
func TestTruncatedResponse(t *testing.T) {
	list := string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(someMessages)))
	for part := range lists {
		for _, status := range []int{status(part), 302, 503} {
			closed := false
			breaking := func(r *http.Request) (*http.Response, error) {
				answer, err := responding(status, "")(r)
				answer.ContentLength = 1 << 62 // more than there will ever be memory for
				answer.Body = struct {
					io.Reader
					io.Closer
				}{
					io.MultiReader(strings.NewReader(list[:len(list)/2]), iotest.ErrReader(errors.New("connection reset"))),
					closer(func() { closed = true }),
				}
				return answer, err
			}
			_, err := lists[part](t, openCanned(t, breaking))
			if !errors.Is(err, queue.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "connection reset") || !closed {
				t.Errorf("part %d, status %d: got %v, body closed %v; want ErrOutcomeUnknown and true", part, status, err, closed)
			}
		}
	}
}

type closer func()

func (c closer) Close() error { c(); return nil }

// Returned messages do not share memory with a reused buffer.
func TestMessagesOutliveTheBuffer(t *testing.T) {
	body := ""
	q := openCanned(t, func(r *http.Request) (*http.Response, error) { return responding(200, body)(r) })
	responses := make([][]queue.Message, 20)
	text := func(i int) string { return strings.Repeat(string(rune('a'+i)), 100) }
	for i := range responses {
		m := queuexml.Message{ID: text(i), Receipt: text(i), Text: text(i)}
		body = string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values([]queuexml.Message{m})))
		if i%3 == 0 { // for the SDK
			body = strings.Replace(body, "<QueueMessage>", "<QueueMessage><New/>", 1)
		}
		var err error
		if responses[i], err = q.Dequeue(t.Context(), 1, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for i, batch := range responses {
		if len(batch) != 1 || string(batch[0].ID) != text(i) || string(batch[0].Receipt) != text(i) || batch[0].Text != text(i) {
			t.Errorf("response %d afterwards: got %+v, want it unchanged", i, batch)
		}
	}
}

// A text with characters that XML does not allow, which another program has sent, arrives as it is
// and does not hide the others of its batch.
func TestAForbiddenTextHidesNoOther(t *testing.T) {
	for written, text := range map[string]string{"a&#x1F;b": "a\x1Fb", "a\x00b": "a\x00b", "a\xffb": "a\xffb"} {
		messages := slices.Repeat([]queuexml.Message{{ID: "1", Receipt: "r", Text: "job"}}, 32)
		messages[7].Text = "FORBIDDEN"
		body := strings.Replace(string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(messages))), "FORBIDDEN", written, 1)
		batch, err := openCanned(t, responding(200, body)).Dequeue(t.Context(), 32, time.Minute)
		if err != nil || len(batch) != 32 || batch[7].Text != text || batch[8].Text != "job" {
			t.Errorf("%q: got %d messages, %v; want 32 and the text as it is", written, len(batch), err)
		}
	}
}

// FuzzTheDecodersAgree decodes the same bytes with Queue and with azqueue, which returns an empty list
// for other documents.
func FuzzTheDecodersAgree(f *testing.F) {
	for part := range lists {
		f.Add(int(part), string(queuexml.AppendMessages(nil, part, slices.Values(someMessages))))
		f.Add(int(part), string(queuexml.AppendMessages(nil, part, slices.Values(someMessages[:1]))))
		for _, body := range strange {
			f.Add(int(part), body)
		}
		for _, answer := range foreign {
			f.Add(int(part), answer.body)
		}
	}
	f.Fuzz(func(t *testing.T, operation int, body string) {
		part := queuexml.Part(uint(operation) % 3)
		answer := responding(status(part), body)
		if checkList([]byte(body)) == nil {
			agree(t, part, status(part), body)
		} else if queuexml.ParseMessages([]byte(body), func(*queuexml.Message) {}) == nil {
			return // it has characters that XML does not allow, which the SDK refuses
		} else if _, err := lists[part](t, openCanned(t, answer)); !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("part %d: got %v, want ErrOutcomeUnknown", part, err)
		}
	})
}
