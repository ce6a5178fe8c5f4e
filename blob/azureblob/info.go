package azureblob

import (
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/blob"
)

// version is what a response says of a blob.
type version struct {
	info  blob.Info
	etag  azcore.ETag
	token string // of the create that stored it; "" if it was put
}

const tokenName = blob.ReservedMetadata + "create"

// newVersion reads a description of a blob. It fails with a [*foreignError] if a part is missing
// that the service always sends.
func newVersion(ref blob.Ref, size *int64, modified *time.Time, etag *azcore.ETag, metadata map[string]*string) (version, error) {
	switch {
	case size == nil:
		return version{}, &foreignError{Lacks: "size of the blob"}
	case modified == nil:
		return version{}, &foreignError{Lacks: "time of the blob"}
	case etag == nil || *etag == "":
		return version{}, &foreignError{Lacks: "ETag of the blob"}
	}
	v := version{info: blob.Info{Ref: ref, Size: *size, Modified: *modified}, etag: *etag}
	for name, value := range metadata {
		name = strings.ToLower(name) // headers lose their case
		switch {
		case value == nil:
		case name == tokenName:
			v.token = *value
		case !strings.HasPrefix(name, blob.ReservedMetadata):
			if v.info.Metadata == nil {
				v.info.Metadata = make(map[string]string)
			}
			v.info.Metadata[name] = *value
		}
	}
	return v, nil
}

// sentMetadata are the metadata of a put or, with a token, of a create.
func sentMetadata(metadata map[string]string, token string) map[string]*string {
	m := make(map[string]*string, len(metadata)+1)
	for name, value := range metadata {
		m[name] = &value
	}
	if token != "" {
		m[tokenName] = &token
	}
	return m
}
