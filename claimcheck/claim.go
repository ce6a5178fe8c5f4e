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

// Claim is what a message carries instead of its body: where the body is, and what it is. Its text
// is
//
//	blob://container/bodies/id?size=…&sha256=…
//
// which has at most 195 bytes.
type Claim struct {
	Ref    blob.Ref
	Size   int64             // of the body, in bytes
	SHA256 [sha256.Size]byte // of the body
}

func claimOf(ref blob.Ref, body []byte) Claim {
	return Claim{ref, int64(len(body)), sha256.Sum256(body)}
}

// String returns the text of the claim, which [ParseClaim] parses.
func (c Claim) String() string {
	return fmt.Sprintf("%v?size=%d&sha256=%x", c.Ref, c.Size, c.SHA256)
}

// ParseClaim parses the text of a claim, such as codec.Head.Claim, for a program that shows it. It
// says nothing of whether the body exists, or may be read: [Claims.Open] refuses more. A parameter
// that this release does not know is [codec.ErrNewer], anything else that is wrong
// [codec.ErrClaimInvalid]; Ref is set if that much could be read.
func ParseClaim(text string) (Claim, error) {
	address, query, _ := strings.Cut(text, "?")
	ref, err := blob.Parse(address)
	if err != nil {
		return Claim{}, fmt.Errorf("%w: %w", codec.ErrClaimInvalid, err)
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return Claim{Ref: ref}, fmt.Errorf("%w: %w", codec.ErrClaimInvalid, err)
	}
	for name := range parameters {
		if name != "size" && name != "sha256" {
			return Claim{Ref: ref}, fmt.Errorf("%w: the claim has the parameter %.20q", codec.ErrNewer, name)
		}
	}
	size, err := strconv.ParseUint(parameters.Get("size"), 10, 63)
	sum, notHex := hex.DecodeString(parameters.Get("sha256"))
	if err != nil || notHex != nil || len(sum) != sha256.Size {
		return Claim{Ref: ref}, fmt.Errorf("%w: it has no size and SHA-256 of the body: %.250q", codec.ErrClaimInvalid, text)
	}
	return Claim{ref, int64(size), [sha256.Size]byte(sum)}, nil
}

// parse parses a claim and refuses one of a body that these claims do not keep.
func (c *Claims) parse(text string) (Claim, error) {
	claim, err := ParseClaim(text)
	if claim.Ref != (blob.Ref{}) && (claim.Ref.Container != c.container || !strings.HasPrefix(claim.Ref.Name, folder)) {
		return Claim{}, fmt.Errorf("%w: it refers to %v, and this program opens only what is in %s",
			codec.ErrClaimInvalid, claim.Ref, blob.Ref{Container: c.container, Name: folder})
	}
	return claim, err
}
