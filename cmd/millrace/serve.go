package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azurestorage"
)

// grace is how long requests in progress may take after the first signal.
const grace = 10 * time.Second

func serveCommand() *command {
	s := new(settings)
	return &command{name: "serve", does: "serve queues on this machine until Ctrl-C", flags: s.flags(), more: serveMore, epilogue: faultRulesHelp("The rules of -faults") + "millrace faults changes them while the server runs.\n",
		hint: func(wrong string) string {
			if strings.HasSuffix(wrong, "not defined: -account") {
				return "serve has -serve-account name:key; -account is for the other commands"
			}
			return ""
		},
		run: func(ctx context.Context, c *console, _ []string) error {
			if err := s.check(c.getenv); err != nil {
				return usageError{err}
			}
			return s.serve(ctx, c.out)
		}}
}

// serve serves until a signal, or until ctx ends.
func (s *settings) serve(ctx context.Context, out io.Writer) error {
	out = &lockedWriter{to: out}
	certificate, err := s.certificate()
	if err != nil {
		return err
	}
	d, err := s.openData()
	if err != nil {
		return err
	}
	return errors.Join(s.serveData(ctx, d, certificate, out), d.close())
}

func (s *settings) serveData(ctx context.Context, d *data, certificate *tls.Config, out io.Writer) error {
	front := &page{settings: s, engine: d.engine}
	o := &emulator.Options{Accounts: s.keys, Public: s.public, Hosts: s.hosts, Delay: s.delay, Front: front, Quotas: s.quotas}
	if len(s.rules) > 0 {
		o.Faults = &emulator.Faults{Seed: s.seed, Rules: s.rules}
	}
	if s.log {
		o.Log = slog.New(slog.NewTextHandler(out, nil))
	}
	server, err := emulator.New(d.engine, o)
	if err != nil {
		return err
	}
	front.server = server
	start := server.Start
	if certificate != nil {
		start = func(addr string) (*emulator.Endpoint, error) { return server.StartTLS(addr, certificate) }
	}
	endpoint, err := start(s.addr)
	if network := new(net.OpError); errors.As(err, &network) { // its text repeats the address
		return fmt.Errorf("listen on %s: %w; stop the program that listens there, or choose another address with -addr, such as 127.0.0.1:0 for any free port", s.addr, network.Err)
	}
	if err != nil {
		return err
	}
	halted, halt := context.WithCancel(context.Background())
	defer halt()
	err = millrace.Run(ctx, &service{settings: s, data: d, endpoint: endpoint, out: out, halted: halted, halt: halt})
	if s.log {
		_, _ = io.WriteString(out, server.Counts().String()) // nothing can be done about an error
	}
	return err
}

// certificate returns the TLS configuration, or nil without TLS.
func (s *settings) certificate() (*tls.Config, error) {
	if s.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return nil, fmt.Errorf("-cert %s with -key %s: %w; both must be PEM files that belong together", s.cert, s.key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

// service makes an endpoint a millrace.Runner.
type service struct {
	settings *settings
	data     *data
	endpoint *emulator.Endpoint
	out      io.Writer
	halted   context.Context // ended by Halt
	halt     context.CancelFunc
}

// Run prints what is served, serves until ctx ends, and lets requests finish.
func (s *service) Run(ctx context.Context) error {
	printf(s.out, "%s", s.settings.startupText(s.endpoint.Addr().String(), s.endpoint.AccountURL, s.data)) // after Run has registered for signals
	select {
	case <-ctx.Done():
	case <-s.endpoint.Done(): // it has failed
		return s.endpoint.Close()
	}
	printf(s.out, "Stopping: requests in progress may finish. Press Ctrl-C again to stop at once.\n")
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	defer context.AfterFunc(s.halted, cancel)()
	switch err := s.endpoint.Shutdown(ending); {
	case err == nil:
		printf(s.out, "Stopped.\n")
	case ending.Err() != nil:
		printf(s.out, "Stopped. Requests in progress were aborted.\n")
	default:
		return err
	}
	return nil
}

// Halt makes Run return at once.
func (s *service) Halt() { s.halt() }

// lockedWriter makes writes of several goroutines atomic.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer // guarded by mu
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

const serveMore = `It serves the development account, whose key is public, and the accounts of -serve-account. With
-public it serves only the latter. All users of the machine can see a key on the command line:
use name:@FILE, or put name:key into the environment variable ` + accountsVariable + `.
`

// faultRulesHelp describes the rules of serve -faults and of faults set.
func faultRulesHelp(rules string) string {
	return "\n" + rules + ` are operation:fault@when, separated by spaces or commas:

  get:503@5%            one in twenty gets, at random; -seed repeats them
  put:500@1/100         every hundredth put
  delete:drop@#3,7      the third and seventh delete are executed, without a response
  *:delay=200ms@10%     a tenth of all requests is delayed
  update:duplicate      all updates are executed twice

Operations are *, put, get, peek, update, delete, clear and the names of the service, such as
CreateQueue. Faults are 503, 500, 408, 403, reset, drop, duplicate and delay=200ms.
`
}

// settings are the flags of serve.
type settings struct {
	addr        string
	public      bool
	hosts       []string
	data        string
	accounts    accountFlags
	cert, key   string
	deletingFor time.Duration
	delay       time.Duration
	faults      string
	limit       string
	seed        uint64
	log         bool

	rules  []emulator.Fault
	quotas emulator.Quotas
	keys   map[string][]byte // of the accounts
}

func (s *settings) flags() *flag.FlagSet {
	f := newFlags("serve")
	f.StringVar(&s.addr, "addr", "127.0.0.1:10001", "listen on `host:port`; port 0 is any free one")
	f.BoolVar(&s.public, "public", false, "allow other machines to connect; requires -serve-account")
	f.Func("host", "accept requests for the host `name` too, such as that of a container; may be repeated;\n"+
		"with -public only for these and the names of this machine", func(given string) error {
		_, err := netip.ParseAddr(given)
		if err != nil && (given == "" || strings.Trim(strings.ToLower(given), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "") {
			return fmt.Errorf("%q is neither a name nor an address: give it without a port, such as millrace", given)
		}
		s.hosts = append(s.hosts, given)
		return nil
	})
	path(f, &s.data, "data", "keep everything in this `directory`; by default in memory only")
	f.Func("serve-account", "serve an additional account, `name:key` with the key in Base64, or name:@FILE with the\n"+
		"key in a file; may be repeated; the environment variable "+accountsVariable+"\nlists more, separated by semicolons", func(given string) error {
		s.accounts = append(s.accounts, given)
		return nil
	})
	path(f, &s.cert, "cert", "serve TLS with the certificates in `file`, PEM; requires -key")
	path(f, &s.key, "key", "the private key of -cert, `file`, PEM")
	durationVar(f, &s.deletingFor, "deleting-for", 30*time.Second, "refuse to create a deleted queue again for this `duration`")
	durationVar(f, &s.delay, "delay", 0, "delay every request by this `duration`, such as 20ms")
	f.StringVar(&s.faults, "faults", "", "inject faults by the `rules` described below")
	f.StringVar(&s.limit, "limit", "", "respond 503 above `limits` a second, such as messages=2000,requests=20000")
	f.Uint64Var(&s.seed, "seed", 0, "make ids, receipts and faults repeatable; 0 is a random seed")
	f.BoolVar(&s.log, "log", false, "print every request, and at the end the number of requests of each operation")
	return f
}

func (s *settings) check(getenv func(string) string) error {
	var err error
	if s.keys, err = s.accounts.read(getenv(accountsVariable)); err != nil {
		return err
	}
	switch {
	case (s.cert == "") != (s.key == ""):
		return errors.New("TLS needs both -cert and -key: give the files with the certificate and its private key")
	case s.deletingFor < 0:
		return fmt.Errorf("-deleting-for %v is negative: give 0s to free the names of deleted queues at once", s.deletingFor)
	case s.deletingFor > 0 && s.deletingFor < time.Millisecond:
		return fmt.Errorf("-deleting-for %v is shorter than 1ms: give 0s to free the names of deleted queues at once", s.deletingFor)
	case s.delay < 0:
		return fmt.Errorf("-delay %v is negative: give how much longer requests take, such as 20ms", s.delay)
	}
	if s.rules, err = emulator.ParseFaults(s.faults); err != nil {
		return fmt.Errorf("-faults: %w", err)
	}
	if s.quotas, err = emulator.ParseQuotas(s.limit); err != nil {
		return fmt.Errorf("-limit: %w", err)
	}
	if len(s.rules) > 0 && s.seed == 0 {
		s.seed = newSeed()
	}
	return s.checkAddress()
}

// checkAddress refuses addresses that package emulator would refuse, in terms of flags.
func (s *settings) checkAddress() error {
	host, port, err := net.SplitHostPort(s.addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case err != nil:
		return fmt.Errorf("-addr %q is not host:port, such as 127.0.0.1:10001", s.addr)
	case s.public && len(s.keys) == 0:
		return errors.New("-public requires an account of your own, -serve-account name:@FILE: the key of the development account is public")
	case !s.public && !onLoopback(host):
		return fmt.Errorf("-addr %s can be reached by other machines, and the key of the development account is public: "+
			"use 127.0.0.1, or -public with a -serve-account", s.addr)
	case s.public:
		return s.checkPublicKeys()
	}
	return nil
}

// onLoopback reports whether a host without port is this machine.
func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
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

// accountsVariable is the environment variable with accounts to serve: name:key, separated by
// semicolons.
const accountsVariable = "MILLRACE_ACCOUNTS"

// accountFlags are the values of -serve-account. They are parsed later, because the flag package
// quotes an invalid value in its error, and these contain keys.
type accountFlags []string

// read returns the keys of the accounts, including those of the environment. Errors do not
// contain keys.
func (a accountFlags) read(environment string) (map[string][]byte, error) {
	keys := make(map[string][]byte)
	for i, given := range a {
		if err := addKey(keys, given); err != nil {
			return nil, fmt.Errorf("-serve-account number %d: %w", i+1, err)
		}
	}
	for i, given := range strings.Split(environment, ";") {
		if given = strings.TrimSpace(given); given == "" {
			continue
		}
		if err := addKey(keys, given); err != nil {
			return nil, fmt.Errorf("%s, account number %d: %w", accountsVariable, i+1, err)
		}
	}
	return keys, nil
}

// addKey parses name:key, or name:@FILE.
func addKey(keys map[string][]byte, given string) error {
	name, encoded, ok := strings.Cut(given, ":")
	if !ok {
		return errors.New("not name:key or name:@FILE")
	}
	if !isAccountName(name) {
		return fmt.Errorf("the name %q is not 3 to 24 lower-case letters and digits", name)
	}
	if path, ok := strings.CutPrefix(encoded, fromFile); ok {
		var err error
		if encoded, err = azurestorage.ReadSecret(path); err != nil {
			return fmt.Errorf("the key of %s: %w", name, err)
		}
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return fmt.Errorf("the key of %s is not Base64: make one with openssl rand -base64 64", name)
	}
	if keys[name] != nil {
		return fmt.Errorf("%s is given twice: an account has one key", name)
	}
	keys[name] = key
	return nil
}

// isAccountName reports whether the service allows an account name (Storage account overview,
// "Storage account name").
func isAccountName(name string) bool {
	return len(name) >= 3 && len(name) <= 24 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}
