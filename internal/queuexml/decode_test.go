package queuexml

import (
	"encoding/xml"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func parseAll(doc string) (messages []Message, err error) {
	err = ParseMessages([]byte(doc), func(m *Message) { messages = append(messages, *m) })
	return messages, err
}

func TestParseMessagesAccepts(t *testing.T) {
	whole := Message{
		ID: "id", Receipt: "r+/=", Text: "a & b", DequeueCount: 3,
		Inserted:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Expires:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		NextVisible: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
	}
	for doc, want := range map[string][]Message{
		"<QueueMessagesList/>": nil,
		"<QueueMessagesList><QueueMessage><MessageText>\x00&#x1F;\uFFFE\xff</MessageText></QueueMessage><QueueMessage/></QueueMessagesList>": {{Text: "\x00\x1F\uFFFE\xff"}, {}},
		"\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList></QueueMessagesList>\n":                                          nil,
		"<QueueMessagesList><QueueMessage/><QueueMessage></QueueMessage></QueueMessagesList>":                                                {{}, {}},
		`<QueueMessagesList>
			<!-- in another order, and spaced -->
			<QueueMessage a="b">
				<TimeNextVisible>Thu, 29 Feb 2024 00:00:00 GMT</TimeNextVisible >
				<MessageText>a &amp; <![CDATA[b]]></MessageText>
				<DequeueCount>3</DequeueCount><MessageId>id</MessageId><PopReceipt>r+/=</PopReceipt>
				<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>
				<InsertionTime>Fri, 02 Jan 2026 03:04:05 GMT</InsertionTime>
			</QueueMessage>
			<QueueMessage><MessageText/><DequeueCount>0</DequeueCount></QueueMessage>
		</QueueMessagesList>`: {whole, {}},
	} {
		if got, err := parseAll(doc); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", doc, got, err, want)
		}
	}
}

func TestParseMessagesRefuses(t *testing.T) {
	const wrap = "<QueueMessagesList><QueueMessage>%</QueueMessage></QueueMessagesList>"
	for doc, want := range map[string]error{
		"":                    ErrMalformed,
		"<QueueMessagesList>": ErrMalformed,
		"<QueueMessagesList><QueueMessage></QueueMessagesList>":                           ErrMalformed,
		"<QueueMessagesList/>x":                                                           ErrMalformed,
		"<QueueMessagesList>x</QueueMessagesList>":                                        ErrMalformed,
		"<Error><Code>x</Code></Error>":                                                   ErrUnexpected,
		"<QueueMessagesList><Other/></QueueMessagesList>":                                 ErrUnexpected,
		strings.Replace(wrap, "%", "x", 1):                                                ErrMalformed,
		strings.Replace(wrap, "%", "<Other/>", 1):                                         ErrUnexpected,
		strings.Replace(wrap, "%", "<MessageId/><MessageId/>", 1):                         ErrUnexpected,
		strings.Replace(wrap, "%", "<MessageText><b/></MessageText>", 1):                  ErrUnexpected,
		strings.Replace(wrap, "%", "<MessageText>x</MessageId>", 1):                       ErrUnexpected,
		strings.Replace(wrap, "%", "<MessageText>&x;</MessageText>", 1):                   ErrMalformed,
		strings.Replace(wrap, "%", "<MessageText>x</MessageText", 1):                      ErrMalformed,
		strings.Replace(wrap, "%", "<DequeueCount/>", 1):                                  ErrUnexpected,
		strings.Replace(wrap, "%", "<DequeueCount>-1</DequeueCount>", 1):                  ErrUnexpected,
		strings.Replace(wrap, "%", "<DequeueCount> 1</DequeueCount>", 1):                  ErrUnexpected,
		strings.Replace(wrap, "%", "<DequeueCount>9223372036854775808</DequeueCount>", 1): ErrUnexpected,
		strings.Replace(wrap, "%", "<InsertionTime/>", 1):                                 ErrUnexpected,
	} {
		if got, err := parseAll(doc); !errors.Is(err, want) {
			t.Errorf("%s: got %+v, %v; want %v", doc, got, err, want)
		}
	}
}

func TestParseTimeRefuses(t *testing.T) {
	const good = "Thu, 29 Feb 2024 23:59:59 GMT"
	if _, ok := parseTime([]byte(good)); !ok {
		t.Fatalf("%s: got it refused, want it accepted", good)
	}
	for _, text := range []string{
		"", good + " ", "Thu, 30 Feb 2024 23:59:59 GMT", "Thu, 00 Feb 2024 23:59:59 GMT", "Thu, 29 Feb 2023 23:59:59 GMT",
		"Thu, 29 Feb 2024 24:00:00 GMT", "Thu, 29 Feb 2024 23:60:59 GMT", "Thu, 29 Feb 2024 23:59:60 GMT",
		"Xxx, 29 Feb 2024 23:59:59 GMT", "Thu, 29 Xxx 2024 23:59:59 GMT", "Thu, 29 bFe 2024 23:59:59 GMT",
		"Thu, 29 Feb 2024 23:59:59 UTC", "Thu; 29 Feb 2024 23:59:59 GMT", "Thu, +9 Feb 2024 23:59:59 GMT",
	} {
		if at, ok := parseTime([]byte(text)); ok {
			t.Errorf("%q: got %v, want it refused", text, at)
		}
	}
}

// TestParseMessagesQuotesNoText: an error never quotes the content of a message.
func TestParseMessagesQuotesNoText(t *testing.T) {
	for _, content := range []string{
		"<MessageText>secret&;</MessageText>", "<MessageText>secret<secret/></MessageText>", "<PopReceipt>secret&secret;</PopReceipt>",
		"<DequeueCount>secret</DequeueCount>", "<InsertionTime>secret</InsertionTime>", "<MessageText>secret\x00&</MessageText>",
	} {
		_, err := parseAll("<QueueMessagesList><QueueMessage>" + content + "</QueueMessage></QueueMessagesList>")
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got error %v, want one that does not quote it", content, err)
		}
	}
}

func TestParseMessagesReadsBackWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) string { return legal(rapid.String().Draw(t, label)) }
		instant := func(label string) time.Time {
			return time.Unix(rapid.Int64Range(0, 253402300799).Draw(t, label), 0).UTC() // to the end of 9999
		}
		part := rapid.SampledFrom([]Part{Put, Get, Peek}).Draw(t, "part")
		var want []Message
		for range rapid.IntRange(0, 32).Draw(t, "count") {
			m := Message{ID: draw("id"), Inserted: instant("inserted"), Expires: instant("expires")}
			if part != Peek {
				m.Receipt, m.NextVisible = draw("receipt"), instant("next visible")
			}
			if part != Put {
				m.DequeueCount, m.Text = rapid.Int64Range(0, 1e17).Draw(t, "count"), draw("text")
			}
			want = append(want, m)
		}
		got, err := parseAll(string(AppendMessages(nil, part, slices.Values(want))))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("written and read: got %+v, %v; want %+v", got, err, want)
		}
	})
}

// decodedList reads a list with encoding/xml, with the values as texts.
func decodedList(doc string) ([]Message, error) {
	var list struct {
		XMLName  xml.Name `xml:"QueueMessagesList"`
		Messages []struct {
			MessageID       string `xml:"MessageId"`
			InsertionTime   string
			ExpirationTime  string
			PopReceipt      string
			TimeNextVisible string
			DequeueCount    string
			MessageText     string
		} `xml:"QueueMessage"`
	}
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(doc, "\uFEFF")), &list); err != nil {
		return nil, err
	}
	var messages []Message
	for _, e := range list.Messages {
		m := Message{ID: e.MessageID, Receipt: e.PopReceipt, Text: e.MessageText}
		for _, date := range []struct {
			text string
			into *time.Time
		}{{e.InsertionTime, &m.Inserted}, {e.ExpirationTime, &m.Expires}, {e.TimeNextVisible, &m.NextVisible}} {
			if date.text == "" {
				continue
			}
			at, err := time.Parse(time.RFC1123, date.text)
			if err != nil {
				return nil, err
			}
			*date.into = at.UTC()
		}
		if e.DequeueCount != "" {
			n, err := strconv.ParseInt(e.DequeueCount, 10, 64)
			if err != nil || n < 0 || n == math.MaxInt64 {
				return nil, errors.New("no count")
			}
			m.DequeueCount = n
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// FuzzParseMessages checks that encoding/xml accepts every list of XML characters that ParseMessages
// accepts, with the same values.
func FuzzParseMessages(f *testing.F) {
	for _, part := range []Part{Put, Get, Peek} {
		f.Add(string(AppendMessages(nil, part, slices.Values([]Message{message, message}))))
	}
	f.Add("<QueueMessagesList><QueueMessage><MessageText>a<![CDATA[<b>]]>&#xD;\r\n</MessageText><MessageId/></QueueMessage><!-- x --><?y?></QueueMessagesList>")
	f.Fuzz(func(t *testing.T, doc string) {
		got, err := parseAll(doc)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnexpected) {
				t.Fatalf("%q: got error %v, want ErrMalformed or ErrUnexpected", doc, err)
			}
			return
		}
		theirs, err := decodedList(doc)
		if err != nil && (legal(doc) != doc || strings.Contains(doc, "&#")) {
			return // characters that XML does not allow, which only ParseMessages accepts
		}
		if err != nil || !reflect.DeepEqual(got, theirs) {
			t.Fatalf("%q: got %+v, want as encoding/xml %+v, %v", doc, got, theirs, err)
		}
	})
}

func BenchmarkParseMessages(b *testing.B) {
	for name, text := range map[string]string{
		"plain":    strings.Repeat("x", 1024),
		"envelope": "millrace/1?id=0f7a&at=1&n=0&s=0\n" + strings.Repeat(`{"a":"b"},`, 99),
	} {
		b.Run(name, func(b *testing.B) {
			m := message
			m.Text = text
			doc := AppendMessages(nil, Get, slices.Values(slices.Repeat([]Message{m}, 32)))
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if err := ParseMessages(doc, func(*Message) { n++ }); err != nil || n != 32 {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// A batch costs one allocation for each message and a few more.
func TestParseMessagesAllocatesOnceAMessage(t *testing.T) {
	m := message
	m.Text = "millrace/1?id=0f7a&at=1\n" + strings.Repeat("x", 1024)
	doc := AppendMessages(nil, Get, slices.Values(slices.Repeat([]Message{m}, 32)))
	if n := testing.AllocsPerRun(10, func() { ParseMessages(doc, func(*Message) {}) }); n > 48 {
		t.Errorf("allocations for 32 messages: got %v, want at most 48", n)
	}
}
