package roles

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

var testID = uuid.MustParse("7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55")

func testHead(name string) Head {
	return Head{ClientID: "ada", RequestID: testID, QueueURI: uriOf(queue.Name{Account: "acct", Queue: name})}
}

func goodImageRequest() ImageRequest {
	return ImageRequest{Head: testHead(imageRequests), ImageURI: inputRef(testID), ImageLibraryURI: libraryRef("abc"), TileSize: 16, Slices: 8, Scale: 2.5, Tint: 15, Reuse: 80}
}

func goodSliceRequest() SliceRequest {
	return SliceRequest{Head: testHead(sliceRequests), ImageLibraryURI: libraryRef("abc"), SliceURI: cutRef(testID, 7), SliceSequence: 7, Slices: 8, TileSize: 16}
}

func goodSliceResponse() SliceResponse {
	return SliceResponse{Head: testHead(sliceResponses), SliceURI: laidRef(testID, 0), Slices: 1}
}

func goodImageResponse() ImageResponse {
	return ImageResponse{Head: testHead(imageResponses), ImageURI: outputRef(testID)}
}

// PM-05, PM-06, PM-07, PM-08, PM-09: the fields of the messages.
func TestTheWireFormatOfMessages(t *testing.T) {
	head := `"clientId":"ada","requestId":"7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55","queueUri":"queue://acct/`
	for _, c := range []struct {
		m    Message
		want string
	}{
		{goodImageRequest(), head +
			`imagerequest","imageUri":"blob://imageinput/7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55",` +
			`"imageLibraryUri":"blob://imagelibrary/abc.tar","tileSize":16,"slices":8,"scale":2.5,"tint":15,"reuse":80`},
		{goodSliceRequest(), head +
			`slicerequest","imageLibraryUri":"blob://imagelibrary/abc.tar",` +
			`"sliceUri":"blob://slicerequest/7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55/000007","sliceSequence":7,` +
			`"slices":8,"tileSize":16`},
		{goodSliceResponse(), head +
			`sliceresponse","sliceUri":"blob://sliceresponse/7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55/000000",` +
			`"sliceSequence":0,"slices":1`},
		{goodImageResponse(), head +
			`imageresponse","imageUri":"blob://imageoutput/7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55.png"`},
	} {
		m, want := c.m, c.want
		got, err := json.Marshal(m)
		if err != nil || string(got) != "{"+want+"}" {
			t.Errorf("encoded %T: got\n%s, %v; want\n{%s}", m, got, err, want)
		}
		if err := m.Validate(); err != nil {
			t.Errorf("decoding %T: got the error %v, want none", m, err)
		}
		back := reflect.New(reflect.TypeOf(m))
		if err := json.Unmarshal(got, back.Interface()); err != nil || back.Elem().Interface() != m {
			t.Errorf("decoded %T: got %+v, %v; want %+v", m, back.Elem(), err, m)
		}
	}
}

// PM-14: encode and decode are inverses.
func TestEncodingAndDecodingMessagesAreInverses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id, err := uuid.FromBytes(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		if err != nil || id == uuid.Nil {
			t.Skip()
		}
		n := rapid.IntRange(1, maxSlices).Draw(t, "slices")
		i := rapid.IntRange(0, n-1).Draw(t, "sequence")
		m := SliceRequest{
			Head:            Head{ClientID: rapid.StringMatching(`[^\x00-\x1f\x7f-\x{9f}\pZ]{1,20}`).Draw(t, "client"), RequestID: id, QueueURI: uriOf(queue.Name{Account: "a", Queue: sliceRequests})},
			ImageLibraryURI: libraryRef("x"), SliceURI: cutRef(id, i), SliceSequence: i, Slices: n, TileSize: rapid.IntRange(1, 64).Draw(t, "tile"),
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var got SliceRequest
		if err := json.Unmarshal(text, &got); err != nil || got != m {
			t.Fatalf("encoded and decoded: got %+v, %v; want %+v", got, err, m)
		}
	})
}

// PM-13, PM-19: invalid messages are errors.
func TestInvalidMessagesAreRefused(t *testing.T) {
	other := uuid.New()
	image := func(change func(*ImageRequest)) Message { m := goodImageRequest(); change(&m); return m }
	slice := func(change func(*SliceRequest)) Message { m := goodSliceRequest(); change(&m); return m }
	laid := func(change func(*SliceResponse)) Message { m := goodSliceResponse(); change(&m); return m }
	done := func(change func(*ImageResponse)) Message { m := goodImageResponse(); change(&m); return m }
	for i, c := range []struct {
		says string
		m    Message
	}{
		{"clientId", image(func(m *ImageRequest) { m.ClientID = "" })},
		{"clientId", image(func(m *ImageRequest) { m.ClientID = " " })},
		{"clientId", image(func(m *ImageRequest) { m.ClientID = strings.Repeat("x", 257) })},
		{"requestId", image(func(m *ImageRequest) { m.RequestID = uuid.Nil })},
		{"queueUri", image(func(m *ImageRequest) { m.QueueURI = "" })},
		{"queueUri", image(func(m *ImageRequest) { m.QueueURI = "queue://acct/orders" })},
		{"queueUri", image(func(m *ImageRequest) { m.QueueURI = "queue:///imagerequest" })},
		{"queueUri", image(func(m *ImageRequest) { m.QueueURI = "http://acct/imagerequest" })},
		{"queueUri", image(func(m *ImageRequest) { m.QueueURI = "queue://acct/imagerequest?x=1" })},
		{"queueUri", image(func(m *ImageRequest) { m.QueueURI = ":" })},
		{"queueUri", slice(func(m *SliceRequest) { m.QueueURI = goodImageRequest().QueueURI })},
		{"imageUri", image(func(m *ImageRequest) { m.ImageURI = blob.Ref{} })},
		{"imageUri", image(func(m *ImageRequest) { m.ImageURI = inputRef(other) })},
		{"imageLibraryUri", image(func(m *ImageRequest) { m.ImageLibraryURI = blob.Ref{} })},
		{"imageLibraryUri", image(func(m *ImageRequest) { m.ImageLibraryURI = inputRef(testID) })},
		{"imageLibraryUri", slice(func(m *SliceRequest) { m.ImageLibraryURI.Name = "../x" })},
		{"tileSize", image(func(m *ImageRequest) { m.TileSize = 0 })},
		{"tileSize", image(func(m *ImageRequest) { m.TileSize = 65 })},
		{"tileSize", slice(func(m *SliceRequest) { m.TileSize = -1 })},
		{"slices", image(func(m *ImageRequest) { m.Slices = 0 })},
		{"slices", image(func(m *ImageRequest) { m.Slices = maxSlices + 1 })},
		{"slices", slice(func(m *SliceRequest) { m.Slices = 0 })},
		{"scale", image(func(m *ImageRequest) { m.Scale = 0 })},
		{"scale", image(func(m *ImageRequest) { m.Scale = -1 })},
		{"scale", image(func(m *ImageRequest) { m.Scale = picture.MaxScale + 1 })},
		{"tint", image(func(m *ImageRequest) { m.Tint = -1 })},
		{"tint", image(func(m *ImageRequest) { m.Tint = layout.MaxTint + 1 })},
		{"reuse", image(func(m *ImageRequest) { m.Reuse = -1 })},
		{"reuse", image(func(m *ImageRequest) { m.Reuse = 101 })},
		{"sliceSequence", slice(func(m *SliceRequest) { m.SliceSequence = -1 })},
		{"sliceSequence", slice(func(m *SliceRequest) { m.SliceSequence = 8; m.SliceURI = cutRef(testID, 8) })},
		{"sliceSequence", laid(func(m *SliceResponse) { m.SliceSequence = 1 })},
		{"sliceUri", slice(func(m *SliceRequest) { m.SliceURI = cutRef(testID, 6) })},
		{"sliceUri", slice(func(m *SliceRequest) { m.SliceURI = cutRef(other, 7) })},
		{"sliceUri", laid(func(m *SliceResponse) { m.SliceURI = cutRef(testID, 0) })},
		{"imageUri", done(func(m *ImageResponse) { m.ImageURI = inputRef(testID) })},
		{"imageUri", done(func(m *ImageResponse) { m.ImageURI = outputRef(other) })},
	} {
		if err := c.m.Validate(); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.m.queue()) {
			t.Errorf("%d: %+v: got %v, want an error about %s", i, c.m, err, c.says)
		}
	}
}

// The poison of a message that is otherwise invalid is recorded too, if it names its request.
func TestPoisonIsRecordedForItsRequest(t *testing.T) {
	j := jobsIn(blob.Memory())
	r := recording{name: imageRequests, jobs: j}
	for _, text := range []string{"", "{", "[]", `{"requestId":7}`, `{"requestId":""}`, "\x00", `{"requestId":"7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55","tileSize":"x"}`} {
		if err := r.record(t.Context(), poison.Record{Text: text, Error: "why"}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if p, err := j.progress(t.Context(), testID, 1); err != nil || p.Poison != "why" {
		t.Errorf("progress: got %+v, %v; want the poison", p, err)
	}
}
