package codec_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// ownNull decodes null itself.
type ownNull struct{ wasNull bool }

func (o *ownNull) UnmarshalJSON(b []byte) error { o.wasNull = string(b) == "null"; return nil }

// embeds has the method of what it embeds.
type embeds struct{ ownNull }

// A null is poison unless T can hold it: a struct of zeros is a job that nobody sent.
func TestANullIsReadOnlyByTypesThatCanHoldIt(t *testing.T) {
	held := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), name+": the body is null, which this type cannot hold") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, null := range []string{"null", " null\r\n\t", "\uFEFFnull"} {
		held("pointer", decodes[*order](null))
		held("map", decodes[map[string]int](null))
		held("slice", decodes[[]order](null))
		held("interface", decodes[any](null))
		held("json.RawMessage", decodes[json.RawMessage](null))
		held("UnmarshalJSON", decodes[ownNull](null))
		held("embedded UnmarshalJSON", decodes[embeds](null))
		held("time.Time", decodes[time.Time](null))
		refused("codec_test.order", decodes[order](null))
		refused("string", decodes[string](null))
		refused("int", decodes[int](null))
		refused("bool", decodes[bool](null))
		refused("[2]int", decodes[[2]int](null))
	}
	if got, err := codec.JSON[ownNull]().Decode([]byte("null")); err != nil || !got.wasNull {
		t.Errorf("got %+v, %v", got, err)
	}
	held("a null inside", decodes[order](`{"Note":null}`))
	held("the string", decodes[string](`"null"`))
}

func decodes[T any](body string) error {
	_, err := codec.JSON[T]().Decode([]byte(body))
	return err
}

// The type is named also where the value is a nil interface.
func TestErrorsNameTheType(t *testing.T) {
	if err := decodes[error](`{}`); err == nil || !strings.Contains(err.Error(), "as error:") {
		t.Errorf("got %v", err)
	}
	if _, err := codec.JSON[any]().Encode(make(chan int)); err == nil || !strings.Contains(err.Error(), "encode interface {}") {
		t.Errorf("got %v", err)
	}
}

// What has only unexported fields, in any way, has no content.
type (
	private   struct{ id string }
	embedding struct{ Hidden }
	Hidden    struct{ id string }
	pointing  struct{ *Hidden }
)

// What has content nevertheless, or needs none.
type (
	nothing     struct{}
	blank       struct{ _ struct{} }
	promoting   struct{ lower }
	Number      int
	counting    struct{ *Number }
	lower       struct{ ID string }
	ownJSON     struct{ id string }
	ownText     struct{ id string }
	ownXML      struct{ id string }
	onlyReading struct{ id string }
)

var _, _, _ = private{id: "7"}, Hidden{id: "7"}, onlyReading{id: "7"}

func (o *ownJSON) MarshalJSON() ([]byte, error)   { return json.Marshal(o.id) }
func (o *ownJSON) UnmarshalJSON(b []byte) error   { return json.Unmarshal(b, &o.id) }
func (o ownText) MarshalText() ([]byte, error)    { return []byte(o.id), nil }
func (o *ownText) UnmarshalText(b []byte) error   { o.id = string(b); return nil }
func (o *onlyReading) UnmarshalJSON([]byte) error { return nil }
func (o *ownXML) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	return e.EncodeElement(o.id, start)
}
func (o *ownXML) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	return d.DecodeElement(&o.id, &start)
}

// A job that would be sent without its content, or read without it, is an error of every way to send
// or handle it.
func TestATypeThatHidesItsFieldsIsRefused(t *testing.T) {
	unfit[private](t)
	unfit[*private](t)
	unfit[**private](t)
	unfit[embedding](t)
	unfit[pointing](t)
	fit[nothing](t, "{}")
	fit[blank](t, "{}")
	fit(t, `{"ID":"7"}`, promoting{lower{"7"}})
	fit[counting](t, `{"Number":null}`)
	fit(t, `"7"`, ownJSON{"7"})
	fit(t, `"7"`, &ownJSON{"7"})
	fit(t, `"7"`, ownText{"7"})
	fit[time.Time](t, `"0001-01-01T00:00:00Z"`)
	fit[onlyReading](t, "{}")
	fit[any](t, "null")
	fit(t, `[{"ID":"7"}]`, []lower{{"7"}})
	if err := envelope.CheckCodec(codec.XML[private]()); err == nil {
		t.Error("XML: got no error")
	}
	if b, err := codec.XML[ownXML]().Encode(ownXML{"7"}); err != nil || envelope.CheckCodec(codec.XML[ownXML]()) != nil || string(b) != "<ownXML>7</ownXML>" {
		t.Errorf("got %s, %v", b, err)
	}
	if err := envelope.CheckCodec(compressed[private](t, nil, nil)); err == nil {
		t.Error("zstdcodec: got no error")
	}
	if err := envelope.CheckCodec(codec.Text()); err != nil {
		t.Error(err)
	}
}

func unfit[T any](t *testing.T) {
	t.Helper()
	const want = "has no exported field"
	q := must(localqueue.New(nil)).Queue(queue.Name{Queue: "jobs"})
	var none T
	handler := func(context.Context, *listener.Message[T]) error { return nil }
	_, encoding := codec.JSON[T]().Encode(none)
	_, sending := producer.New(q, &producer.Options[T]{Create: true}).Send(t.Context(), none, nil)
	_, ofKinds := listener.NewKinds(q, []listener.Kind{kinds.Kind[T]{Name: "jobs"}.Handle(handler, nil)}, nil)
	for what, err := range map[string]error{
		"Check": envelope.CheckCodec(codec.JSON[T]()), "Encode": encoding, "Send": sending,
		"listener": listener.New(q, handler, nil).Check(),
		"kinds":    ofKinds,
	} {
		if name := fmt.Sprintf("%T ", none); err == nil || !strings.Contains(err.Error(), name+want) {
			t.Errorf("%s: got %v, want %q", what, err, name+want)
		}
	}
	if _, err := q.Properties(t.Context()); err == nil {
		t.Errorf("%T: the producer has created its queue", none)
	}
}

// fit checks that the type is encoded like this, its zero value if none is given.
func fit[T any](t *testing.T, want string, values ...T) {
	t.Helper()
	v := append(values, *new(T))[0]
	if b, err := codec.JSON[T]().Encode(v); err != nil || envelope.CheckCodec(codec.JSON[T]()) != nil || string(b) != want {
		t.Errorf("%T: got %s, %v, want %s", v, b, err, want)
	}
}

// JSON is compact, ends with the value, and leaves to XML what XML escapes.
func TestJSONIsNoLongerThanItMustBe(t *testing.T) {
	body, err := codec.JSON[string]().Encode("<a & b>")
	if want := `"<a & b>"`; err != nil || string(body) != want {
		t.Errorf("got %q, %v; want %q", body, err, want)
	}
}
