package roles

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/queue"
)

// Head has the fields that all messages have.
type Head struct {
	ClientID  string    `json:"clientId"`  // who asks, such as a user name
	RequestID uuid.UUID `json:"requestId"` // names the request and its blobs
	QueueURI  QueueURI  `json:"queueUri"`  // where the message was sent
}

// QueueURI names a queue of an account: "queue://account/queue".
type QueueURI string

func uriOf(n queue.Name) QueueURI { return QueueURI("queue://" + n.Account + "/" + n.Queue) }

// names reports whether the URI names the queue of this name, in any account: an account may have
// several names.
func (u QueueURI) names(name string) bool {
	parsed, err := url.Parse(string(u))
	return err == nil && parsed.Scheme == "queue" && parsed.Host != "" && parsed.User == nil &&
		parsed.RawQuery == "" && parsed.Fragment == "" && parsed.Path == "/"+name
}

// maxClientID is the maximum length of a client id.
const maxClientID = 256

func (h Head) validate(queue string) error {
	switch {
	case strings.TrimSpace(h.ClientID) == "" || len(h.ClientID) > maxClientID:
		return fmt.Errorf("clientId has %d characters and needs 1 to %d", len(h.ClientID), maxClientID)
	case h.RequestID == uuid.Nil:
		return errors.New("requestId is missing")
	case !h.QueueURI.names(queue):
		return fmt.Errorf("queueUri %.100q does not name %s", string(h.QueueURI), queue)
	}
	return nil
}

// Message is a message of one of the four types. Each type belongs to one queue.
type Message interface {
	// Validate returns an error for an invalid message. It is called when sending and when
	// receiving.
	Validate() error

	queue() string
}

// ImageRequest asks the job controller for a mosaic.
type ImageRequest struct {
	Head
	ImageURI        blob.Ref `json:"imageUri"`
	ImageLibraryURI blob.Ref `json:"imageLibraryUri"`
	TileSize        int      `json:"tileSize"` // in pixels
	Slices          int      `json:"slices"`
	Scale           float64  `json:"scale"` // of the mosaic, times its picture
	Tint            int      `json:"tint"`  // in per cent
	Reuse           int      `json:"reuse"` // a percentage
}

// options returns how the tiles are chosen.
func (m ImageRequest) options() layout.Options {
	return layout.Options{Reuse: m.Reuse, Tint: m.Tint}
}

// SliceRequest asks an image processor for one slice.
type SliceRequest struct {
	Head
	ImageLibraryURI blob.Ref `json:"imageLibraryUri"`
	SliceURI        blob.Ref `json:"sliceUri"`
	SliceSequence   int      `json:"sliceSequence"` // from 0
	Slices          int      `json:"slices"`
	TileSize        int      `json:"tileSize"`
}

// SliceResponse tells the job controller that a slice is finished. It has the number of the
// slice, which would otherwise have to be read from the name of the blob.
type SliceResponse struct {
	Head
	SliceURI      blob.Ref `json:"sliceUri"`
	SliceSequence int      `json:"sliceSequence"`
	Slices        int      `json:"slices"`
}

// ImageResponse tells the client interface that the mosaic is finished.
type ImageResponse struct {
	Head
	ImageURI blob.Ref `json:"imageUri"`
}

func (ImageRequest) queue() string  { return imageRequests }
func (SliceRequest) queue() string  { return sliceRequests }
func (SliceResponse) queue() string { return sliceResponses }
func (ImageResponse) queue() string { return imageResponses }

// Validate implements [Message].
func (m ImageRequest) Validate() error {
	return invalid(m, m.validate(imageRequests),
		sameRef("imageUri", m.ImageURI, inputRef(m.RequestID)),
		inLibrary(m.ImageLibraryURI),
		tileSize(m.TileSize),
		atLeastOneSlice(m.Slices),
		picture.CheckScale(m.Scale),
		m.options().Validate())
}

// Validate implements [Message].
func (m SliceRequest) Validate() error {
	return invalid(m, m.validate(sliceRequests),
		sequence(m.SliceSequence, m.Slices),
		inLibrary(m.ImageLibraryURI),
		sameRef("sliceUri", m.SliceURI, cutRef(m.RequestID, m.SliceSequence)),
		tileSize(m.TileSize))
}

// Validate implements [Message].
func (m SliceResponse) Validate() error {
	return invalid(m, m.validate(sliceResponses),
		sequence(m.SliceSequence, m.Slices),
		sameRef("sliceUri", m.SliceURI, laidRef(m.RequestID, m.SliceSequence)))
}

// Validate implements [Message].
func (m ImageResponse) Validate() error {
	return invalid(m, m.validate(imageResponses),
		sameRef("imageUri", m.ImageURI, outputRef(m.RequestID)))
}

// invalid returns the first error of a message, with its type.
func invalid(m Message, mistakes ...error) error {
	for _, err := range mistakes {
		if err != nil {
			return fmt.Errorf("invalid message for %s: %w", m.queue(), err)
		}
	}
	return nil
}

func require(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// sameRef compares a reference with the expected one, which follows from the rest of the message,
// so that no message can make a role read or overwrite the blobs of another request.
func sameRef(field string, got, want blob.Ref) error {
	return require(got == want, "%s is %v and should be %v", field, got, want)
}

func inLibrary(r blob.Ref) error {
	if _, err := r.MarshalText(); err != nil {
		return fmt.Errorf("imageLibraryUri: %w", err)
	}
	return require(r.Container == imageLibrary, "imageLibraryUri %v is not in container %s", r, imageLibrary)
}

func tileSize(n int) error {
	return require(n >= 1 && n <= tiles.MaxSize, "tileSize %d is outside 1…%d", n, tiles.MaxSize)
}

// maxSlices is the maximum number of slices: no picture has more rows of pixels.
const maxSlices = 1_000_000 - 1

func atLeastOneSlice(n int) error {
	return require(n >= 1 && n <= maxSlices, "slices %d is outside 1…%d", n, maxSlices)
}

func sequence(i, n int) error {
	if err := atLeastOneSlice(n); err != nil {
		return err
	}
	return require(i >= 0 && i < n, "sliceSequence %d is outside 0…%d", i, n-1)
}
