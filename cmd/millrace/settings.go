package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/millrace/millrace/emulator"
)

// settings are the flags of serve.
type settings struct {
	addr        string
	public      bool
	hosts       hostFlags
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
	limits emulator.Limits
	keys   map[string][]byte // of the accounts
}

func (s *settings) flags() *flag.FlagSet {
	f := newFlags("serve")
	f.StringVar(&s.addr, "addr", "127.0.0.1:10001", "listen on `host:port`; port 0 is any free one")
	f.BoolVar(&s.public, "public", false, "allow other machines to connect; requires -serve-account")
	f.Var(&s.hosts, "host", "accept requests for the host `name` too, such as that of a container; may be repeated;\n"+
		"with -public only for these and the names of this machine")
	path(f, &s.data, "data", "keep everything in this `directory`; by default in memory only")
	f.Var(&s.accounts, "serve-account", "serve an additional account, `name:key` with the key in Base64, or name:@FILE with the\n"+
		"key in a file; may be repeated; the environment variable "+accountsVariable+"\nlists more, separated by semicolons")
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

// path adds a flag for a file or a directory. It refuses an empty value, such as that of an unset
// variable in a script, which would mean something else.
func path(f *flag.FlagSet, to *string, name, usage string) {
	f.Func(name, usage, func(given string) error {
		if given == "" {
			return errors.New("must not be empty: give a name, or omit the flag")
		}
		*to = given
		return nil
	})
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
	case s.delay < 0:
		return fmt.Errorf("-delay %v is negative: give how much longer requests take, such as 20ms", s.delay)
	}
	if err := s.parseFaults(); err != nil {
		return err
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
