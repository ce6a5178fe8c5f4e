package claimcheck

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
)

// reference is a claim: where the body is, and what it is. Its text is
//
//	blob://container/bodies/id?size=…&sha256=…
//
// which has at most 195 bytes.
type reference struct {
	ref  blob.Ref
	size int64
	sum  [sha256.Size]byte
}

// referenceTo returns the claim of a body.
func referenceTo(ref blob.Ref, body []byte) reference {
	return reference{ref, int64(len(body)), sha256.Sum256(body)}
}

// String returns the text of the claim.
func (r reference) String() string {
	return fmt.Sprintf("%v?size=%d&sha256=%x", r.ref, r.size, r.sum)
}

// parse parses the text of a claim. A parameter that this release does not know is
// [codec.ErrNewer], anything else that is wrong [codec.ErrClaimInvalid].
func (c *Claims) parse(claim string) (r reference, err error) {
	address, query, _ := strings.Cut(claim, "?")
	if r.ref, err = blob.Parse(address); err != nil {
		return r, fmt.Errorf("%w: %w", codec.ErrClaimInvalid, err)
	}
	if r.ref.Container != c.container || !strings.HasPrefix(r.ref.Name, folder) {
		return r, fmt.Errorf("%w: it refers to %v, and this program opens only what is in %s",
			codec.ErrClaimInvalid, r.ref, blob.Ref{Container: c.container, Name: folder})
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return r, fmt.Errorf("%w: %w", codec.ErrClaimInvalid, err)
	}
	for name := range parameters {
		if name != "size" && name != "sha256" {
			return r, fmt.Errorf("%w: the claim has the parameter %.20q", codec.ErrNewer, name)
		}
	}
	size, err := strconv.ParseUint(parameters.Get("size"), 10, 63)
	sum, notHex := hex.DecodeString(parameters.Get("sha256"))
	if err != nil || notHex != nil || len(sum) != len(r.sum) {
		return r, fmt.Errorf("%w: it has no size and SHA-256 of the body: %.250q", codec.ErrClaimInvalid, claim)
	}
	r.size = int64(size)
	copy(r.sum[:], sum)
	return r, nil
}
