package main

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"

	"github.com/millrace/millrace/emulator"
)

type hostFlags []string

func (h *hostFlags) String() string { return strings.Join(*h, " ") }

func (h *hostFlags) Set(given string) error {
	_, err := netip.ParseAddr(given)
	if err != nil && (given == "" || strings.Trim(strings.ToLower(given), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "") {
		return fmt.Errorf("%q is neither a name nor an address: give it without a port, such as millrace", given)
	}
	*h = append(*h, given)
	return nil
}

// minPublicKey is the shortest key of a public server in bytes, as in package emulator.
const minPublicKey = 16

// checkPublicKeys refuses keys that do not protect a public server, in terms of flags. Package
// emulator refuses them too, but only when it starts to listen.
func (s *settings) checkPublicKeys() error {
	for name, key := range s.keys {
		switch {
		case base64.StdEncoding.EncodeToString(key) == emulator.DevelopmentKey:
			return fmt.Errorf("-public: the account %s has the key of the development account, which everyone knows: "+
				"give it another one, for example from openssl rand -base64 64", name)
		case len(key) < minPublicKey:
			return fmt.Errorf("-public: the key of the account %s has %d bytes, fewer than %d, so that other machines could guess it: "+
				"give it a longer one, for example from openssl rand -base64 64", name, len(key), minPublicKey)
		}
	}
	return nil
}
