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
	// Accounts are further accounts by name, with their keys decoded from
	// Base64. The development account is there too, with its public key unless
	// it is named here, but see Public. Defaults to none.
	Accounts map[string][]byte

	// Public allows endpoints that other machines reach. The development
	// account is then there only when Accounts names it: its key is public, so
	// that whoever reaches the endpoint could do everything. Bearer tokens
	// are not taken then: their signatures cannot be checked, so that
	// whoever reaches the endpoint could make one. Keys and signatures
	// are all there is to protect the queues, so serve over TLS; Start refuses
	// the development account's key, under whatever name, and keys of fewer than
	// 16 bytes. Defaults to false: loopback addresses only.
	Public bool

	// Hosts are further names or addresses, without ports, that endpoints may be
	// called by (the Host of requests). They answer to loopback addresses, to
	// localhost and to names below it, and refuse every other one, so that no web
	// page can reach them by a name of its own that leads here. Of a name over
	// plain HTTP browsers do not tell which page asks for an image or the like,
	// as they do of loopback addresses and over TLS: see docs/protocol.md. A
	// public endpoint answers to every host when Hosts is empty, and else to
	// these and this machine's own. Defaults to none.
	Hosts []string

	// Delay makes every request take this much longer: half of it passes
	// before the operation, half after it, as on a network. A client that
	// gives up in the first half has changed nothing; one that gives up in
	// the second half never learns that it has. Defaults to 0.
	Delay time.Duration

	// Front answers what a browser asks of an [Endpoint] that it was pointed
	// at: GET and HEAD of "/" and "/favicon.ico", without a query, an
	// Authorization or an account in the host. The front counts as no request
	// and nothing protects it, so it decides who sees what. Defaults to none:
	// such requests are answered as the protocol says, with InvalidUri or an
	// account that is not there.
	Front http.Handler

	// Faults are what goes wrong on purpose. Rules that are not in order are
	// refused by Start and RoundTrip; those of ParseFaults are. Defaults to none.
	Faults *Faults

	// Limits are how much a second is served. Defaults to none.
	Limits Limits

	// Log gets a record of every request: the operation, the account, the queue,
	// the status, the code and how long it took; at level Info, and at Warn when
	// a fault has hit it. No key, signature, token, receipt, metadata or text
	// is in it. Defaults to nil: no log.
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

// wellKnownKey is [DevelopmentKey], decoded.
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
