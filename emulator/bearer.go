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

// oldestBearer is the first version of the Queue service that takes tokens.
const oldestBearer = "2017-11-09"

// claims are what a token says, as far as it matters here.
type claims struct {
	Issuer    string  `json:"iss"`
	Audience  string  `json:"aud"`
	NotBefore float64 `json:"nbf"` // seconds since 1970
	Expiry    float64 `json:"exp"` // likewise
	Object    string  `json:"oid"` // who
	Tenant    string  `json:"tid"`
}

// authenticateToken refuses a request whose token is no good. It checks all that
// a local server can: form, issuer, audience and times. The keys that sign
// tokens are with Microsoft Entra ID, so that the signature is not checked, nor
// are there roles: a token is an identity that anyone may claim, and opens
// everything. It protects nothing, as the development account's key does not, and
// so it is refused where other machines come in.
func (c *call) authenticateToken(token string) (claims, *failure) {
	if !c.secure() {
		return claims{}, denied("Authentication scheme Bearer is not allowed with HTTP: serve over TLS.")
	}
	if c.server.public {
		return claims{}, denied("Authentication scheme Bearer is not taken by a public emulator, which cannot check who signed a token.")
	}
	if c.version < oldestBearer {
		return claims{}, denied("Authentication scheme Bearer is not supported in this version.")
	}
	said, ok := parseToken(strings.TrimSpace(token))
	if !ok {
		return claims{}, c.badToken("The token is not a JSON Web Token.")
	}
	switch now := time.Now(); {
	case said.NotBefore == 0 || said.Expiry == 0:
		return claims{}, c.badToken("Lifetime validation failed. The token has no nbf or no exp.")
	case now.Add(-maxTokenSkew).Unix() >= int64(said.Expiry):
		return claims{}, c.badToken("Lifetime validation failed. The token is expired.")
	case now.Add(maxTokenSkew).Unix() < int64(said.NotBefore):
		return claims{}, c.badToken("Lifetime validation failed. The token is not yet valid.")
	case !isIssuer(said.Issuer):
		return claims{}, c.badToken("Issuer validation failed. The issuer is not one of Microsoft Entra ID.")
	case !isAudience(said.Audience, c.account):
		return claims{}, c.badToken("Audience validation failed. The audience is neither Azure Storage nor the queues of this account.")
	}
	return said, nil
}

// maxTokenSkew is by how much the clocks of who made a token and of ours may
// differ: what Microsoft's own libraries allow.
const maxTokenSkew = 5 * time.Minute

// maxToken bounds the length of tokens; those of Entra ID have up to some 4 KiB.
const maxToken = 16 << 10

// parseToken reads a JSON Web Token (RFC 7519) in its compact form: header,
// claims and signature, whatever the algorithm. The signature may be empty.
func parseToken(token string) (claims, bool) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return claims{}, false
	}
	parts := strings.Split(token, ".")
	var header struct {
		Algorithm string `json:"alg"`
	}
	var said claims
	if !decodePart(parts[0], &header) || header.Algorithm == "" || !decodePart(parts[1], &said) {
		return claims{}, false
	}
	_, err := base64.RawURLEncoding.DecodeString(parts[2])
	const farFuture = 1 << 40 // keeps what is compared within int64
	inRange := said.NotBefore >= 0 && said.NotBefore < farFuture && said.Expiry >= 0 && said.Expiry < farFuture
	return said, err == nil && inRange
}

func decodePart(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && bytes.HasPrefix(text, []byte("{")) && json.Unmarshal(text, into) == nil
}

// issuers are the addresses of Microsoft Entra ID in front of the tenant, of the
// public and the national clouds, and of the one that Microsoft tests with, which
// tokens for emulators often name (Access tokens in the Microsoft identity
// platform; National clouds).
var issuers = []struct{ front, back string }{
	{"https://sts.windows.net/", "/"},
	{"https://sts.chinacloudapi.cn/", "/"},
	{"https://sts.microsoftonline.de/", "/"},
	{"https://sts.windows-ppe.net/", "/"},
	{"https://login.microsoftonline.com/", "/v2.0"},
	{"https://login.microsoftonline.us/", "/v2.0"},
	{"https://login.partner.microsoftonline.cn/", "/v2.0"},
}

// isIssuer reports whether a token comes from a tenant of Microsoft Entra ID, in
// the form of its version 1 or 2. Which tenant does not matter: an emulator has
// none of its own, and whoever makes a token may name any.
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

// storageResource is the application that is Azure Storage, by its identifier.
const storageResource = "e406a681-f3d4-42a8-90b6-c2b029497af1"

// clouds are the ends of the addresses of Azure Storage, in the public and the
// national clouds.
var clouds = []string{"core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de"}

// isAudience reports whether a token is meant for Azure Storage, or for the
// queues of this account in any cloud.
func isAudience(audience, account string) bool {
	audience = strings.TrimSuffix(audience, "/")
	if audience == "https://storage.azure.com" || audience == storageResource {
		return true
	}
	cloud, ok := strings.CutPrefix(audience, "https://"+account+".queue.")
	return ok && slices.Contains(clouds, cloud)
}

// badToken is the answer to a token that is no good: a challenge, or in versions
// that have none the plain refusal.
func (c *call) badToken(detail string) *failure {
	if c.version < challengeVersion {
		return denied(detail)
	}
	return errInvalidToken.with(queuexml.Detail{Name: "AuthenticationErrorDetail", Value: detail})
}

// challenge tells a client where to get a token, and for what (RFC 6750).
const challenge = "Bearer authorization_uri=https://login.microsoftonline.com/common/oauth2/authorize resource_id=https://storage.azure.com"
