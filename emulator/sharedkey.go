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

// maxSkew is the largest difference between a request's date and now (Authorize with Shared Key,
// "Specifying the Date header").
const maxSkew = 15 * time.Minute

// typicalSignedText is the usual length of the string to sign, in bytes.
const typicalSignedText = 512

// accountState is an account's key and request limit.
type accountState struct {
	key    []byte    // never changes
	hashes sync.Pool // hash.Hash keyed with the key

	requests *tokenBucket // request limit; nil for none. Set before the server serves
}

func newAccount(key []byte) *accountState {
	a := &accountState{key: slices.Clone(key)}
	a.hashes.New = func() any { return hmac.New(sha256.New, a.key) }
	return a
}

// authenticateKey refuses a request that is not signed with the account's key. credentials are
// the account and the signature.
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
	// Documented is the address of the primary location, but clients sign the
	// address that they call. Both mean the same.
	if primary, ok := c.primaryResource(); ok && c.signedWith(scheme, primary, signature) {
		return nil
	}
	return denied("The signature does not match: check the account key.")
}

// signedWith reports whether a signature is that of the request with this path, in either order
// of its headers.
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

// signed compares in constant time, so that a signature cannot be guessed byte by byte.
func (a *accountState) signed(text, signature []byte) bool {
	h := a.hashes.Get().(hash.Hash)
	defer a.hashes.Put(h)
	h.Reset()
	h.Write(text)
	var sum [sha256.Size]byte
	return hmac.Equal(h.Sum(sum[:0]), signature)
}

// parsedDate is a date header and its parsed value.
type parsedDate struct {
	text string
	at   time.Time
}

// checkDate checks the request's date. It caches the last one: busy clients send the same date
// for a second.
func (s *Server) checkDate(h http.Header) *failure {
	// An x-ms-date replaces Date in the string to sign, even if it is empty, so only it
	// is authentic.
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
