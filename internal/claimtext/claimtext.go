// Package claimtext is what a message carries instead of a body that package claimcheck stores.
package claimtext

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
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

// Of returns the claim of a body in a blob.
func Of(ref blob.Ref, body []byte) Claim {
	return Claim{ref, int64(len(body)), sha256.Sum256(body)}
}

// String returns the text of the claim, which [Parse] parses.
func (c Claim) String() string {
	return fmt.Sprintf("%v?size=%d&sha256=%x", c.Ref, c.Size, c.SHA256)
}

// Parse parses the text of a claim. It says nothing of whether the body exists, or may be read:
// claimcheck refuses more. A parameter
// that this release does not know is [codec.ErrNewer], anything else that is wrong
// [envelope.ErrClaimInvalid]; Ref is set if that much could be read.
func Parse(text string) (Claim, error) {
	address, query, _ := strings.Cut(text, "?")
	ref, err := blob.Parse(address)
	if err != nil {
		return Claim{}, fmt.Errorf("%w: %w", envelope.ErrClaimInvalid, err)
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return Claim{Ref: ref}, fmt.Errorf("%w: %w", envelope.ErrClaimInvalid, err)
	}
	for name := range parameters {
		if name != "size" && name != "sha256" {
			return Claim{Ref: ref}, fmt.Errorf("%w: the claim has the parameter %.20q", codec.ErrNewer, name)
		}
	}
	size, err := strconv.ParseUint(parameters.Get("size"), 10, 63)
	sum, notHex := hex.DecodeString(parameters.Get("sha256"))
	if err != nil || notHex != nil || len(sum) != sha256.Size {
		return Claim{Ref: ref}, fmt.Errorf("%w: it has no size and SHA-256 of the body: %.250q", envelope.ErrClaimInvalid, text)
	}
	return Claim{ref, int64(size), [sha256.Size]byte(sum)}, nil
}
