package main

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"

	"github.com/millrace/millrace/emulator"
)

// hostFlags are the hosts that requests may name besides those of this machine.
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

// leastPublicKey is how many bytes the keys of a public server have, as package emulator
// wants it.
const minPublicKey = 16

// checkPublicKeys refuses keys that protect nothing where other machines come in, in terms of
// flags. Package emulator refuses them too, but only when it is to listen.
func (s *settings) checkPublicKeys() error {
	for name, key := range s.keys {
		switch {
		case base64.StdEncoding.EncodeToString(key) == emulator.DevelopmentKey:
			return fmt.Errorf("-public: the account %s has the key of the development account, which everyone knows: "+
				"give it one of its own, such as openssl rand -base64 64 makes", name)
		case len(key) < minPublicKey:
			return fmt.Errorf("-public: the key of the account %s has %d of the %d bytes that it takes at least, so that other machines can guess it: "+
				"give it a longer one, such as openssl rand -base64 64 makes", name, len(key), minPublicKey)
		}
	}
	return nil
}
