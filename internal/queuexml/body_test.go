package queuexml

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBodyAccepts(t *testing.T) {
	for doc, want := range map[string]string{
		"<QueueMessage><MessageText>hello</MessageText></QueueMessage>":                                                                   "hello",
		"<QueueMessage><MessageText></MessageText></QueueMessage>":                                                                        "",
		"<QueueMessage><MessageText/></QueueMessage>":                                                                                     "",
		"\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<QueueMessage>\n <MessageText> a </MessageText >\n</QueueMessage>\n":         " a ",
		"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><QueueMessage><MessageText>x</MessageText></QueueMessage>":               "x",
		"<QueueMessage><MessageText>&amp;&lt;&gt;&quot;&apos;&#65;&#x41;&#xD;&#10;</MessageText></QueueMessage>":                          "&<>\"'AA\r\n",
		"<QueueMessage><MessageText>a\r\nb\rc\nd</MessageText></QueueMessage>":                                                            "a\nb\nc\nd",
		"<QueueMessage><MessageText>a<![CDATA[<b>&amp;]]>c<!-- d --><?e f?>g</MessageText></QueueMessage>":                                "a<b>&amp;cg",
		"<!-- a --><?b?><QueueMessage xmlns=\"urn:x\" a='&lt;'><MessageText xml:space=\"preserve\"> </MessageText><!----></QueueMessage>": " ",
		"<QueueMessage><MessageText>\U0010FFFF\uFFFD\t</MessageText></QueueMessage>":                                                      "\U0010FFFF\uFFFD\t",
	} {
		got, err := ParseBody([]byte(doc))
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", doc, got, err, want)
		}
		if theirs, err := decoded(doc); err != nil || theirs != want {
			t.Errorf("%q: encoding/xml: got %q, %v; want %q", doc, theirs, err, want)
		}
	}
}

func TestParseBodyRefuses(t *testing.T) {
	const wrap = "<QueueMessage><MessageText>%</MessageText></QueueMessage>"
	for doc, want := range map[string]error{
		"":                                      ErrMalformed,
		"   ":                                   ErrMalformed,
		"text":                                  ErrMalformed,
		"<QueueMessage>":                        ErrMalformed,
		"<QueueMessage><MessageText>x":          ErrMalformed,
		"<QueueMessage/>":                       ErrUnexpected,
		"<QueueMessage></QueueMessage>":         ErrUnexpected,
		"<Other><MessageText/></Other>":         ErrUnexpected,
		"<QueueMessage><Other/></QueueMessage>": ErrUnexpected,
		"<q:QueueMessage xmlns:q='u'><MessageText/></q:QueueMessage>":                                    ErrUnexpected,
		"<queuemessage><MessageText/></queuemessage>":                                                    ErrUnexpected,
		"<QueueMessage><MessageText/><MessageText/></QueueMessage>":                                      ErrUnexpected,
		"<QueueMessage>x<MessageText/></QueueMessage>":                                                   ErrMalformed,
		"<QueueMessage><MessageText/>x</QueueMessage>":                                                   ErrMalformed,
		"<QueueMessage><MessageText/></QueueMessage>x":                                                   ErrMalformed,
		"<QueueMessage><MessageText/></QueueMessage><QueueMessage/>":                                     ErrMalformed,
		"<QueueMessage><MessageText></QueueMessage></MessageText>":                                       ErrMalformed,
		strings.Replace(wrap, "%", "<b>x</b>", 1):                                                        ErrUnexpected,
		strings.Replace(wrap, "%", "a & b", 1):                                                           ErrMalformed,
		strings.Replace(wrap, "%", "&nbsp;", 1):                                                          ErrMalformed,
		strings.Replace(wrap, "%", "&#0;", 1):                                                            ErrMalformed,
		strings.Replace(wrap, "%", "&#xFFFE;", 1):                                                        ErrMalformed,
		strings.Replace(wrap, "%", "&#xD800;", 1):                                                        ErrMalformed,
		strings.Replace(wrap, "%", "&#-1;", 1):                                                           ErrMalformed,
		strings.Replace(wrap, "%", "&#99999999999999999999;", 1):                                         ErrMalformed,
		strings.Replace(wrap, "%", "]]>", 1):                                                             ErrMalformed,
		strings.Replace(wrap, "%", "<![CDATA[x", 1):                                                      ErrMalformed,
		strings.Replace(wrap, "%", "<!-- -- -->", 1):                                                     ErrMalformed,
		strings.Replace(wrap, "%", "\x00", 1):                                                            ErrMalformed,
		strings.Replace(wrap, "%", "\x0b", 1):                                                            ErrMalformed,
		strings.Replace(wrap, "%", "\xff", 1):                                                            ErrMalformed,
		strings.Replace(wrap, "%", "\uFFFF", 1):                                                          ErrMalformed,
		"<!DOCTYPE x [<!ENTITY a \"aaaa\">]><QueueMessage><MessageText>&a;</MessageText></QueueMessage>": ErrMalformed,
		"<?xml version=\"1.1\"?><QueueMessage><MessageText/></QueueMessage>":                             ErrMalformed,
		"<?xml version=\"1.0\" encoding=\"utf-16\"?><QueueMessage><MessageText/></QueueMessage>":         ErrMalformed,
		"<?xml?><QueueMessage><MessageText/></QueueMessage>":                                             ErrMalformed,
		"<?xml ?><QueueMessage><MessageText/></QueueMessage>":                                            ErrMalformed,
		"<QueueMessage a=b><MessageText/></QueueMessage>":                                                ErrMalformed,
		"<QueueMessage a='1' a='2'><MessageText/></QueueMessage>":                                        ErrMalformed,
		"<QueueMessage a='<'><MessageText/></QueueMessage>":                                              ErrMalformed,
		"<QueueMessage a='1'b='2'><MessageText/></QueueMessage>":                                         ErrMalformed,
	} {
		if got, err := ParseBody([]byte(doc)); !errors.Is(err, want) {
			t.Errorf("%q: got %q, %v; want %v", doc, got, err, want)
		}
	}
}

// TestParseBodyQuotesNoText: an error never quotes the content of the message.
func TestParseBodyQuotesNoText(t *testing.T) {
	for _, text := range []string{"secret&;", "secret<b/>", "secret&secret;", "secret\x00", "secret]]>secret"} {
		if _, err := ParseBody([]byte("<QueueMessage><MessageText>" + text + "</MessageText></QueueMessage>")); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got error %v, want one that does not quote it", text, err)
		}
	}
}

// decoded reads a body with encoding/xml.
func decoded(doc string) (string, error) {
	var body struct {
		XMLName xml.Name `xml:"QueueMessage"`
		Text    *string  `xml:"MessageText"`
	}
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(doc, "\uFEFF")), &body); err != nil {
		return "", err
	}
	if body.Text == nil {
		return "", errors.New("no text")
	}
	return *body.Text, nil
}

// FuzzParseBody checks that encoding/xml accepts every body that ParseBody accepts, with the same text,
// and that ParseBody accepts what encoding/xml and this package write.
func FuzzParseBody(f *testing.F) {
	for _, seed := range []string{"", "hello", "a\r\nb", "&amp;", "<![CDATA[x]]>", "]]>", "\uFEFF", "<?xml version=\"1.0\"?>", "<!-- x -->", "\xff\x00", "привет"} {
		f.Add("", seed)
		f.Add("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n", "")
		f.Add("<QueueMessage><MessageText>"+seed+"</MessageText></QueueMessage>", seed)
		f.Add(seed+"<QueueMessage a='"+seed+"'><MessageText/></QueueMessage>", seed)
	}
	f.Fuzz(func(t *testing.T, doc, text string) {
		if got, err := ParseBody([]byte(doc)); err == nil {
			theirs, err := decoded(doc)
			if err != nil || theirs != got {
				t.Fatalf("%q: got %q, want as encoding/xml %q, %v", doc, got, theirs, err)
			}
		} else if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnexpected) {
			t.Fatalf("%q: got error %v, want ErrMalformed or ErrUnexpected", doc, err)
		}
		want := legal(text)
		ours := "<QueueMessage><MessageText>" + string(AppendText(nil, text)) + "</MessageText></QueueMessage>"
		var b strings.Builder
		if err := xml.EscapeText(&b, []byte(text)); err != nil {
			t.Fatal(err)
		}
		for _, written := range []string{ours, "<QueueMessage><MessageText>" + b.String() + "</MessageText></QueueMessage>"} {
			if got, err := ParseBody([]byte(written)); err != nil || got != want {
				t.Fatalf("%q: got %q, %v; want %q", written, got, err, want)
			}
		}
		if theirs, err := decoded(ours); err != nil || theirs != want {
			t.Fatalf("%q: encoding/xml: got %q, %v; want %q", ours, theirs, err, want)
		}
	})
}

// legal returns s with U+FFFD in place of every character that XML does not allow and every byte that is
// not UTF-8.
func legal(s string) string {
	var b strings.Builder
	for _, r := range s {
		if !isChar(r) {
			r = '\uFFFD'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := legal(rapid.String().Draw(t, "text"))
		doc := "<QueueMessage><MessageText>" + string(AppendText(nil, text)) + "</MessageText></QueueMessage>"
		if got, err := ParseBody([]byte(doc)); err != nil || got != text {
			t.Fatalf("written and read: got %q, %v; want %q", got, err, text)
		}
	})
}

func BenchmarkParseBody(b *testing.B) {
	doc := []byte("<QueueMessage><MessageText>" + strings.Repeat("x", 1024) + "</MessageText></QueueMessage>")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseBody(doc); err != nil {
			b.Fatal(err)
		}
	}
}
