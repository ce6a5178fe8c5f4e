package codec_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue/driver"
)

type parcel struct {
	XMLName xml.Name `xml:"parcel"`
	ID      string   `xml:"id,attr"`
	Weight  float64
	Lines   []string `xml:"lines>line"`
	Note    *string
	Raw     []byte `xml:",omitempty"`
	secret  string
}

// L-07: encode and decode are inverses also in XML, in every format, or Encode refuses.
func TestXMLEncodeAndDecodeAreInverses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching("[a-z<>&\"' \t\r\n\uFFFD\x00\uFFFE]{0,9}"), rapid.SampledFrom([]string{"]]>", "<!--", "\xff", " "}))
		want := parcel{XMLName: xml.Name{Local: "parcel"}, ID: text.Draw(t, "id"), Weight: rapid.Float64().Draw(t, "weight"), Lines: rapid.SliceOfN(text, 1, 3).Draw(t, "lines")}
		if rapid.Bool().Draw(t, "with note") {
			note := text.Draw(t, "note")
			want.Note = &note
		}
		body, err := codec.XML[parcel]().Encode(want)
		foreign := false
		for _, s := range append([]string{want.ID}, want.Lines...) {
			foreign = foreign || driver.CheckText(s) != nil
		}
		if want.Note != nil {
			foreign = foreign || driver.CheckText(*want.Note) != nil
		}
		if foreign != (err != nil) {
			t.Fatalf("%+v: got %v", want, err)
		}
		if err != nil {
			return
		}
		format := rapid.SampledFrom([]codec.Format{codec.Envelope, codec.Plain, codec.Base64}).Draw(t, "format")
		sealed, err := envelope.Seal(envelope.Head{}, body, format)
		if err != nil {
			t.Fatal(err)
		}
		_, opened, read, err := envelope.Open(sealed, codec.Auto)
		if err != nil || read != format {
			t.Fatalf("%v, read as %v: %v", format, read, err)
		}
		if got, err := codec.XML[parcel]().Decode(opened); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// What encoding/xml would write as something else is an error.
func TestXMLRefusesWhatItCannotCarry(t *testing.T) {
	null := "\x00"
	for name, err := range map[string]error{
		"in an attribute":       encodes(parcel{ID: "\x00"}),
		"in an element":         encodes(parcel{Lines: []string{"fine", "\xff"}}),
		"behind a pointer":      encodes(parcel{Note: &null}),
		"in bytes":              encodes(parcel{Raw: []byte{0xff}}),
		"in an interface":       encodes(anything{"\uFFFE"}),
		"in what is embedded":   encodes(wrapped{parcel{ID: "\x01"}}),
		"nil":                   encodes[*parcel](nil),
		"nothing":               encodes[[]parcel](nil),
		"one of a slice":        encodes([]parcel{{}}),
		"a slice in an any":     encodes[any]([]parcel{{}}),
		"two":                   encodes([]parcel{{}, {}}),
		"a map":                 encodes(map[string]int{}),
		"a Marshaler that lies": encodes(liar{}),
		"CDATA":                 encodes(raw{"\x00"}),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "encode ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"U+FFFD":              encodes(parcel{ID: "\uFFFD"}),
		"what is not written": encodes(parcel{ID: "\uFFFD", secret: "\x00"}),
		"what is left out":    encodes(hides{"\uFFFD", "\x00"}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func encodes[T any](v T) error {
	_, err := codec.XML[T]().Encode(v)
	return err
}

// hides does not write all of itself.
type hides struct {
	ID     string
	Hidden string `xml:"-"`
}

type anything struct{ V any }

type wrapped struct{ parcel }

// raw is written without escapes.
type raw struct {
	V string `xml:",cdata"`
}

// liar writes two elements.
type liar struct{}

func (liar) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	a := xml.StartElement{Name: xml.Name{Local: "a"}}
	return errors.Join(e.EncodeElement("", a), e.EncodeElement("", a))
}

// Bad documents are errors that say why.
func TestBadXMLSaysWhy(t *testing.T) {
	for body, want := range map[string]string{
		"":                             "no element",
		" <!-- nothing -->":            "no element",
		"<parcel>":                     "unexpected EOF",
		"<parcel/><parcel/>":           "more than one root element",
		"<parcel/>more":                "text stands behind",
		"more<parcel/>":                "text stands before",
		"<?xml version=\"1.0\"?>x<a/>": "text stands before",
		"<other/>":                     "expected element type <parcel>",
		"{}":                           "text stands before",
		"<parcel><Weight>heavy</Weight></parcel>":                             "invalid syntax",
		`<?xml version="1.0" encoding="iso-8859-1"?><parcel/>`:                `"iso-8859-1", not UTF-8`,
		`<!DOCTYPE p [<!ENTITY e "x">]><parcel><Weight>&e;</Weight></parcel>`: "invalid character entity",
	} {
		_, err := codec.XML[parcel]().Decode([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "decode XML as codec_test.parcel") {
			t.Errorf("Decode(%q): got %v, want an error with %q", body, err, want)
		}
	}
	for _, body := range []string{
		"\uFEFF<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- one --><parcel/>\n<!-- two --><?end?>\n",
		`<parcel later="yes"><Later><Much/></Later></parcel>`,
		`<?xml version="1.0" encoding="us-ascii"?><parcel/>`,
	} {
		if _, err := codec.XML[parcel]().Decode([]byte(body)); err != nil {
			t.Errorf("Decode(%q): %v", body, err)
		}
	}
}

func ExampleXML() {
	type Order struct {
		XMLName xml.Name `xml:"order"`
		ID      string   `xml:"id,attr"`
		City    string   `xml:"city"`
	}
	orders := codec.XML[Order]()
	body, err := orders.Encode(Order{ID: "7", City: "Oslo"})
	fmt.Println(string(body), err)
	order, err := orders.Decode([]byte(`<?xml version="1.0"?><order id="8"><city>Graz</city></order>`))
	fmt.Println(order.ID, order.City, err)
	_, err = orders.Decode([]byte(`<invoice id="8"/>`))
	fmt.Println(err)
	// Output:
	// <order id="7"><city>Oslo</city></order> <nil>
	// 8 Graz <nil>
	// decode XML as codec_test.Order: expected element type <order> but have <invoice>
}
