package internal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
)

// B-19: only readers that say so open a message of a kind or with a claim. To every other reader,
// and to releases that know version 1 only, it is newer and not invalid.
func TestAFeatureIsLeftToReadersThatUnderstandIt(t *testing.T) {
	const kinds, claims, groups = envelope.Kinds, envelope.Claims, envelope.Groups
	for _, c := range []struct {
		head       envelope.Head
		first      string // of the text
		understood []envelope.Feature
		newer      string // part of the error; "" if it is opened
	}{
		{envelope.Head{ID: "7", Key: "k"}, "millrace/1?id=7&ky=k", nil, ""},
		{envelope.Head{ID: "7", Key: "k"}, "millrace/1?id=7&ky=k", []envelope.Feature{kinds, claims}, ""},
		{envelope.Head{Kind: "resize"}, "millrace/2?kd=resize", nil, `of the kind "resize", and this reader handles no kinds`},
		{envelope.Head{Kind: "resize"}, "millrace/2?kd=resize", []envelope.Feature{claims}, "no kinds"},
		{envelope.Head{Kind: "resize"}, "millrace/2?kd=resize", []envelope.Feature{kinds}, ""},
		{envelope.Head{Claim: "blob"}, "millrace/2?cl=blob", nil, "its body is stored elsewhere, and this reader opens no claims"},
		{envelope.Head{Claim: "blob"}, "millrace/2?cl=blob", []envelope.Feature{kinds}, "no claims"},
		{envelope.Head{Claim: "blob"}, "millrace/2?cl=blob", []envelope.Feature{claims}, ""},
		{envelope.Head{Items: 9}, "millrace/2?gr=9", nil, "it is a group of 9 jobs, and this reader handles no groups"},
		{envelope.Head{Items: 9}, "millrace/2?gr=9", []envelope.Feature{kinds, claims}, "no groups"},
		{envelope.Head{Items: 9, Done: "\x03"}, "millrace/2?gr=9&gd=Aw", []envelope.Feature{groups}, ""},
		{envelope.Head{Kind: "k", Claim: "c", Items: 9}, "millrace/2?kd=k&cl=c&gr=9", []envelope.Feature{kinds, claims}, "no groups"},
		{envelope.Head{Kind: "k", Claim: "c", Items: 9}, "millrace/2?kd=k&cl=c&gr=9", []envelope.Feature{groups, claims}, "no kinds"},
		{envelope.Head{Kind: "k", Claim: "c", Items: 9}, "millrace/2?kd=k&cl=c&gr=9", []envelope.Feature{kinds, groups}, "no claims"},
		{envelope.Head{Kind: "k", Claim: "c", Items: 9}, "millrace/2?kd=k&cl=c&gr=9", []envelope.Feature{kinds, claims, groups}, ""},
		{envelope.Head{Kind: "k", Claim: "c"}, "millrace/2?kd=k&cl=c", []envelope.Feature{claims}, "no kinds"},
		{envelope.Head{Kind: "k", Claim: "c"}, "millrace/2?kd=k&cl=c", []envelope.Feature{kinds}, "no claims"},
		{envelope.Head{Kind: "k", Claim: "c"}, "millrace/2?kd=k&cl=c", []envelope.Feature{kinds, claims}, ""},
	} {
		text, err := envelope.Seal(c.head, []byte("{}"), codec.Envelope)
		if err != nil || text != c.first+"\n{}" {
			t.Errorf("%+v is sealed as %q, %v; want %q", c.head, text, err, c.first)
		}
		opened := map[string]func() (envelope.Head, []byte, codec.Format, error){
			"Open": func() (envelope.Head, []byte, codec.Format, error) {
				return envelope.Open(text, codec.Auto, c.understood...)
			},
			"as Envelope": func() (envelope.Head, []byte, codec.Format, error) {
				return envelope.Open(text, codec.Envelope, c.understood...)
			},
			"OpenForeign": func() (envelope.Head, []byte, codec.Format, error) {
				return envelope.OpenForeign(text, codec.Base64, c.understood...)
			},
		}
		for name, open := range opened {
			h, body, format, err := open()
			if h != c.head || format != codec.Envelope || (err == nil) != (c.newer == "") || (body == nil) != (c.newer != "") {
				t.Errorf("%s of %q: got %+v, %q, %v, %v", name, text, h, body, format, err)
			}
			if c.newer != "" && (!errors.Is(err, codec.ErrNewer) || !strings.Contains(err.Error(), c.newer)) {
				t.Errorf("%s of %q: got %v, want %q", name, text, err, c.newer)
			}
		}
	}
}

// A program that wrote a kind or a claim into version 1 is not believed that everyone can read it.
func TestAFeatureInVersion1IsAFeature(t *testing.T) {
	for text, feature := range map[string]envelope.Feature{"millrace/1?kd=resize\n{}": envelope.Kinds, "millrace/1?cl=blob\n": envelope.Claims, "millrace/1?gr=1\n2:{}\n": envelope.Groups} {
		if _, _, _, err := envelope.Open(text, codec.Auto); !errors.Is(err, codec.ErrNewer) {
			t.Errorf("%q: got %v, want %v", text, err, codec.ErrNewer)
		}
		h, body, _, err := envelope.Open(text, codec.Auto, feature)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if again, _ := envelope.Seal(h, body, codec.Envelope); again != strings.Replace(text, "/1", "/2", 1) {
			t.Errorf("%q is sealed again as %q", text, again)
		}
	}
}

// What asks for something that nobody here knows is newer even to a reader of all features.
func TestAnUnknownFeatureIsNewer(t *testing.T) {
	for _, text := range []string{"millrace/2?id=7\nbody", "millrace/2?gr=0\nbody", "millrace/2?xy=9\nbody", "millrace/2?kd=\nbody", "millrace/2?new", "millrace/3?kd=a\n{}", "millrace/3?n=x"} {
		_, body, format, err := envelope.Open(text, codec.Auto, envelope.Kinds, envelope.Claims, envelope.Groups)
		if !errors.Is(err, codec.ErrNewer) || body != nil || format != codec.Envelope {
			t.Errorf("%q: got %q, %v, %v", text, body, format, err)
		}
	}
	for _, text := range []string{"millrace/2?kd=a", "millrace/2?kd=a&n=x\n{}", "millrace/2?kd=%zz\n{}"} {
		if _, _, _, err := envelope.Open(text, codec.Auto, envelope.Kinds); err == nil || errors.Is(err, codec.ErrNewer) {
			t.Errorf("%q: got %v, want an error that no newer program mends", text, err)
		}
	}
}

// The first release that read envelopes decided by this alone: the number before the question mark.
func TestThePreviousReleaseLeavesFeaturesAlone(t *testing.T) {
	for _, h := range []envelope.Head{{Kind: "a"}, {Claim: "b"}, {Items: 1}} {
		text, err := envelope.Seal(h, []byte("body"), codec.Auto)
		if err != nil {
			t.Fatal(err)
		}
		version, _, found := strings.Cut(strings.TrimPrefix(text, "millrace/"), "?")
		if !found || version != "2" {
			t.Errorf("%+v is sealed as %q, which a release that knows version 1 would read", h, text)
		}
	}
}

func Example_envelopeOfAKind() {
	text, err := envelope.Seal(envelope.Head{Kind: "resize"}, []byte(`{"Width":100}`), codec.Envelope)
	fmt.Printf("%s, %v\n", text, err)

	_, _, _, err = envelope.Open(text, codec.Auto) // a worker that knows one kind of job only
	fmt.Println(errors.Is(err, codec.ErrNewer), err)

	head, body, _, err := envelope.Open(text, codec.Auto, envelope.Kinds)
	fmt.Println(head.Kind, string(body), err)
	// Output:
	// millrace/2?kd=resize
	// {"Width":100}, <nil>
	// true open an envelope: newer version than this program reads: it is a job of the kind "resize", and this reader handles no kinds
	// resize {"Width":100} <nil>
}
