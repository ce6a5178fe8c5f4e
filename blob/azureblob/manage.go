package azureblob

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/serviceerror"
)

// Stat implements [blob.Store] with Get Blob Properties.
func (s *Store) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
	var v version
	err := s.check(ctx, ref.Container, blobcheck.Ref(ref.Container, ref.Name))
	if err == nil {
		v, err = s.stat(ctx, ref)
	}
	return v.info, explain("stat", ref, err)
}

func (s *Store) stat(ctx context.Context, ref blob.Ref) (v version, err error) {
	err = s.do(ctx, ref.String(), func(try context.Context) error {
		r, err := s.blob(ref).GetProperties(try, nil)
		if err == nil {
			v, err = newVersion(ref, r.ContentLength, r.LastModified, r.Date, r.ETag, r.Metadata)
		}
		return err
	})
	return v, err
}

// Delete implements [blob.Store] with Delete Blob. A blob with snapshots, which only other
// programs make, is not deleted.
func (s *Store) Delete(ctx context.Context, ref blob.Ref) error {
	err := s.check(ctx, ref.Container, blobcheck.Ref(ref.Container, ref.Name))
	if err == nil {
		err = s.do(ctx, ref.String(), func(try context.Context) error {
			r, err := s.blob(ref).Delete(try, nil)
			if err == nil && r.RequestID == nil {
				err = &foreignError{Lacks: "request id"}
			}
			return err
		})
	}
	if errors.Is(err, blob.ErrMissing) {
		return nil
	}
	return explain("delete", ref, err)
}

// List implements [blob.Store] with List Blobs, a request for each page.
func (s *Store) List(ctx context.Context, containerName, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		err := s.check(ctx, containerName, blobcheck.Prefix(containerName, prefix))
		for marker := ""; err == nil; {
			var page []blob.Info
			if page, marker, err = s.page(ctx, containerName, prefix, marker); err != nil {
				break
			}
			for _, info := range page {
				if err = serviceerror.Ended(ctx); err != nil {
					break
				}
				if !yield(info, nil) {
					return
				}
			}
			if marker == "" {
				break
			}
		}
		if err != nil && !hasCode(err, codeContainerNotFound) {
			yield(blob.Info{}, explain("list", blob.Ref{Container: containerName, Name: prefix}, err))
		}
	}
}

// page returns one page of a list and the marker of the next, "" after the last.
func (s *Store) page(ctx context.Context, containerName, prefix, marker string) (page []blob.Info, next string, err error) {
	o := &container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}}
	if prefix != "" {
		o.Prefix = &prefix
	}
	if marker != "" {
		o.Marker = &marker
	}
	err = s.do(ctx, containerName+"/"+prefix+"/"+marker, func(try context.Context) error {
		r, err := s.container(containerName).NewListBlobsFlatPager(o).NextPage(try) // one page, one request
		switch {
		case err != nil:
			return err
		case r.ServiceEndpoint == nil || r.Segment == nil: // a document without an endpoint is not a list
			return &foreignError{Lacks: "list of blobs"}
		}
		page, next = nil, ""
		if r.NextMarker != nil {
			next = *r.NextMarker
		}
		for _, item := range r.Segment.BlobItems {
			if item == nil || item.Name == nil || item.Properties == nil {
				return &foreignError{Lacks: "name or properties of a blob"}
			}
			ref := blob.Ref{Container: containerName, Name: *item.Name}
			if blobcheck.Ref(ref.Container, ref.Name) != nil {
				continue // another program's
			}
			v, err := newVersion(ref, item.Properties.ContentLength, item.Properties.LastModified, r.Date, item.Properties.ETag, item.Metadata)
			if err != nil {
				return err
			}
			page = append(page, v.info)
		}
		return nil
	})
	return page, next, err
}

// Public implements [blob.Manager] with Get Container ACL. A container that others may also list is
// public.
func (s *Store) Public(ctx context.Context, containerName string) (bool, error) {
	public, _, err := s.policy(ctx, containerName)
	if hasCode(err, codeContainerNotFound) {
		return false, nil
	}
	return public, explain("get access", blob.Ref{Container: containerName}, err)
}

// policy reports whether a container is public, and returns its stored access policies, on which
// signatures may rest.
func (s *Store) policy(ctx context.Context, containerName string) (public bool, stored []*container.SignedIdentifier, err error) {
	if err := s.check(ctx, containerName, blobcheck.Container(containerName)); err != nil {
		return false, nil, err
	}
	err = s.do(ctx, containerName, func(try context.Context) error {
		r, err := s.container(containerName).GetAccessPolicy(try, nil)
		switch {
		case err != nil:
			return err
		case r.ETag == nil:
			return &foreignError{Lacks: "ETag of the container"}
		}
		public, stored = r.BlobPublicAccess != nil && *r.BlobPublicAccess != "", r.SignedIdentifiers
		return nil
	})
	return public, stored, err
}

// SetPublic implements [blob.Manager] with Set Container ACL. It keeps the stored access policies
// of the container.
func (s *Store) SetPublic(ctx context.Context, containerName string, public bool) error {
	var access *container.PublicAccessType
	if public {
		access = to.Ptr(container.PublicAccessTypeBlob)
	}
	_, stored, err := s.policy(ctx, containerName)
	if hasCode(err, codeContainerNotFound) {
		err = s.repeat(ctx, containerName, func(ctx context.Context) error { return s.createContainer(ctx, containerName, nil) })
	}
	if err == nil {
		err = s.do(ctx, containerName, func(try context.Context) error {
			r, err := s.container(containerName).SetAccessPolicy(try, &container.SetAccessPolicyOptions{Access: access, ContainerACL: stored})
			if err == nil && r.ETag == nil {
				err = &foreignError{Lacks: "ETag of the container"}
			}
			return err
		})
	}
	return explain("set access", blob.Ref{Container: containerName}, err)
}

// version is what a response says of a blob.
type version struct {
	info  blob.Info
	etag  azcore.ETag
	token string // of the create that stored it; "" if it was put
}

const tokenName = blobcheck.ReservedMetadata + "create"

// newVersion reads a description of a blob. It fails with a [*foreignError] if a part is missing
// that the service always sends.
func newVersion(ref blob.Ref, size *int64, modified, now *time.Time, etag *azcore.ETag, metadata map[string]*string) (version, error) {
	switch {
	case size == nil:
		return version{}, &foreignError{Lacks: "size of the blob"}
	case modified == nil:
		return version{}, &foreignError{Lacks: "time of the blob"}
	case etag == nil || *etag == "":
		return version{}, &foreignError{Lacks: "ETag of the blob"}
	}
	v := version{info: blob.Info{Ref: ref, Size: *size, Modified: *modified}, etag: *etag}
	if now != nil {
		v.info.Now = *now
	}
	for name, value := range metadata {
		name = strings.ToLower(name) // headers lose their case
		switch {
		case value == nil:
		case name == tokenName:
			v.token = *value
		case !strings.HasPrefix(name, blobcheck.ReservedMetadata):
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
