package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
)

const (
	// oldestDelegation is the first version in which the Queue service has user delegation keys.
	oldestDelegation = "2026-02-06"

	// maxDelegation is the longest validity of a user delegation key, from now (Get User
	// Delegation Key).
	maxDelegation = 7 * 24 * time.Hour
)

// getDelegationKey responds to Get User Delegation Key with a key for signing shared access
// signatures. Nothing is stored: the key is a function of the account's key and of fields that
// signatures repeat.
func (c *call) getDelegationKey() *failure {
	if c.version < oldestDelegation {
		return invalidComp("userdelegationkey")
	}
	if c.claims == nil || !isObjectID(c.claims.Object) || !isObjectID(c.claims.Tenant) {
		return denied("A user delegation key requires a bearer token with the claims oid and tid.")
	}
	var body []byte
	if c.input != nil {
		body = *c.input
	}
	asked, err := queuexml.ParseKeyInfo(body)
	if err != nil {
		return invalidDocument(err)
	}
	now := time.Now()
	expiry, ok := parseTime(asked.Expiry)
	if !ok || !expiry.After(now) || expiry.After(now.Add(maxDelegation)) {
		return invalidValue("Expiry", asked.Expiry, "It must be an ISO 8601 time in UTC, within seven days from now.")
	}
	start := now
	if asked.Start != "" {
		if start, ok = parseTime(asked.Start); !ok || !start.Before(expiry) || start.Before(expiry.Add(-maxDelegation-maxSkew)) {
			return invalidValue("Start", asked.Start, "It must be an ISO 8601 time in UTC, at most seven days before the expiry.")
		}
	}
	if asked.DelegatedTenant != "" && !isObjectID(asked.DelegatedTenant) {
		return invalidValue("DelegatedUserTid", asked.DelegatedTenant, "It must be the identifier of a tenant.")
	}
	key := signature{keyObject: c.claims.Object, keyTenant: c.claims.Tenant, keyStart: formatTime(start), keyExpiry: formatTime(expiry),
		keyService: "q", keyVersion: c.version, userTenant: asked.DelegatedTenant}
	return c.document(http.StatusOK, queuexml.AppendDelegationKey(c.responseBuffer(), queuexml.DelegationKey{
		Object: key.keyObject, Tenant: key.keyTenant, Start: key.keyStart, Expiry: key.keyExpiry, Service: key.keyService, Version: key.keyVersion,
		DelegatedTenant: key.userTenant, Value: base64.StdEncoding.EncodeToString(c.accountState.delegated(key))}))
}

// isObjectID reports whether a text can identify a user or a tenant. In Azure it is a GUID; here
// it must not contain a line break, which would add a line to the string to sign.
func isObjectID(text string) bool { return isVisibleASCII(text) && len(text) <= 64 }

// delegated returns the user delegation key with which a signature claims to be made. It is
// derived from a separate key, so that nothing signed with it is valid for checks with the
// account's key.
func (a *accountState) delegated(s signature) []byte {
	own := hmac.New(sha256.New, a.key)
	own.Write([]byte("millrace user delegation keys"))
	h := hmac.New(sha256.New, own.Sum(nil))
	h.Write([]byte(strings.Join([]string{s.keyObject, s.keyTenant, s.keyStart, s.keyExpiry, s.keyService, s.keyVersion, s.userTenant}, "\n")))
	return h.Sum(nil)
}

// checkDelegationSAS checks the signature of a user delegation SAS (Create a user delegation
// SAS), its key, and the user it is bound to.
func (c *call) checkDelegationSAS(s signature, token string) *failure {
	if s.version < oldestDelegation {
		return denied("The Queue service supports user delegation SAS from sv " + oldestDelegation + " on.")
	}
	h := hmac.New(sha256.New, c.accountState.delegated(s))
	h.Write([]byte(c.delegationText(s)))
	if !hmac.Equal(h.Sum(nil), s.given) {
		return errSignature
	}
	if s.permissions == "" || s.expiry == "" || s.keyService != "q" {
		return denied("A user delegation SAS of a queue must have sp, se, and the sks q.")
	}
	if f := checkInterval(s.keyStart, s.keyExpiry); f != nil {
		return f
	}
	if s.userObject == "" {
		return nil
	}
	parsed, f := c.authenticateToken(token)
	if f != nil {
		return f
	}
	if parsed.Object != s.userObject || s.userTenant != "" && parsed.Tenant != s.userTenant {
		return denied("The SAS is bound to another user than that of the token.")
	}
	return nil
}

// delegationText returns the string to sign of a user delegation SAS.
func (c *call) delegationText(s signature) string {
	return strings.Join([]string{s.permissions, s.start, s.expiry, c.canonicalName(),
		s.keyObject, s.keyTenant, s.keyStart, s.keyExpiry, s.keyService, s.keyVersion, s.userTenant, s.userObject,
		s.addresses, s.protocols, s.version}, "\n")
}
