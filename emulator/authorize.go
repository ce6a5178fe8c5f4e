package emulator

import (
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
)

// authorize refuses a request that is not authorized. Failures never contain a signature or a
// token, nor the string to sign, which contains the receipt.
func (c *call) authorize() *failure {
	if f := c.authenticate(); f != nil {
		return f
	}
	if c.secondary && !c.operation.isRead() {
		return errReadOnly
	}
	return nil
}

func (c *call) authenticate() *failure {
	given := firstValue(c.request.Header, "Authorization")
	if c.accountState == nil && (given != "" || c.query.has("sig")) {
		// The service has no address for an unknown account. Azurite responds like this.
		return errResourceNotFound.with(queuexml.Detail{Name: "Reason", Value: "The account is not known to this emulator."})
	}
	if given == "" {
		if c.query.has("sig") {
			return c.authenticateSAS("")
		}
		return c.anonymous()
	}
	scheme, credentials, ok := strings.Cut(given, " ")
	if !ok {
		return errInvalidAuthentication
	}
	switch {
	case scheme == "SharedKey":
		c.credential = "key"
		return c.authenticateKey(credentials, sharedKey)
	case scheme == "SharedKeyLite":
		c.credential = "key"
		return c.authenticateKey(credentials, sharedKeyLite)
	case strings.EqualFold(scheme, "Bearer"):
		if c.query.has("sig") {
			return c.authenticateSAS(credentials)
		}
		c.credential = "token"
		parsed, f := c.authenticateToken(credentials)
		c.claims = &parsed
		if f == nil && (c.operation == GetQueueACL || c.operation == SetQueueACL) {
			return denied("Bearer tokens are not for access policies: no built-in queue role allows getAcl or setAcl.")
		}
		return f
	}
	return denied("The schemes are SharedKey, SharedKeyLite and Bearer.")
}

// challengeVersion is the first version in which the service tells clients without credentials,
// or with an invalid token, where to get a token (Authorize with Microsoft Entra ID, "Bearer
// challenge"). Before, it responded as if the resource did not exist.
const challengeVersion = "2019-12-12"

// anonymous refuses a request without credentials: there are no public queues.
func (c *call) anonymous() *failure {
	if c.version < challengeVersion {
		return errResourceNotFound
	}
	return errNoAuthentication
}

func denied(detail string) *failure {
	return errAuthenticationFailed.with(queuexml.Detail{Name: "AuthenticationErrorDetail", Value: detail})
}
