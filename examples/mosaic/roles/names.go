package roles

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
)

// The queues.
const (
	imageRequests  = "imagerequest"
	sliceRequests  = "slicerequest"
	sliceResponses = "sliceresponse"
	imageResponses = "imageresponse"
)

// The containers. Slices are in containers with the names of their queues.
const (
	imageInput   = "imageinput"
	imageLibrary = "imagelibrary"
	imageOutput  = "imageoutput"
	jobState     = "jobs"
)

// inputRef is the blob of a request's original picture.
func inputRef(id uuid.UUID) blob.Ref { return blob.Ref{Container: imageInput, Name: id.String()} }

// libraryRef is the blob of a tile library. Equal libraries share one.
func libraryRef(id string) blob.Ref { return blob.Ref{Container: imageLibrary, Name: id + ".tar"} }

func outputRef(id uuid.UUID) blob.Ref {
	return blob.Ref{Container: imageOutput, Name: id.String() + ".png"}
}

// cutRef and laidRef are the blobs of a slice before and after it is rendered. Package gather
// chooses the names of laidRef and endRef.
func cutRef(id uuid.UUID, sequence int) blob.Ref  { return sliceRef(sliceRequests, id, sequence) }
func laidRef(id uuid.UUID, sequence int) blob.Ref { return sliceRef(sliceResponses, id, sequence) }

// endRef is the record of how a request ended.
func endRef(id uuid.UUID) blob.Ref {
	return blob.Ref{Container: sliceResponses, Name: id.String() + "/end"}
}

func sliceRef(container string, id uuid.UUID, sequence int) blob.Ref {
	return blob.Ref{Container: container, Name: fmt.Sprintf("%s/%06d", id, sequence)}
}

// stateRef is the blob of one fact about a request.
func stateRef(id uuid.UUID, fact string) blob.Ref {
	return blob.Ref{Container: jobState, Name: id.String() + "/" + fact}
}
