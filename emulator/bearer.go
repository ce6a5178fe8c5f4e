package emulator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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
