package internal_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/envelope"
)

const protocolPage = "../docs/protocol.md"

// envelopesSection returns what docs/protocol.md says of envelopes.
func envelopesSection(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Envelopes\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("docs/protocol.md does not describe envelopes")
	}
	return section
}

// docs/protocol.md lists all parameters that are written, and no others.
func TestTheProtocolListsTheParameters(t *testing.T) {
	text, err := envelope.Seal(envelope.Head{
		ID: "i", ContentType: "c", Enqueued: time.UnixMilli(1), Attempts: 1, Settled: 1, Starts: 1, Fingerprint: "f", Poison: "p", Moved: "m", Trace: "t",
		TraceState: "s", Kind: "k", Key: "y", Dedupe: "d", Claim: "l",
		Items: 2, Done: "\x01", Failed: "\x02", Started: "\x01", Failure: "f",
	}, []byte{0}, codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(text, "\n")
	_, query, _ := strings.Cut(line, "?")
	written, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z, `]+`) \\|").FindAllStringSubmatch(envelopesSection(t), -1) {
		listed = append(listed, strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")...)
	}
	if slices.Sort(listed); !slices.Equal(listed, slices.Sorted(maps.Keys(written))) {
		t.Errorf("the page lists %v, and written are %v", listed, slices.Sorted(maps.Keys(written)))
	}
}

// The envelopes that docs/protocol.md shows are read as it says.
func TestTheProtocolShowsEnvelopes(t *testing.T) {
	var shown []string
	for _, block := range regexp.MustCompile("(?ms)^```\n(millrace/.*?)\n```$").FindAllStringSubmatch(envelopesSection(t), -1) {
		shown = append(shown, block[1])
	}
	want := []struct {
		head envelope.Head
		body string
	}{
		{envelope.Head{ID: "YOW7DEVS6OVMR2RTDGPI2FUIAH", Enqueued: time.UnixMilli(1795305600000).UTC(), Attempts: 2, Settled: 3}, `{"ID":"7"}`},
		{envelope.Head{ID: "17", Kind: "mail"}, `{"To":"ann@example.org"}`},
		{
			envelope.Head{ID: "YOW7DEVS6OVMR2RTDGPI2FUIAH", Items: 3, Done: "\x05"},
			string(envelope.Group{[]byte(`{"ID":"7"}`), []byte(`{"ID":"8"}`), []byte(`{"ID":"9"}`)}.Encode()),
		},
	}
	if len(shown) != len(want) {
		t.Fatalf("the page shows %q, want %d envelopes", shown, len(want))
	}
	for i, text := range shown {
		h, body, _, err := envelope.Open(text, codec.Auto, envelope.Kinds, envelope.Groups)
		if err != nil || h != want[i].head || string(body) != want[i].body {
			t.Errorf("%q: got %+v, %q, %v", text, h, body, err)
		}
		if again, _ := envelope.Seal(h, body, codec.Envelope); again != text {
			t.Errorf("%q is sealed again as %q", text, again)
		}
	}
}

// openedByJavaScript is what the reader of docs/protocol.md makes of a text.
type openedByJavaScript struct {
	Head  map[string]string
	Body  []byte
	Again string // sealed by JavaScript
	Error string
}

// The reader that docs/protocol.md shows reads what is sealed here, and what it seals is read here. It
// leaves alone what other readers leave alone.
func TestTheReaderOfTheProtocolReadsEnvelopes(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over bodies")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		if azuritetest.Required("storage-queue") {
			t.Fatal(err)
		}
		t.Skip("NOT TRIED WITH JAVASCRIPT: no node")
	}
	type sealed struct {
		Text  string   `json:"text"`
		Kinds []string `json:"kinds"`
	}
	var texts []sealed
	var heads []envelope.Head
	var bodies [][]byte
	add := func(text string, h envelope.Head, body []byte, kinds ...string) {
		texts, heads, bodies = append(texts, sealed{text, append([]string{}, kinds...)}), append(heads, h), append(bodies, body)
	}
	rapid.Check(t, func(t *rapid.T) {
		h := head(t)
		h.Claim = rapid.SampledFrom([]string{"", "", "", "blob"}).Draw(t, "claim")
		body := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "body")
		text, err := envelope.Seal(h, body, codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if add(text, h, body, h.Kind); h.Kind != "" {
			add(text, h, body, "another")
		}
	})
	const newer = 7
	for _, text := range []string{"millrace/3?id=7\n", "millrace/2?id=7\n", "millrace/1?kd=a\n", "millrace/1?cl=a\n", "millrace/1?gr=2\n", "millrace/2?gr=0\n", "millrace/2?kd=&id=7\n"} {
		add(text, envelope.Head{}, nil)
	}
	results := runReader(t, node, texts)
	for i, r := range results {
		h, body, _, err := envelope.Open(texts[i].Text, codec.Envelope, envelope.Kinds)
		if i >= len(results)-newer || err != nil || h.Kind != "" && !slices.Contains(texts[i].Kinds, h.Kind) {
			if r.Error != "newer" && r.Error != "for another reader" {
				t.Errorf("%q for %q: JavaScript read %+v, want an error", texts[i].Text, texts[i].Kinds, r)
			}
			continue
		}
		if r.Error != "" || !bytes.Equal(r.Body, bodies[i]) || r.Head["id"] != h.ID || r.Head["kd"] != h.Kind || r.Head["ky"] != h.Key || r.Head["dk"] != h.Dedupe {
			t.Errorf("%q: JavaScript read %+v, want %+v, %q", texts[i].Text, r, h, body)
			continue
		}
		again, same, _, err := envelope.Open(r.Again, codec.Envelope, envelope.Kinds)
		resealed, _ := envelope.Seal(again, same, codec.Envelope)
		direct, _ := envelope.Seal(heads[i], bodies[i], codec.Envelope)
		if err != nil || !bytes.Equal(same, bodies[i]) || !sameHead(resealed, direct) {
			t.Errorf("%q: sealed by JavaScript as %q, which is read as %+v, %q, %v", texts[i].Text, r.Again, again, same, err)
		}
	}
}

// sameHead reports whether two envelopes have the same version and parameters, but for the encoding of
// the body.
func sameHead(a, b string) bool {
	parameters := func(text string) url.Values {
		line, _, _ := strings.Cut(text, "\n")
		version, query, _ := strings.Cut(line, "?")
		all, _ := url.ParseQuery(query)
		all.Del("e")
		all.Set("version", version)
		return all
	}
	return parameters(a).Encode() == parameters(b).Encode()
}

// runReader opens the texts with the reader of docs/protocol.md.
func runReader[T any](t *testing.T, node string, texts []T) (results []openedByJavaScript) {
	t.Helper()
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), node, "testdata/reader.mjs", protocolPage)
	command.Stdin = bytes.NewReader(in)
	var said, errorLog bytes.Buffer
	command.Stdout, command.Stderr = &said, &errorLog
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, errorLog.String())
	}
	if err := json.Unmarshal(said.Bytes(), &results); err != nil || len(results) != len(texts) {
		t.Fatalf("it said %.200q: %v", said.String(), err)
	}
	return results
}
