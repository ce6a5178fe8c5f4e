package codec_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
)

// addSamples adds the texts of testdata/interop to the corpus, as they are and opened.
func addSamples(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/interop/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("got %d samples, error %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
		if _, body, _, err := envelope.Open(string(text), codec.Auto); err == nil {
			f.Add(string(body))
		}
	}
}

// checkAgain checks that a value that was decoded is encoded to a body that says the same: encoded,
// decoded and encoded again it does not change.
func checkAgain[T any](t *testing.T, c codec.Codec[T], from string, v T) {
	t.Helper()
	body, err := c.Encode(v)
	if err != nil {
		t.Fatalf("%q, decoded as %+v: got error %v from Encode, want nil", from, v, err)
	}
	again, err := c.Decode(body)
	if err != nil {
		t.Fatalf("%q, decoded and encoded as %q: got error %v from Decode, want nil", from, body, err)
	}
	if same, err := c.Encode(again); err != nil || !bytes.Equal(same, body) {
		t.Fatalf("%q, encoded as %q: got %q, error %v the second time", from, body, same, err)
	}
}

// FuzzJSON checks that no body makes the JSON codec panic, and that what it decodes does not change
// when it is encoded and decoded again.
func FuzzJSON(f *testing.F) {
	addSamples(f)
	f.Add("\uFEFF{\"ID\":\"\\ud800\",\"Count\":-1} ")
	f.Fuzz(func(t *testing.T, body string) {
		if v, err := codec.JSON[item]().Decode([]byte(body)); err == nil {
			checkAgain(t, codec.JSON[item](), body, v)
		}
		if v, err := codec.JSON[any]().Decode([]byte(body)); err == nil {
			checkAgain(t, codec.JSON[any](), body, v)
		}
	})
}

// FuzzXML checks the same of the XML codec.
func FuzzXML(f *testing.F) {
	addSamples(f)
	f.Add(`<parcel id="7&#10;"><Weight>1.5</Weight><lines><line>a</line><line>&lt;b&gt;</line></lines><Note/></parcel>`)
	f.Add("<parcel><Raw><![CDATA[<&]]>\r\n</Raw></parcel><!-- end -->")
	f.Fuzz(func(t *testing.T, body string) {
		if v, err := codec.XML[item]().Decode([]byte(body)); err == nil {
			checkAgain(t, codec.XML[item](), body, v)
		}
		if v, err := codec.XML[parcel]().Decode([]byte(body)); err == nil {
			v.XMLName.Space = "" // encoding/xml does not write every name space that it reads
			checkAgain(t, codec.XML[parcel](), body, v)
		}
	})
}

// FuzzExplain checks that every text can be explained, and that what failed stays known.
func FuzzExplain(f *testing.F) {
	addSamples(f)
	failed := errors.New("it failed")
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []codec.Format{codec.Auto, codec.Envelope, codec.Plain, codec.Base64} {
			err := envelope.Explain(text, format, failed)
			if !errors.Is(err, failed) || !strings.HasPrefix(err.Error(), "it failed") {
				t.Fatalf("%q as %v: got %v, want the error that it explains", text, format, err)
			}
			if len(err.Error()) > 500 {
				t.Fatalf("%q as %v: got an explanation of %d bytes, want a line", text, format, len(err.Error()))
			}
		}
	})
}
