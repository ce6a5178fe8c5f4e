package codec

import "errors"

// Errors with which the body of a claim, see [Claims], is not opened, whatever stores the bodies.
// With any other error it cannot be read for now.
var (
	// ErrClaimGone means that the body is not where the claim says, and will not come back by
	// itself.
	ErrClaimGone = errors.New("the body that the message refers to is gone")

	// ErrClaimSettled means that a message with this claim was deleted after its job had
	// succeeded. Another message with the claim is a duplicate of it.
	ErrClaimSettled = errors.New("the job was done by another message with the same body")

	// ErrClaimInvalid means that the claim is broken, or that the body is not what it says.
	ErrClaimInvalid = errors.New("invalid claim")
)
