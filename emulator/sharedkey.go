package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxSkew is how old or how early the date of a request may be (Authorize with
// Shared Key, "Specifying the Date header").
const maxSkew = 15 * time.Minute

// usualText is how many bytes are signed, hardly ever more.
const typicalSignedText = 512

// account is who may sign requests.
type accountState struct {
	key    []byte    // never changes
	hashes sync.Pool // of hash.Hash keyed with the key

	requests *tokenBucket // how many are left; nil without a limit. Set before the server serves
}

func newAccount(key []byte) *accountState {
	a := &accountState{key: slices.Clone(key)}
	a.hashes.New = func() any { return hmac.New(sha256.New, a.key) }
	return a
}

// authenticateKey refuses a request that is not signed with the key of the
// account it addresses. The credentials are the account and the signature.
func (c *call) authenticateKey(credentials string, scheme signingScheme) *failure {
	name, encoded, ok := strings.Cut(strings.TrimSpace(credentials), ":")
	if !ok {
		return errInvalidAuthentication
	}
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return errInvalidAuthentication
	}
	if name != c.account {
		return denied("The account that signed is not the account in the address.")
	}
	if f := c.server.checkDate(c.request.Header); f != nil {
		return f
	}
	if f := scheme.check(c); f != nil {
		return f
	}
	if c.signedWith(scheme, c.resource, signature) {
		return nil
	}
	// The documents want the address of the primary location to be signed,
	// clients sign what they call. Both mean the same.
	if primary, ok := c.primaryResource(); ok && c.signedWith(scheme, primary, signature) {
		return nil
	}
	return denied("The signature does not match: check the account key.")
}

// signedWith reports whether a signature is that of the request with this path, in one of the
// two orders of its headers.
func (c *call) signedWith(scheme signingScheme, resource string, signature []byte) bool {
	c.collated = false
	c.signedText = scheme.appendText(c, c.signedText[:0], resource)
	if c.accountState.signed(c.signedText, signature) {
		return true
	}
	if !collates(c.request.Header) {
		return false
	}
	c.collated = true
	c.signedText = scheme.appendText(c, c.signedText[:0], resource)
	return c.accountState.signed(c.signedText, signature)
}

// signed compares in constant time, so that a signature cannot be guessed byte
// by byte.
func (a *accountState) signed(text, signature []byte) bool {
	h := a.hashes.Get().(hash.Hash)
	defer a.hashes.Put(h)
	h.Reset()
	h.Write(text)
	var sum [sha256.Size]byte
	return hmac.Equal(h.Sum(sum[:0]), signature)
}

// dated is a date as it was written, and what it means.
type parsedDate struct {
	text string
	at   time.Time
}

// checkDate keeps the last date that it read: clients that are busy send the same one for
// a second.
func (s *Server) checkDate(h http.Header) *failure {
	// An x-ms-date that is there takes the place of Date in what is signed, even when it is
	// empty: nothing else may be believed then.
	value := firstValue(h, "Date")
	if dates := h["X-Ms-Date"]; len(dates) > 0 {
		if value = dates[0]; value == "" {
			return denied("The header x-ms-date is empty.")
		}
	}
	if value == "" {
		return denied("The request has no x-ms-date and no Date.")
	}
	last := s.lastParsedDate.Load()
	if last == nil || last.text != value {
		at, err := http.ParseTime(value)
		if err != nil {
			return denied("The date of the request is not in the format of RFC 1123.")
		}
		last = &parsedDate{strings.Clone(value), at}
		s.lastParsedDate.Store(last)
	}
	if skew := time.Since(last.at); skew > maxSkew || skew < -maxSkew {
		return denied("The date of the request is more than 15 minutes off: check the clock.")
	}
	return nil
}
