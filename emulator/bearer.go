package emulator

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
)

// oldestBearer is the first version of the Queue service with bearer tokens.
const oldestBearer = "2017-11-09"

// claims are the claims of a token that are checked.
type claims struct {
	Issuer    string  `json:"iss"`
	Audience  string  `json:"aud"`
	NotBefore float64 `json:"nbf"` // seconds since 1970
	Expiry    float64 `json:"exp"` // likewise
	Object    string  `json:"oid"` // user
	Tenant    string  `json:"tid"`
}

// authenticateToken refuses a request with an invalid token. It checks form, issuer, audience and
// times. It cannot check the signature, because Microsoft Entra ID has the keys, and there are no
// roles: a token is an identity that anyone may claim, and allows everything. Like the
// development account's key it protects nothing, so a public server refuses it.
func (c *call) authenticateToken(token string) (claims, *failure) {
	if !c.secure() {
		return claims{}, denied("Authentication scheme Bearer is not allowed with HTTP: use TLS.")
	}
	if c.server.public {
		return claims{}, denied("Authentication scheme Bearer is not accepted by a public emulator, which cannot check who signed a token.")
	}
	if c.version < oldestBearer {
		return claims{}, denied("Authentication scheme Bearer is not supported in this version.")
	}
	parsed, ok := parseToken(strings.TrimSpace(token))
	if !ok {
		return claims{}, c.badToken("The token is not a JSON Web Token.")
	}
	switch now := time.Now(); {
	case parsed.NotBefore == 0 || parsed.Expiry == 0:
		return claims{}, c.badToken("Lifetime validation failed. The token has no nbf or no exp.")
	case now.Add(-maxTokenSkew).Unix() >= int64(parsed.Expiry):
		return claims{}, c.badToken("Lifetime validation failed. The token is expired.")
	case now.Add(maxTokenSkew).Unix() < int64(parsed.NotBefore):
		return claims{}, c.badToken("Lifetime validation failed. The token is not yet valid.")
	case !isIssuer(parsed.Issuer):
		return claims{}, c.badToken("Issuer validation failed. The issuer is not one of Microsoft Entra ID.")
	case !isAudience(parsed.Audience, c.account):
		return claims{}, c.badToken("Audience validation failed. The audience is neither Azure Storage nor the queues of this account.")
	}
	return parsed, nil
}

// maxTokenSkew is the tolerated difference between the token issuer's clock and ours, as in
// Microsoft's libraries.
const maxTokenSkew = 5 * time.Minute

// maxToken limits a token's length in bytes; those of Entra ID have up to about 4 KiB.
const maxToken = 16 << 10

// parseToken parses a JSON Web Token (RFC 7519) in compact form: header, claims and signature,
// whatever the algorithm. The signature may be empty.
func parseToken(token string) (claims, bool) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return claims{}, false
	}
	parts := strings.Split(token, ".")
	var header struct {
		Algorithm string `json:"alg"`
	}
	var parsed claims
	if !decodePart(parts[0], &header) || header.Algorithm == "" || !decodePart(parts[1], &parsed) {
		return claims{}, false
	}
	_, err := base64.RawURLEncoding.DecodeString(parts[2])
	const farFuture = 1 << 40 // keeps what is compared within int64
	inRange := parsed.NotBefore >= 0 && parsed.NotBefore < farFuture && parsed.Expiry >= 0 && parsed.Expiry < farFuture
	return parsed, err == nil && inRange
}

func decodePart(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && bytes.HasPrefix(text, []byte("{")) && json.Unmarshal(text, into) == nil
}

// issuers are the issuers of Microsoft Entra ID around the tenant: the public cloud, the national
// clouds, and Microsoft's test environment, which tokens for emulators often name (Access tokens
// in the Microsoft identity platform; National clouds).
var issuers = []struct{ front, back string }{
	{"https://sts.windows.net/", "/"},
	{"https://sts.chinacloudapi.cn/", "/"},
	{"https://sts.microsoftonline.de/", "/"},
	{"https://sts.windows-ppe.net/", "/"},
	{"https://login.microsoftonline.com/", "/v2.0"},
	{"https://login.microsoftonline.us/", "/v2.0"},
	{"https://login.partner.microsoftonline.cn/", "/v2.0"},
}

// isIssuer reports whether the issuer is a tenant of Microsoft Entra ID, in version 1 or 2. Any
// tenant is accepted, because an emulator has none of its own.
func isIssuer(issuer string) bool {
	for _, i := range issuers {
		tenant, ok := strings.CutPrefix(issuer, i.front)
		if !ok {
			continue
		}
		tenant, ok = strings.CutSuffix(strings.TrimLeft(tenant, "/"), i.back)
		return ok && tenant != "" && !strings.ContainsAny(tenant, "/?#")
	}
	return false
}

// storageResource is the application id of Azure Storage.
const storageResource = "e406a681-f3d4-42a8-90b6-c2b029497af1"

// clouds are the domain suffixes of Azure Storage in the public and national clouds.
var clouds = []string{"core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de"}

// isAudience reports whether a token is for Azure Storage, or for this account's queues in any
// cloud.
func isAudience(audience, account string) bool {
	audience = strings.TrimSuffix(audience, "/")
	if audience == "https://storage.azure.com" || audience == storageResource {
		return true
	}
	cloud, ok := strings.CutPrefix(audience, "https://"+account+".queue.")
	return ok && slices.Contains(clouds, cloud)
}

// badToken responds to an invalid token with a challenge, or in versions without challenges with
// a plain 403.
func (c *call) badToken(detail string) *failure {
	if c.version < challengeVersion {
		return denied(detail)
	}
	return errInvalidToken.with(queuexml.Detail{Name: "AuthenticationErrorDetail", Value: detail})
}

// challenge tells a client where to get a token (RFC 6750).
const challenge = "Bearer authorization_uri=https://login.microsoftonline.com/common/oauth2/authorize resource_id=https://storage.azure.com"

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
	asked, err := queuexml.ParseKeyInfo(c.content())
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
