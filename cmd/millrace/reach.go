package main

import (
	"fmt"
	"net/netip"
	"strings"
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
