package azurequeue

import (
	"errors"
	"fmt"
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

// openPlain is openCanned with the SDK as it comes, without the decoding policy.
func openPlain(t testing.TB, c canned) *Queue {
	t.Helper()
	q := openCanned(t, c)
	service, err := azqueue.NewServiceClientWithNoCredential("https://acct.queue.core.windows.net/?"+someSAS, sdkOptions(c))
	if err != nil {
		t.Fatal(err)
	}
	q.client = service.NewQueueClient(q.name.Queue)
	return q
}

// lists are the calls whose answer is a list of messages.
var lists = map[queuexml.Part]func(*testing.T, *Queue) ([]queue.Message, error){
	queuexml.Put: func(t *testing.T, q *Queue) ([]queue.Message, error) {
		m, err := q.Enqueue(t.Context(), "x", nil)
		return []queue.Message{m}, err
	},
	queuexml.Get:  func(t *testing.T, q *Queue) ([]queue.Message, error) { return q.Dequeue(t.Context(), 32, time.Second) },
	queuexml.Peek: func(t *testing.T, q *Queue) ([]queue.Message, error) { return q.Peek(t.Context(), 32) },
}

// status is that of a good answer.
func status(part queuexml.Part) int {
	if part == queuexml.Put {
		return http.StatusCreated
	}
	return http.StatusOK
}

// agree fails unless the fast way and the SDK's read the same from an answer.
func agree(t *testing.T, part queuexml.Part, answer canned) {
	t.Helper()
	fast, errFast := lists[part](t, openCanned(t, answer))
	plain, errPlain := lists[part](t, openPlain(t, answer))
	if fmt.Sprint(errFast) != fmt.Sprint(errPlain) {
		t.Errorf("part %d: the fast way: %v; the SDK's: %v", part, errFast, errPlain)
	}
	equal := func(a, b queue.Message) bool {
		// An SDK's time in GMT has a location of that name.
		sameTimes := a.Inserted.Equal(b.Inserted) && a.Expires.Equal(b.Expires) && a.Until.Equal(b.Until)
		a.Inserted, a.Expires, a.Until = b.Inserted, b.Expires, b.Until
		return sameTimes && a == b
	}
	if !slices.EqualFunc(fast, plain, equal) {
		t.Errorf("part %d: the fast way reads %#v\nthe SDK's %#v", part, fast, plain)
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

// strange are lists that the SDK reads and our decoder leaves to it, or that
// neither reads.
var strange = []string{
	"<QueueMessagesList/>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><New>x</New></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><MessageId>2</MessageId><PopReceipt>r</PopReceipt></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><DequeueCount> 7 </DequeueCount></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><DequeueCount>x</DequeueCount></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><InsertionTime>Fri, 2 Jan 2026 03:04:05 CET</InsertionTime></QueueMessage></QueueMessagesList>",
	"<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><InsertionTime>yesterday</InsertionTime></QueueMessage></QueueMessagesList>",
	"\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><MessageText>\uFEFF</MessageText></QueueMessage></QueueMessagesList>",
	"\uFEFF<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><New/></QueueMessage></QueueMessagesList>",
	"<!DOCTYPE x><!-- --><QueueMessagesList xmlns=\"urn:x\"><QueueMessage a='b'><MessageId>1</MessageId><PopReceipt>r</PopReceipt><New/></QueueMessage></QueueMessagesList>\n<!-- -->\n",
}

// Counts are read up to the largest, and none becomes negative.
func TestCountsAreReadUpTo2To63(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "999999999999999999": 999999999999999999, "1000000000000000000": 1e18, "9223372036854775807": math.MaxInt64,
		"9223372036854775808": -1, "9999999999999999999": -1, "18446744073709551617": -1, "-1": -1,
	} {
		answer := answering(200, "<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><DequeueCount>"+text+"</DequeueCount></QueueMessage></QueueMessagesList>")
		batch, err := openCanned(t, answer).Dequeue(t.Context(), 1, time.Second)
		switch {
		case err == nil && len(batch) == 1 && batch[0].DequeueCount == want:
		case want < 0 && (errors.Is(err, queue.ErrOutcomeUnknown) || text == "-1"):
		default:
			t.Errorf("a count of %s is read as %+v, %v", text, batch, err)
		}
		depth, err := openCanned(t, answering(200, "", "x-ms-approximate-messages-count", text)).Properties(t.Context())
		if want >= 0 && (err != nil || depth.Depth != want) || want < 0 && !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("a depth of %s is read as %d, %v", text, depth.Depth, err)
		}
	}
}

func TestTheDecodersAgree(t *testing.T) {
	for part := range lists {
		for n := range len(someMessages) + 1 {
			agree(t, part, answering(status(part), string(queuexml.AppendMessages(nil, part, slices.Values(someMessages[:n])))))
			agree(t, part, answering(status(part), string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(someMessages[:n])))))
		}
		for _, body := range strange {
			agree(t, part, answering(status(part), body))
		}
	}
}

// decodeMessages ignores responses that are not message lists.
func TestOtherAnswersPassDecodingUntouched(t *testing.T) {
	list := string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(someMessages)))
	refusal := string(queuexml.AppendError(nil, "ServerBusy", "Try later.\nRequestId:x", nil))
	for part := range lists {
		for _, status := range []int{202, 204, 302, 400, 404, 503} {
			agree(t, part, answering(status, list))
			agree(t, part, answering(status, refusal, "x-ms-error-code", "ServerBusy"))
		}
	}
}

// A body that breaks off is an answer that did not come.
//
// Requirement B-01.
func TestAnswerBreaksOff(t *testing.T) {
	list := string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(someMessages)))
	for part := range lists {
		for _, status := range []int{status(part), 302, 503} {
			closed := false
			breaking := func(r *http.Request) (*http.Response, error) {
				answer, err := answering(status, "")(r)
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
				t.Errorf("part %d, status %d: %v, closed %v", part, status, err, closed)
			}
		}
	}
}

type closer func()

func (c closer) Close() error { c(); return nil }

// A buffer that is used again must not be part of what was returned.
func TestMessagesOutliveTheBuffer(t *testing.T) {
	body := ""
	q := openCanned(t, func(r *http.Request) (*http.Response, error) { return answering(200, body)(r) })
	answers := make([][]queue.Message, 20)
	text := func(i int) string { return strings.Repeat(string(rune('a'+i)), 100) }
	for i := range answers {
		m := queuexml.Message{ID: text(i), Receipt: text(i), Text: text(i)}
		body = string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values([]queuexml.Message{m})))
		if i%3 == 0 { // for the SDK
			body = strings.Replace(body, "<QueueMessage>", "<QueueMessage><New/>", 1)
		}
		var err error
		if answers[i], err = q.Dequeue(t.Context(), 1, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for i, batch := range answers {
		if len(batch) != 1 || string(batch[0].ID) != text(i) || string(batch[0].Receipt) != text(i) || batch[0].Text != text(i) {
			t.Errorf("answer %d has become %+v", i, batch)
		}
	}
}

// FuzzTheDecodersAgree gives the same bytes to the decoding policy and to the SDK
// alone, which takes what is no list for an empty one.
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
		answer := answering(status(part), body)
		if checkList([]byte(body)) == nil {
			agree(t, part, answer)
		} else if _, err := lists[part](t, openCanned(t, answer)); !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("part %d: %v", part, err)
		}
	})
}
