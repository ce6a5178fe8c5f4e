package shipping

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// State is how far a batch has come.
type State string

// The states of a batch.
const (
	Receiving State = "receiving" // pieces are missing
	Received  State = "received"  // all pieces are there
	Reported  State = "reported"  // it is in the books
)

// Status is what has arrived of a batch.
type Status struct {
	State    State  `json:"state"`
	Manifest string `json:"manifest"`          // the SHA-256 of the manifest, in hexadecimal digits
	Missing  []int  `json:"missing,omitempty"` // numbers of pieces, ascending
}

// check fails if s is no status of a batch with that many pieces. A client must not believe everything.
func (s *Status) check(pieces int) error {
	if s.State != Receiving && s.State != Received && s.State != Reported {
		return fmt.Errorf("the state %.40q is unknown", s.State)
	}
	if (s.State == Receiving) != (len(s.Missing) > 0) {
		return fmt.Errorf("the state is %s with %d missing pieces", s.State, len(s.Missing))
	}
	last := -1
	for _, n := range s.Missing {
		if n <= last || n >= pieces {
			return fmt.Errorf("piece %d of %d is said to be missing", n, pieces)
		}
		last = n
	}
	return nil
}

const (
	versionHeader = "Shipping-Version" // of every response: it is no other server's
	version       = "1"
	digestHeader  = "Content-Digest" // RFC 9530; a manifest is stored once, so it must not be a damaged one
)

// contentDigest returns the value of Content-Digest for a SHA-256 in hexadecimal digits.
func contentDigest(digest string) string {
	sum, _ := hex.DecodeString(digest) // ours
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":"
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
