package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/millrace/millrace/emulator"
)

// shortForm is the connection string of the development account at the default address.
const shortForm = "UseDevelopmentStorage=true"

// printStartup prints what is served, where, and how to connect.
func (s *settings) printStartup(out io.Writer, e *emulator.Endpoint, d *data) {
	_, _ = io.WriteString(out, s.startupText(e.Addr().String(), e.AccountURL, d)) // nothing can be done about an error
}

func (s *settings) startupText(address string, url func(account string) string, d *data) string {
	var text strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&text, "  %-19s "+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintf(&text, "Millrace %s serves the Azure Queue Storage protocol.\n", version())
	line("address", "%s", address)
	kept, damage := d.summary()
	line("data", "%s", kept)
	for _, one := range damage {
		line("  damage", "%s", one)
	}
	if len(s.rules) > 0 {
		line("faults", "%s (repeat with -seed %d)", formatFaults(s.rules), s.seed)
	}
	if limits := s.limits.String(); limits != "" {
		line("limits", "%s a second", limits)
	}
	if s.public && s.cert == "" {
		line("note", "other machines can connect without TLS, so the traffic can be read")
	}
	for _, account := range s.accountNames() {
		line("account", "%s", url(account))
		key := emulator.DevelopmentKey
		if s.isSecret(account) {
			key = "(your key)"
		}
		long := connectionString(url(account), account, key)
		if !s.isSecret(account) && s.cert == "" && isDefaultAddress(address) {
			line("connection string", "%s", shortForm)
			line("  or", "%s", long)
		} else {
			line("connection string", "%s", long)
		}
		line("  for Python", "%s", long+pythonSecondary(url(account)))
	}
	if step := s.firstCommand(address, url); step != "" {
		line("from another shell", "%s", step)
	}
	text.WriteString("Stop it with Ctrl-C.\n")
	return text.String()
}

// firstCommand returns a command to try first, with the location of this server if commands do
// not find it by default.
func (s *settings) firstCommand(address string, url func(account string) string) string {
	const account = emulator.DevelopmentAccount
	const create = "millrace create orders"
	switch {
	case s.cert != "" || s.public || s.isSecret(account):
		return ""
	case isDefaultAddress(address):
		return create
	}
	return fmt.Sprintf("export %s='%s'; %s", accountVariable, connectionString(url(account), account, emulator.DevelopmentKey), create)
}

// accountNames returns the names of the accounts, the development account first.
func (s *settings) accountNames() []string {
	var names []string
	if !s.public || s.keys[emulator.DevelopmentAccount] != nil {
		names = append(names, emulator.DevelopmentAccount)
	}
	for _, name := range slices.Sorted(maps.Keys(s.keys)) {
		if name != emulator.DevelopmentAccount {
			names = append(names, name)
		}
	}
	return names
}

func (s *settings) isSecret(account string) bool {
	return account != emulator.DevelopmentAccount || s.keys[account] != nil
}

func isDefaultAddress(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	return err == nil && (host == "127.0.0.1" || host == "localhost") && port == "10001"
}

func connectionString(url, account, key string) string {
	scheme := "http"
	if len(url) > 5 && url[:5] == "https" {
		scheme = "https"
	}
	return fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;QueueEndpoint=%s;", scheme, account, key, url)
}

// pythonSecondary returns the part of a connection string with which the Python client finds the secondary location, from which it
// reads the stats; otherwise it uses an address in the cloud. It must have no scheme, for which
// other clients refuse a connection string.
func pythonSecondary(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return "QueueSecondaryEndpoint=" + address + "-secondary;"
}
