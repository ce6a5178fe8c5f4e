package emulator

import (
	"encoding/base64"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

// The development account, the same as in Azurite and every Azure storage
// client. Its key is public knowledge and protects nothing.
const (
	DevelopmentAccount = "devstoreaccount1"
	DevelopmentKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Options configure a [Server]. Nil and the zero value mean the defaults.
type Options struct {
	// Accounts are additional accounts by name, with their keys decoded from Base64. The
	// development account exists too, with its public key unless it is named here; but see
	// Public. Defaults to none.
	Accounts map[string][]byte

	// Public allows endpoints that other machines can reach. The development account then exists
	// only if Accounts names it, because its key is public. Bearer tokens are refused, because
	// their signatures cannot be checked. Keys and signatures are the only protection, so use
	// TLS. Start refuses the development account's key under any name, and keys of fewer than 16
	// bytes. Defaults to false: loopback addresses only.
	Public bool

	// Hosts are additional names or addresses, without ports, that endpoints accept as the Host
	// of requests. They always accept loopback addresses, localhost and names below it, and
	// refuse others, so that no web page can reach them under a name of its own that resolves to
	// this machine. With a name over plain HTTP, browsers do not mark a page's requests for
	// images and the like, as they do for loopback addresses and over TLS: see docs/protocol.md.
	// A public endpoint accepts every host if Hosts is empty, and otherwise these and the names
	// of this machine. Defaults to none.
	Hosts []string

	// Delay makes every request take this much longer, half of it before the operation and half
	// after it, like network latency. A request that the client abandons in the first half is not
	// executed; in the second half it has been. Defaults to 0.
	Delay time.Duration

	// Front handles what a browser requests from an [Endpoint] that it was pointed at: GET and
	// HEAD of "/" and "/favicon.ico" without a query, an Authorization, or an account in the
	// host. These requests are not counted and not authorized: Front decides who sees what.
	// Defaults to nil: the protocol handles them, with InvalidUri or an unknown account.
	Front http.Handler

	// Faults are the faults to inject. Start and RoundTrip refuse invalid rules; those of
	// ParseFaults are valid. SetFaults replaces them. Defaults to none.
	Faults *Faults

	// Limits are the rates above which requests are refused. Defaults to none.
	Limits Limits

	// Log gets a record of every request with operation, account, queue, status, code and
	// duration, at level Info, or Warn if it had a fault. It contains no key, signature, token,
	// receipt, metadata or text. Defaults to nil: no log.
	Log *slog.Logger
}

func (o *Options) front() http.Handler {
	if o == nil {
		return nil
	}
	return o.Front
}

func (o *Options) delay() time.Duration {
	if o == nil {
		return 0
	}
	return max(o.Delay, 0)
}

func (o *Options) hosts() []string {
	if o == nil {
		return nil
	}
	return slices.Clone(o.Hosts)
}

func (o *Options) public() bool { return o != nil && o.Public }

func wellKnownKey() []byte {
	key, err := base64.StdEncoding.DecodeString(DevelopmentKey)
	if err != nil {
		panic(err) // it is a constant
	}
	return key
}

func (o *Options) accounts() map[string]*accountState {
	all := make(map[string]*accountState)
	if !o.public() {
		all[DevelopmentAccount] = newAccount(wellKnownKey())
	}
	if o == nil {
		return all
	}
	for name, key := range o.Accounts {
		all[name] = newAccount(key)
	}
	if o.Limits.Requests > 0 {
		for _, a := range all {
			a.requests = newTokenBucket(o.Limits.Requests)
		}
	}
	return all
}
