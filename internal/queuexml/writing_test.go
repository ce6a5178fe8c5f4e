package queuexml

import (
	"encoding/xml"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var message = Message{
	ID:           "id",
	Inserted:     time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)),
	Expires:      time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	Receipt:      "a+b/c==",
	NextVisible:  time.Date(2026, 1, 2, 3, 4, 35, 0, time.UTC),
	DequeueCount: 3,
	Text:         "a & b\r\n",
}

func TestAppendMessages(t *testing.T) {
	const (
		times   = "<InsertionTime>Fri, 02 Jan 2026 02:04:05 GMT</InsertionTime><ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>"
		lease   = "<PopReceipt>a+b/c==</PopReceipt><TimeNextVisible>Fri, 02 Jan 2026 03:04:35 GMT</TimeNextVisible>"
		content = "<DequeueCount>3</DequeueCount><MessageText>a &amp; b&#xD;\n</MessageText>"
	)
	for part, want := range map[Part]string{
		Put:  times + lease,
		Get:  times + lease + content,
		Peek: times + content,
	} {
		got := string(AppendMessages(nil, part, slices.Values([]Message{message})))
		if want := Prolog + "<QueueMessagesList><QueueMessage><MessageId>id</MessageId>" + want + "</QueueMessage></QueueMessagesList>"; got != want {
			t.Errorf("part %d: got\n%s\nwant\n%s", part, got, want)
		}
	}
	if got := string(AppendMessages(nil, Get, slices.Values([]Message(nil)))); got != Prolog+"<QueueMessagesList></QueueMessagesList>" {
		t.Errorf("no messages: got %s, want an empty list", got)
	}
}

func TestAppendMessagesReadsBack(t *testing.T) {
	type element struct {
		MessageID       string `xml:"MessageId"`
		InsertionTime   string
		ExpirationTime  string
		PopReceipt      string
		TimeNextVisible string
		DequeueCount    int64
		MessageText     string
	}
	rapid.Check(t, func(t *rapid.T) {
		var messages []Message
		var want []element
		for range rapid.IntRange(0, 32).Draw(t, "count") {
			m := message
			m.ID = legal(rapid.String().Draw(t, "id"))
			m.Receipt = legal(rapid.String().Draw(t, "receipt"))
			m.Text = legal(rapid.String().Draw(t, "text"))
			m.DequeueCount = rapid.Int64().Draw(t, "count")
			messages = append(messages, m)
			want = append(want, element{m.ID, "Fri, 02 Jan 2026 02:04:05 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
				m.Receipt, "Fri, 02 Jan 2026 03:04:35 GMT", m.DequeueCount, m.Text})
		}
		var got struct {
			XMLName  xml.Name  `xml:"QueueMessagesList"`
			Messages []element `xml:"QueueMessage"`
		}
		if err := xml.Unmarshal(AppendMessages(nil, Get, slices.Values(messages)), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Messages, want) {
			t.Fatalf("written and read: got %+v, want %+v", got.Messages, want)
		}
	})
}

func TestAppendError(t *testing.T) {
	got := string(AppendError([]byte("kept"), "OutOfRange", "a < b\nc", []Detail{{"QueryParameterName", "x&y"}, {"Reason", ""}}))
	want := "kept" + Prolog + "<Error><Code>OutOfRange</Code><Message>a &lt; b\nc</Message>" +
		"<QueryParameterName>x&amp;y</QueryParameterName><Reason></Reason></Error>"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAppendListing(t *testing.T) {
	for _, c := range []struct {
		listing Listing
		want    string
	}{
		{Listing{Endpoint: "http://h/a"}, `<EnumerationResults ServiceEndpoint="http://h/a"><Queues></Queues><NextMarker></NextMarker></EnumerationResults>`},
		{Listing{Endpoint: "a\"<\t\r\n>", Prefix: "p", Marker: "m", MaxResults: 2, NextMarker: "n", Queues: []Queue{
			{Name: "one", Metadata: map[string]string{"b": "2", "a": "<1>"}}, {Name: "two", Metadata: map[string]string{}}, {Name: "three"}}},
			`<EnumerationResults ServiceEndpoint="a&#34;&lt;&#x9;&#xD;&#xA;&gt;"><Prefix>p</Prefix><Marker>m</Marker><MaxResults>2</MaxResults><Queues>` +
				`<Queue><Name>one</Name><Metadata><a>&lt;1&gt;</a><b>2</b></Metadata></Queue>` +
				`<Queue><Name>two</Name><Metadata></Metadata></Queue><Queue><Name>three</Name></Queue></Queues><NextMarker>n</NextMarker></EnumerationResults>`},
	} {
		if got := string(AppendListing(nil, c.listing)); got != Prolog+c.want {
			t.Errorf("got\n%s\nwant\n%s", got, Prolog+c.want)
		}
	}
}

func BenchmarkAppendMessages(b *testing.B) {
	m := message
	m.Text = strings.Repeat("x", 1024)
	messages := slices.Repeat([]Message{m}, 32)
	var doc []byte
	b.ReportAllocs()
	for b.Loop() {
		doc = AppendMessages(doc[:0], Get, slices.Values(messages))
	}
	b.SetBytes(int64(len(doc)))
}

// TestAppendTimeIsTheFormat: AppendTime writes the format of net/http.
func TestAppendTimeIsTheFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-1<<37, 1<<38).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).
			In(time.FixedZone("", rapid.IntRange(-50_000, 50_000).Draw(t, "east")))
		if got, want := string(AppendTime(nil, at)), at.UTC().Format(http.TimeFormat); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
