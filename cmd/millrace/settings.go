package main

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/emulator"
)

// settings are what the flags of serve say.
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

// accountFlags are the accounts as they were given. They are read later: what the
// flag package says of a bad value quotes it, and this one has a key in it.
type accountFlags []string

func (a *accountFlags) String() string { return "" }

func (a *accountFlags) Set(given string) error {
	*a = append(*a, given)
	return nil
}

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("millrace serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.StringVar(&s.addr, "addr", "127.0.0.1:10001", "listen on `host:port`; port 0 is any free one")
	f.BoolVar(&s.public, "public", false, "let other machines reach it; needs -account")
	f.Var(&s.hosts, "host", "answer to requests for the host `name` too, such as that of a container; may be repeated;\nwith -public to this machine's own and these only")
	f.StringVar(&s.data, "data", "", "keep everything in `directory`; without, in memory only")
	f.Var(&s.accounts, "account", "serve a further account, `name:key` with the key in Base64; may be repeated")
	f.StringVar(&s.cert, "cert", "", "serve TLS with the certificates in `file`, PEM; needs -key")
	f.StringVar(&s.key, "key", "", "the private key of -cert, `file`, PEM")
	f.DurationVar(&s.deletingFor, "deleting-for", 30*time.Second, "how long the name of a deleted queue stays taken")
	f.DurationVar(&s.delay, "delay", 0, "make every request take so much longer")
	f.StringVar(&s.faults, "faults", "", "answer some requests as a service in trouble does, by `rules` as below")
	f.StringVar(&s.limit, "limit", "", "be a busy service beyond `limits` a second, such as messages=2000,requests=20000")
	f.Uint64Var(&s.seed, "seed", 0, "make ids, receipts and faults repeatable; 0 is a random seed")
	f.BoolVar(&s.log, "log", false, "print every request, and at the end how many there were of each operation")
	return f
}

// parse reads the arguments of serve and checks what can be checked without doing
// anything. All its errors but [flag.ErrHelp] are [misuse].
func parse(args []string) (*settings, error) {
	s := new(settings)
	f := s.flags()
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, misuse{fmt.Errorf("serve: %w; %s", err, seeHelp)}
	case f.NArg() > 0:
		return nil, misuse{fmt.Errorf("serve: %q is not a flag: flags begin with a dash; %s", f.Arg(0), seeHelp)}
	}
	if err := s.check(); err != nil {
		return nil, misuse{fmt.Errorf("serve: %w", err)}
	}
	return s, nil
}

func (s *settings) check() error {
	var err error
	if s.keys, err = s.accounts.read(); err != nil {
		return err
	}
	switch {
	case (s.cert == "") != (s.key == ""):
		return errors.New("TLS needs both -cert and -key: give the files with the certificate and its private key")
	case s.deletingFor < 0:
		return fmt.Errorf("-deleting-for %v is negative: give 0s to have the names of deleted queues free at once", s.deletingFor)
	case s.delay < 0:
		return fmt.Errorf("-delay %v is negative: give how much longer requests take, such as 20ms", s.delay)
	}
	if err := s.readTrouble(); err != nil {
		return err
	}
	return s.checkAddress()
}

// checkAddress refuses addresses that package emulator would, in terms of flags.
func (s *settings) checkAddress() error {
	host, port, err := net.SplitHostPort(s.addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case err != nil:
		return fmt.Errorf("-addr %q is not host:port, such as 127.0.0.1:10001", s.addr)
	case s.public && len(s.keys) == 0:
		return errors.New("-public needs an account of your own, -account name:key: the key of the development account is public")
	case !s.public && !onLoopback(host):
		return fmt.Errorf("-addr %s can be reached by other machines, and the key of the development account is public: "+
			"use 127.0.0.1, or say -public with an -account", s.addr)
	case s.public:
		return s.checkPublicKeys()
	}
	return nil
}

// onLoopback reports whether a host, without its port, is this machine and no other.
func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// read returns the keys of the accounts. No error quotes a key.
func (a accountFlags) read() (map[string][]byte, error) {
	keys := make(map[string][]byte, len(a))
	for i, given := range a {
		name, encoded, ok := strings.Cut(given, ":")
		if !ok {
			return nil, fmt.Errorf("-account number %d is not name:key", i+1)
		}
		if !isAccountName(name) {
			return nil, fmt.Errorf("-account: the name %q is not 3 to 24 lower-case letters and digits", name)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) == 0 {
			return nil, fmt.Errorf("-account %s: the key is not Base64: make one with openssl rand -base64 64", name)
		}
		if keys[name] != nil {
			return nil, fmt.Errorf("-account %s is given twice: an account has one key", name)
		}
		keys[name] = key
	}
	return keys, nil
}

// isAccountName holds a name against what the service allows (Storage account
// overview, "Storage account name").
func isAccountName(name string) bool {
	if len(name) < 3 || len(name) > 24 {
		return false
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return true
}
