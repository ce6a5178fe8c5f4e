package emulator

import (
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

// The supported versions of shared access signatures. From the second one on, the string to
// sign of an account SAS has one more line. The last is that of the newest released client
// (azblob v1.8.1): clients sign with newer versions than their protocol's, and the string to
// sign has not changed since.
const (
	oldestSAS          = "2015-04-05"
	encryptionScopeSAS = "2020-12-06"
	newestSAS          = "2026-12-06"
)

// signature is a shared access signature: its decoded parameters, "" if omitted.
type signature struct {
	version     string // sv
	services    string // ss, of an account SAS
	resources   string // srt, of an account SAS
	scope       string // ses, of an account SAS
	permissions string // sp
	start       string // st
	expiry      string // se
	addresses   string // sip
	protocols   string // spr
	identifier  string // si, of a service SAS
	given       []byte // sig

	// Those of a user delegation SAS.
	keyObject, keyTenant, keyStart, keyExpiry, keyService, keyVersion string // skoid, sktid, skt, ske, sks, skv
	userTenant, userObject                                            string // skdutid, sduoid
}

// authenticateSAS refuses a request that its shared access signature does not allow, with
// status 403: an invalid, expired or wrong signature with the code AuthenticationFailed, a valid one
// that does not allow the request with AuthorizationFailure or one of the Authorization…Mismatch
// codes. token is that of the user to whom the signature is bound, or "".
func (c *call) authenticateSAS(token string) *failure {
	s, f := c.signature()
	if f != nil {
		return f
	}
	c.credential = string(s.given)
	account := s.services != "" || s.resources != ""
	switch {
	case account && !c.accountState.signed([]byte(c.accountText(s)), s.given):
		return errSignature
	case account && (s.permissions == "" || s.expiry == ""):
		return denied("An account SAS must have sp and se.")
	case account:
	case s.keyObject != "":
		f = c.checkDelegationSAS(s, token)
	default:
		f = c.checkServiceSAS(&s)
	}
	if f != nil {
		return f
	}
	if f := checkInterval(s.start, s.expiry); f != nil {
		return f
	}
	if f := c.checkOrigin(s); f != nil {
		return f
	}
	need := c.verb.needs
	if !account {
		switch {
		case need.queue == "": // no service SAS allows it
			return errAuthorizationFailure
		case !strings.ContainsAny(s.permissions, need.queue):
			return errPermissionMismatch
		}
		return nil
	}
	switch {
	case !strings.Contains(s.services, "q"):
		return errServiceMismatch
	case !strings.Contains(s.resources, need.resource):
		return errResourceTypeMismatch
	case !strings.ContainsAny(s.permissions, need.account):
		return errPermissionMismatch
	}
	return nil
}

// signature parses the parameters of a shared access signature.
func (c *call) signature() (s signature, f *failure) {
	given := ""
	for _, p := range []struct {
		name string
		into *string
	}{
		{"sv", &s.version}, {"ss", &s.services}, {"srt", &s.resources}, {"ses", &s.scope}, {"sp", &s.permissions},
		{"st", &s.start}, {"se", &s.expiry}, {"sip", &s.addresses}, {"spr", &s.protocols}, {"si", &s.identifier},
		{"skoid", &s.keyObject}, {"sktid", &s.keyTenant}, {"skt", &s.keyStart}, {"ske", &s.keyExpiry}, {"sks", &s.keyService},
		{"skv", &s.keyVersion}, {"skdutid", &s.userTenant}, {"sduoid", &s.userObject}, {"sig", &given},
	} {
		if *p.into, _, f = c.query.get(p.name); f != nil {
			return s, f
		}
		if strings.Contains(*p.into, "\n") { // it would add a line to the string to sign
			return s, denied("The parameter " + p.name + " has a line feed in it.")
		}
	}
	if strings.Contains(c.queue, "\n") { // the name is signed too
		return s, denied("The queue has a line feed in its name.")
	}
	if !isVersion(s.version) || s.version < oldestSAS || s.version > newestSAS {
		return s, denied("The parameter sv is not a version from " + oldestSAS + " to " + newestSAS + ".")
	}
	var err error
	if s.given, err = base64.StdEncoding.DecodeString(given); err != nil {
		return s, denied("The parameter sig is not in Base64.")
	}
	return s, nil
}

var errSignature = denied("The signature does not match: check the key that signed, and that no parameter was changed.")

// accountText returns the string to sign of an account SAS.
func (c *call) accountText(s signature) string {
	lines := []string{c.account, s.permissions, s.services, s.resources, s.start, s.expiry, s.addresses, s.protocols, s.version}
	if s.version >= encryptionScopeSAS {
		lines = append(lines, s.scope)
	}
	return strings.Join(append(lines, ""), "\n")
}

// checkServiceSAS checks the signature of a service SAS, and applies its stored access policy.
func (c *call) checkServiceSAS(s *signature) *failure {
	if !c.accountState.signed([]byte(c.serviceText(*s)), s.given) {
		return errSignature
	}
	if s.identifier != "" {
		if f := c.applyPolicy(s); f != nil {
			return f
		}
	}
	if s.permissions == "" || s.expiry == "" {
		return denied("Neither the SAS nor a stored access policy of the queue has both permissions and an expiry.")
	}
	return nil
}

// serviceText returns the string to sign of a service SAS.
func (c *call) serviceText(s signature) string {
	return strings.Join([]string{s.permissions, s.start, s.expiry, c.canonicalName(), s.identifier, s.addresses, s.protocols, s.version}, "\n")
}

// canonicalName returns the canonicalized resource of the queue in a SAS, whatever the style of
// the address.
func (c *call) canonicalName() string { return "/queue/" + c.account + "/" + c.queue }

// applyPolicy takes fields from the stored access policy that the signature names. A field in
// both is refused: neither may extend the other.
func (c *call) applyPolicy(s *signature) *failure {
	stored, err := c.target().AccessPolicy(c.request.Context())
	switch {
	case errors.Is(err, queue.ErrQueueMissing), errors.Is(err, queue.ErrInvalid): // the queue does not exist either
		return denied("The stored access policy does not exist.")
	case err != nil:
		return toFailure(err)
	}
	policies, err := queuexml.ParsePolicies(stored)
	if stored != nil && err != nil {
		return errInternal
	}
	for _, p := range policies {
		if p.ID != s.identifier {
			continue
		}
		for _, field := range []struct {
			into *string
			from string
		}{{&s.permissions, p.Permission}, {&s.start, p.Start}, {&s.expiry, p.Expiry}} {
			switch {
			case field.from == "":
			case *field.into != "":
				return denied("The SAS and its stored access policy both have the same field.")
			default:
				*field.into = field.from
			}
		}
		return nil
	}
	return denied("The stored access policy does not exist.")
}

// checkInterval refuses what is not valid yet or has expired. Like the service it allows no clock
// skew.
func checkInterval(start, expiry string) *failure {
	now := time.Now()
	end, ok := parseTime(expiry)
	if !ok {
		return denied("The expiry is not an ISO 8601 time in UTC, such as 2006-01-02T15:04:05Z.")
	}
	if !now.Before(end) {
		return denied("The SAS has expired.")
	}
	if start == "" {
		return nil
	}
	begin, ok := parseTime(start)
	if !ok {
		return denied("The start is not an ISO 8601 time in UTC, such as 2006-01-02T15:04:05Z.")
	}
	if now.Before(begin) {
		return denied("The SAS is not valid yet.")
	}
	return nil
}

// checkOrigin refuses a request from an address or over a protocol that the signature does not
// allow.
func (c *call) checkOrigin(s signature) *failure {
	if s.addresses != "" {
		in, ok := inRange(c.remote(), s.addresses)
		if !ok {
			return denied("The parameter sip is neither an address nor a range such as 168.1.5.60-168.1.5.70.")
		}
		if !in {
			return errSourceIPMismatch
		}
	}
	switch s.protocols {
	case "", "https,http":
	case "https":
		if !c.secure() {
			return errProtocolMismatch
		}
	default:
		return denied("The parameter spr is neither https nor https,http.")
	}
	return nil
}

// remote returns the client's address; in process, that of this machine.
func (c *call) remote() netip.Addr {
	if at, err := netip.ParseAddrPort(c.request.RemoteAddr); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// inRange reports whether an address is in a range, including both ends, or equal to a single
// address. ok is false if the range is invalid.
func inRange(at netip.Addr, addresses string) (in, ok bool) {
	first, last, isRange := strings.Cut(addresses, "-")
	if !isRange {
		last = first
	}
	from, err := netip.ParseAddr(first)
	if err != nil {
		return false, false
	}
	to, err := netip.ParseAddr(last)
	if err != nil {
		return false, false
	}
	from, to = from.Unmap(), to.Unmap()
	return at.BitLen() == from.BitLen() && at.Compare(from) >= 0 && at.Compare(to) <= 0, from.BitLen() == to.BitLen()
}

// timeFormats are the formats of times in signatures, access policies and key requests (Create a
// service SAS, "Specify the signature validity interval"). Parsing accepts fractions of a second
// too.
var timeFormats = [...]string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02"}

// parseTime parses an ISO 8601 time in a format that the service accepts.
func parseTime(text string) (time.Time, bool) {
	if len(text) > len("2006-01-02T15:04:05.0000000+07:00") {
		return time.Time{}, false
	}
	for _, format := range timeFormats {
		if t, err := time.Parse(format, text); err == nil {
			t = t.UTC() // may change the year
			return t, t.Year() >= 1 && t.Year() <= 9999
		}
	}
	return time.Time{}, false
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
