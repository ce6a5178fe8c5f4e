package blob

import (
	"context"
	"fmt"
)

// Access says who may read the blobs of a container. Nobody but the owner may write.
//
// It is a policy of a store that others can reach over the network, as Azure Blob Storage can
// be. [Memory] and [Dir] keep it, so that a program can set it wherever it runs; but nobody
// reaches the blobs of a process, and the permissions of a directory's files decide who reads
// those.
type Access string

const (
	// Private is the default: only the owner of the store may read.
	Private Access = ""

	// PublicRead lets everybody read a blob whose name they know, without authorization.
	// Nobody but the owner may list the container.
	PublicRead Access = "public-read"
)

// Check fails with [ErrInvalid] for an unknown policy.
func (a Access) Check() error {
	if a != Private && a != PublicRead {
		return fmt.Errorf("%w: unknown access policy %.40q", ErrInvalid, string(a))
	}
	return nil
}

// readyForAccess returns why a call with a container's policy must not begin.
func readyForAccess(ctx context.Context, container string, a Access) error {
	bad := CheckContainer(container)
	if bad == nil {
		bad = a.Check()
	}
	return ready(ctx, bad)
}
