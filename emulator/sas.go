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

// The versions of shared access signatures that are served. Since the second of
// them, an account SAS has a line more to sign. The last is that of the newest
// released client of Azure Storage (azblob v1.8.1): clients sign in versions ahead
// of the protocol that they speak, and what is signed has not changed since.
const (
	oldestSAS          = "2015-04-05"
	encryptionScopeSAS = "2020-12-06"
	newestSAS          = "2026-12-06"
)

// signature is a shared access signature: the parameters of a request as they
// were given, decoded. A field that was not given is "".
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

// authenticateSAS refuses a request whose shared access signature does not allow
// it. The token is that of a user to whom the signature is bound, if there is one.
func (c *call) authenticateSAS(token string) *failure {
	s, f := c.signature()
	if f != nil {
		return f
	}
	account := s.services != "" || s.resources != ""
	switch {
	case account:
		f = c.checkAccountSAS(s)
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
	need := c.operation.permission()
	if !account {
		switch {
		case need.queue == "": // whatever the letters: no SAS of a queue could do it
			return errAuthorizationFailure
		case !strings.Contains(s.permissions, need.queue):
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

// signature reads the parameters of a shared access signature.
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
		if strings.Contains(*p.into, "\n") { // it would look like another line to sign
			return s, denied("The parameter " + p.name + " has a line feed in it.")
		}
	}
	if strings.Contains(c.queue, "\n") { // which is signed too
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

// checkAccountSAS checks the signature of an account SAS.
func (c *call) checkAccountSAS(s signature) *failure {
	if !c.accountState.signed([]byte(c.accountText(s)), s.given) {
		return errSignature
	}
	if s.permissions == "" || s.expiry == "" {
		return denied("An account SAS has sp and se.")
	}
	return nil
}

// accountText is the string to sign of an account SAS.
func (c *call) accountText(s signature) string {
	lines := []string{c.account, s.permissions, s.services, s.resources, s.start, s.expiry, s.addresses, s.protocols, s.version}
	if s.version >= encryptionScopeSAS {
		lines = append(lines, s.scope)
	}
	return strings.Join(append(lines, ""), "\n")
}

// checkServiceSAS checks the signature of a SAS for one queue, and takes what it
// leaves to a stored access policy from there.
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

// serviceText is the string to sign of a service SAS.
func (c *call) serviceText(s signature) string {
	return strings.Join([]string{s.permissions, s.start, s.expiry, c.canonicalName(), s.identifier, s.addresses, s.protocols, s.version}, "\n")
}

// canonicalName is the queue as shared access signatures name it, whatever the
// style of the address.
func (c *call) canonicalName() string { return "/queue/" + c.account + "/" + c.queue }

// applyPolicy takes the fields of the stored access policy that the signature
// names. One that both have is refused: neither may widen the other.
func (c *call) applyPolicy(s *signature) *failure {
	stored, err := c.target().AccessPolicy(c.request.Context())
	switch {
	case errors.Is(err, queue.ErrQueueMissing), errors.Is(err, queue.ErrInvalid): // nor is the queue
		return denied("The stored access policy is not there.")
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
	return denied("The stored access policy is not there.")
}

// checkInterval refuses what is not valid yet or any more. There is no window
// for clocks that differ: the service has none here either.
func checkInterval(start, expiry string) *failure {
	now := time.Now()
	end, ok := parseTime(expiry)
	if !ok {
		return denied("The expiry is no time of ISO 8601 in UTC, such as 2006-01-02T15:04:05Z.")
	}
	if !now.Before(end) {
		return denied("The SAS has expired.")
	}
	if start == "" {
		return nil
	}
	begin, ok := parseTime(start)
	if !ok {
		return denied("The start is no time of ISO 8601 in UTC, such as 2006-01-02T15:04:05Z.")
	}
	if now.Before(begin) {
		return denied("The SAS is not valid yet.")
	}
	return nil
}

// checkOrigin refuses a request that comes from another address or over another
// protocol than the signature allows.
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

// remote is where the request comes from. In process it is this machine.
func (c *call) remote() netip.Addr {
	if at, err := netip.ParseAddrPort(c.request.RemoteAddr); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// within reports whether an address is in a range, both ends included, or is the
// one that is given. ok is false when the range is none.
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
