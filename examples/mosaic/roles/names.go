package roles

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// The queues.
const (
	imageRequests  = "imagerequest"
	sliceRequests  = "slicerequest"
	sliceResponses = "sliceresponse"
	imageResponses = "imageresponse"
)

// The containers. Those of the slices are called as the queues that speak of them.
const (
	imageInput   = "imageinput"
	imageLibrary = "imagelibrary"
	imageOutput  = "imageoutput"
	jobState     = "jobs"
)

// storeRef is where a store keeps its id.
var storeRef = blob.Ref{Container: "store", Name: "id"}

// inputRef is where the original picture of a request is.
func inputRef(id uuid.UUID) blob.Ref { return blob.Ref{Container: imageInput, Name: id.String()} }

// libraryRef is where a tile library is: one blob for its content, whoever uses it.
func libraryRef(id string) blob.Ref { return blob.Ref{Container: imageLibrary, Name: id + ".tar"} }

// outputRef is where the mosaic is, under a name that picture viewers open.
func outputRef(id uuid.UUID, f picture.Format) blob.Ref {
	return blob.Ref{Container: imageOutput, Name: id.String() + extension(f)}
}

func extension(f picture.Format) string {
	if f == picture.JPEG {
		return ".jpg"
	}
	return ".png"
}

// cutRef and laidRef are where a slice is before and after its processing. The
// numbers have leading zeros, so that a list is in their order.
func cutRef(id uuid.UUID, sequence int) blob.Ref  { return sliceRef(sliceRequests, id, sequence) }
func laidRef(id uuid.UUID, sequence int) blob.Ref { return sliceRef(sliceResponses, id, sequence) }

func sliceRef(container string, id uuid.UUID, sequence int) blob.Ref {
	return blob.Ref{Container: container, Name: fmt.Sprintf("%s/%06d", id, sequence)}
}

// stateRef is where one fact about a request is.
func stateRef(id uuid.UUID, fact string) blob.Ref {
	return blob.Ref{Container: jobState, Name: id.String() + "/" + fact}
}
