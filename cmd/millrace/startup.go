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

// shortForm is what every client of the service takes for the development account at
// the usual address.
const shortForm = "UseDevelopmentStorage=true"

// greet says what is served, where, and how to reach it.
func (s *settings) printStartup(out io.Writer, e *emulator.Endpoint, d *data) {
	_, _ = io.WriteString(out, s.startupText(e.Addr().String(), e.AccountURL, d)) // there is nobody else to tell
}

// greeting is what greet says of an endpoint at the address, where accounts have such URLs.
func (s *settings) startupText(address string, url func(account string) string, d *data) string {
	var text strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&text, "  %-19s "+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintf(&text, "Millrace %s serves the protocol of Azure Queue Storage.\n", version())
	line("address", "%s", address)
	kept, damage := d.summary()
	line("data", "%s", kept)
	for _, one := range damage {
		line("  damage", "%s", one)
	}
	if len(s.rules) > 0 {
		line("faults", "%s (again with -seed %d)", s.formatFaults(), s.seed)
	}
	if limits := s.limits.String(); limits != "" {
		line("limits", "%s a second", limits)
	}
	if s.public && s.cert == "" {
		line("note", "other machines can reach it without TLS, and read what is sent")
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

// firstStep is what to try first. Where commands do not find this server by themselves, it
// tells them where it is; a program that reads the variable is told too.
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

// served is the names of the accounts, the development account first.
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

// secret reports whether the key of an account is nobody's business.
func (s *settings) isSecret(account string) bool {
	return account != emulator.DevelopmentAccount || s.keys[account] != nil
}

// isUsual reports whether host:port is where [shortForm] leads.
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

// pythonSecondary is what the Python client must be told to find the secondary location, of
// which it reads the stats: it makes up an address in the cloud otherwise. It wants it
// without a scheme; other clients refuse a connection string for that.
func pythonSecondary(url string) string {
	_, address, _ := strings.Cut(url, "://")
	return "QueueSecondaryEndpoint=" + address + "-secondary;"
}
