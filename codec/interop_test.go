package codec_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
)

// item is a job as programs in other languages send it in testdata/interop.
type item struct {
	ID    string
	Count int
	Note  string
}

var itemSeven = item{"7", 3, `grüß "dich"`}

// samples are the texts in testdata/interop, as their producers put them on the wire, which are jobs
// in JSON: either the item, or the parts of the reason for which they are poison.
var samples = []struct {
	name   string
	format codec.Format // it is read as
	poison []string
}{
	{"dotnet-v12", codec.Plain, nil},
	{"dotnet-v12-base64", codec.Base64, nil}, // QueueMessageEncoding.Base64
	{"dotnet-v11", codec.Base64, nil},
	{"dotnet-indented", codec.Plain, nil},
	{"dotnet-mark", codec.Plain, nil},
	{"dotnet-mark-base64", codec.Base64, nil},
	{"dotnet-null", codec.Plain, []string{"the body is null, which this type cannot hold", "no envelope and is JSON"}},
	{"dotnet-null-base64", codec.Base64, []string{"the body is null", "no envelope and is Base64 of JSON"}},
	{"dotnet-utf16-base64", codec.Plain, []string{`as an envelope (it does not begin with "millrace/")`, "as JSON (invalid character 'e'", "as Base64 (it decodes to what looks like UTF-16, not UTF-8)"}},
	{"dotnet-empty", codec.Plain, []string{"the body is empty", "as JSON (it is empty)", "as Base64 (it is empty)"}},
	{"dotnet-xml", codec.Plain, []string{"invalid character '<'", "no envelope and is XML"}},
	{"dotnet-xml-base64", codec.Base64, []string{"invalid character '<'", "no envelope and is Base64 of XML"}},
	{"functions-output", codec.Base64, nil}, // with a property that the Functions host adds
	{"python", codec.Plain, nil},
	{"python-base64", codec.Base64, nil},      // TextBase64EncodePolicy
	{"python-encodebytes", codec.Base64, nil}, // with a line end after every 76 characters
	{"python-repr", codec.Plain, []string{"as JSON (invalid character '\\''", "at byte 2", "as Base64 (illegal base64 data at input byte 0)"}},
	{"python-bytes-repr", codec.Plain, []string{"as JSON (invalid character 'b'", "as Base64 (illegal base64 data at input byte 1)"}},
	{"python-nan", codec.Plain, []string{"as JSON (invalid character 'N'", "at byte 22"}},
	{"python-none", codec.Plain, []string{"the body is null"}},
	{"python-urlsafe", codec.Plain, []string{"as JSON (invalid character 'e'", "as Base64 (illegal base64 data at input byte 11)"}},
	{"javascript", codec.Plain, nil},
	{"javascript-base64", codec.Base64, nil},
	{"javascript-null", codec.Plain, []string{"the body is null"}},
	{"javascript-object", codec.Plain, []string{"as JSON (invalid character 'o'", "as Base64"}}, // an object as a string
	{"javascript-twice", codec.Plain, []string{"cannot unmarshal string", "a JSON string that holds JSON: its sender encoded it twice"}},
	{"javascript-text-base64", codec.Plain, []string{"as Base64 (it decodes to no JSON: invalid character 'o'"}},
	{"javascript-wrong-type", codec.Plain, []string{"cannot unmarshal number into Go struct field item.ID of type string", "no envelope and is JSON"}},
}

// sampleText returns a text of testdata/interop.
func sampleText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "interop", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkReason checks that the error names all these parts.
func checkReason(t *testing.T, name string, err error, parts []string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: got %v, want a reason with %q", name, err, part)
		}
	}
}

// What programs in other languages send is read, or the reason names every form that was tried.
func TestMessagesOfOtherLanguagesAreReadOrSayWhyNot(t *testing.T) {
	for _, one := range samples {
		text := sampleText(t, one.name)
		_, body, format, err := envelope.Open(text, codec.Auto)
		if err != nil || format != one.format {
			t.Errorf("%s: opened as %v, %v, want %v", one.name, format, err, one.format)
		}
		got, err := codec.JSON[item]().Decode(body)
		if len(one.poison) == 0 {
			if err != nil || got != itemSeven {
				t.Errorf("%s: got %+v, %v", one.name, got, err)
			}
			continue
		}
		explained := envelope.Explain(text, codec.Auto, err)
		checkReason(t, one.name, explained, one.poison)
		if !errors.Is(explained, err) {
			t.Errorf("%s: %v is not what failed, %v", one.name, explained, err)
		}
	}
}

// Event Grid puts one event in Base64 into each message, in its own schema or as a CloudEvent.
func TestEventsOfEventGridAreRead(t *testing.T) {
	for name, id := range map[string]string{"eventgrid": "831e1650-001e-001b-66ab-eeb76e069631", "eventgrid-cloudevent": "9aeb0fdf-c01e-0131-0922-9eb54906e209"} {
		type event struct {
			ID   string
			Data struct{ URL string }
		}
		_, body, format, err := envelope.Open(sampleText(t, name), codec.Auto)
		if err != nil || format != codec.Base64 {
			t.Errorf("%s: opened as %v, %v", name, format, err)
		}
		got, err := codec.JSON[event]().Decode(body)
		if err != nil || got.ID != id || !strings.HasSuffix(got.Data.URL, "/orders/7.json") {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// What .NET's XmlSerializer writes is read, with its byte order mark and its claim to be UTF-16.
func TestXMLOfDotNetIsRead(t *testing.T) {
	for _, name := range []string{"dotnet-xml", "dotnet-xml-base64"} {
		_, body, _, err := envelope.Open(sampleText(t, name), codec.Auto)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := codec.XML[item]().Decode(body); err != nil || got != itemSeven {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// Every sample is used by a test.
func TestEverySampleIsRead(t *testing.T) {
	used := map[string]bool{"eventgrid": true, "eventgrid-cloudevent": true}
	for _, one := range samples {
		used[one.name] = true
	}
	files, err := filepath.Glob("testdata/interop/*.txt")
	if err != nil || len(files) != len(used) {
		t.Errorf("%d files for %d samples, %v", len(files), len(used), err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".txt"); !used[name] {
			t.Errorf("no test reads %s", name)
		}
	}
}

// A wrong Format says so, and what Auto would make of the text.
func TestAWrongFormatIsNamed(t *testing.T) {
	read := func(text string, f codec.Format) error {
		_, body, _, err := envelope.Open(text, f)
		if err == nil {
			_, err = codec.JSON[item]().Decode(body)
		}
		return envelope.Explain(text, f, err)
	}
	for _, c := range []struct {
		text   string
		format codec.Format
		want   string // "" if it is read
	}{
		{"e30=", codec.Plain, "Format is plain, but the text is Base64 of JSON: Auto reads that"},
		{`{}`, codec.Base64, "Format is base64, but the text is JSON: Auto reads that"},
		{`{}`, codec.Envelope, "Format is envelope, but the text is JSON: Auto reads that"},
		{"words", codec.Plain, "the text was read as plain, which is the Format that is set"},
		{"words", codec.Base64, "the text was read as base64"},
		{`{"ID":7}`, codec.Plain, "the text was read as plain"},
		{"millrace/1?n=x\n{}", codec.Auto, "no count"},
		{"e30=", codec.Base64, ""},
		{"PGE", codec.Auto, "as Base64 (illegal base64 data"},
		{"PGE+", codec.Auto, "as Base64 (it decodes to no XML: XML syntax error on line 1: unexpected EOF)"},
	} {
		if err := read(c.text, c.format); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q as %v: got %v, want %q", c.text, c.format, err, c.want)
		}
	}
	if newer := read("millrace/9?\n", codec.Auto); !errors.Is(newer, codec.ErrNewer) || strings.Contains(newer.Error(), "tried") {
		t.Errorf("got %v", newer)
	}
	if err := envelope.Explain("{}", codec.Plain, codec.ErrNewer); err != codec.ErrNewer { //nolint:errorlint // it is returned as it is
		t.Errorf("got %v, want it unchanged", err)
	}
	if err := envelope.Explain("{}", codec.Auto, nil); err != nil {
		t.Errorf("nothing failed, and got %v", err)
	}
}
