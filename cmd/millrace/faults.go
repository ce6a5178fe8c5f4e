package main

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/serviceerror"
)

// newSeed returns a random seed. It is short: users type it again.
func newSeed() uint64 { return 1 + rand.Uint64N(1_000_000) }

// formatFaults joins the rules in the form that -faults takes.
func formatFaults(rules []emulator.Fault) string { return strings.Trim(fmt.Sprint(rules), "[]") }

func faultsCommand() *command {
	return &command{name: "faults", args: "VERB", does: "make a server that runs fail on purpose, and end it", flags: newFlags("faults"), more: faultsMore,
		verbs: []*command{
			faultsSetCommand(),
			faultsVerb("show", "show the faults of a server", func(ctx context.Context, t *task, s *faultsClient) error {
				text, err := s.send(ctx, http.MethodGet, "")
				if err != nil {
					return err
				}
				rules, seed := parseShownFaults(text)
				if len(rules) == 0 {
					return t.report(nil, "%s has no faults.\n", s.host())
				}
				return t.report(nil, "%s has the faults %s (repeat with -seed %s).\n", s.host(), strings.Join(rules, " "), seed)
			}),
			faultsVerb("clear", "end the faults of a server", func(_ context.Context, t *task, s *faultsClient) error {
				_, err := s.send(t.finish, http.MethodDelete, "")
				return t.report(err, "%s has no faults.\n", s.host())
			}),
		}}
}

const faultsMore = `It works on a server that millrace serve or package emulator runs, for all its accounts and all
clients, also those that are connected. Other servers, such as Azure and Azurite, have no faults.
`

// maxFaultsQuery is how many bytes of rules a request may carry: a server accepts heads of up to 64 KiB.
const maxFaultsQuery = 60_000

func faultsSetCommand() *command {
	var account accountFlag
	var seed uint64
	f := newFlags("faults set")
	account.addAlone(f)
	f.Uint64Var(&seed, "seed", 0, "make the faults with a share repeatable; 0 is a random seed")
	return &command{name: "faults set", args: "RULES", does: "replace the faults of a server by these", flags: f, minArgs: 1, maxArgs: -1,
		more:     "The rules apply to the requests that arrive from then on, and count them from 1. Most shells want quotes\naround rules that begin with an asterisk.\n",
		epilogue: faultRulesHelp("RULES"),
		run: func(ctx context.Context, c *console, args []string) error {
			rules, err := emulator.ParseFaults(strings.Join(args, " "))
			if err != nil {
				return usageError{err}
			}
			if len(rules) == 0 {
				return usageError{errors.New("no rules: write one, such as *:503, or end the faults with millrace faults clear")}
			}
			seed = cmp.Or(seed, newSeed())
			query := "&rules=" + url.QueryEscape(formatFaults(rules)) + "&seed=" + strconv.FormatUint(seed, 10)
			if len(query) > maxFaultsQuery {
				return usageError{fmt.Errorf("%d rules are too long for a request, which carries them in its address: use fewer", len(rules))}
			}
			return c.onServer(ctx, &account, func(_ context.Context, t *task, s *faultsClient) error {
				_, err := s.send(t.finish, http.MethodPut, query)
				return t.report(err, "%s has the faults %s (repeat with -seed %d).\n", s.host(), formatFaults(rules), seed)
			})
		}}
}

// faultsVerb returns a verb without arguments.
func faultsVerb(name, does string, do func(context.Context, *task, *faultsClient) error) *command {
	var account accountFlag
	f := newFlags("faults " + name)
	account.addAlone(f)
	return &command{name: "faults " + name, does: does, flags: f, run: func(ctx context.Context, c *console, _ []string) error {
		return c.onServer(ctx, &account, do)
	}}
}

// onServer runs do with a client for the faults of the account's server, and handles signals.
func (c *console) onServer(ctx context.Context, a *accountFlag, do func(context.Context, *task, *faultsClient) error) error {
	return c.onAccount(ctx, a, func(ctx context.Context, t *task) error {
		location, source, err := a.location(c)
		if err != nil {
			return usageError{fmt.Errorf("%s: %w", source, err)}
		}
		at, err := azurestorage.Queue.Parse(location)
		switch {
		case err != nil:
			return usageError{fmt.Errorf("%s: %w", source, err)}
		case at.Auth == azurestorage.TokenAuth:
			return usageError{fmt.Errorf("%s: faults need the key of the account, or a shared access signature: give a connection string of millrace serve", source)}
		}
		s := &faultsClient{at: at, source: source, http: azurestorage.NewClient(1)}
		defer s.http.CloseIdleConnections()
		return do(ctx, t, s)
	})
}

// parseShownFaults returns the rules and the seed in a response. Lines that begin with another word are ignored.
func parseShownFaults(text string) (rules []string, seed string) {
	for line := range strings.Lines(text) {
		switch word, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " "); word {
		case "rule":
			rules = append(rules, escapeControls(rest))
		case "seed":
			seed = escapeControls(rest)
		}
	}
	return rules, seed
}

// faultsClient reads and changes the faults of a server: see docs/protocol.md.
type faultsClient struct {
	at     azurestorage.Location
	source string // setting that names the account; "" for the default
	http   *http.Client
}

// host returns the host and port of the server.
func (s *faultsClient) host() string {
	u, err := url.Parse(s.at.Endpoint)
	if err != nil {
		return s.at.Account // it was parsed before
	}
	return u.Host
}

const (
	faultsVersion  = "2020-10-02" // of the protocol; every server has it
	faultsTimeout  = 30 * time.Second
	maxFaultsReply = 1 << 20

	// millraceServer begins the header Server of the servers that have faults.
	millraceServer = "Millrace-Queue/"
)

// send sends a request and returns the text of its response.
func (s *faultsClient) send(ctx context.Context, method, query string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, faultsTimeout, azurestorage.ErrTryTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.at.Endpoint+"?comp=faults"+query, nil)
	if err != nil {
		return "", s.at.RedactError(err)
	}
	r.Header.Set("x-ms-version", faultsVersion)
	s.at.Sign(r)
	response, err := s.http.Do(r)
	if err != nil {
		return "", s.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxFaultsReply))
	switch {
	case !strings.HasPrefix(response.Header.Get("Server"), millraceServer):
		return "", s.foreign(response)
	case response.StatusCode >= http.StatusMultipleChoices:
		return "", s.refused(response, text)
	case err != nil:
		return "", s.unreachable(ctx, err)
	}
	return string(text), nil
}

// unreachable is the error for a request without a response.
func (s *faultsClient) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return serviceerror.Ended(ctx)
	}
	hint := s.at.NetworkHint(err)
	if s.source == "" {
		hint = "start the server on this machine with millrace serve, or give its location in -account or " + accountVariable
	}
	return fmt.Errorf("%s does not respond: %w; %s", s.host(), s.at.RedactError(err), hint)
}

// foreign is the error for the response of another server.
func (s *faultsClient) foreign(response *http.Response) error {
	said := strings.TrimSpace(fmt.Sprintf("%d %s", response.StatusCode, response.Header.Get("x-ms-error-code")))
	return fmt.Errorf("%s is no server of Millrace, and only those have faults (it responded %s): start one with millrace serve", s.host(), s.at.Redact(said))
}

// refused is the error for a server of Millrace that refuses.
func (s *faultsClient) refused(response *http.Response, text []byte) error {
	var document struct{ Code, Message, QueryParameterName string }
	_ = xml.Unmarshal(text, &document) // then there is only the status
	switch {
	case document.QueryParameterName == "comp":
		return fmt.Errorf("%s is a server of an older version, whose faults cannot be changed: give them to millrace serve -faults", s.host())
	case response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: unauthorized (%d %s): use the key of the account, or a signature for the service (srt=s) with the permission w, or r to show the faults",
			s.host(), response.StatusCode, s.at.Redact(document.Code))
	}
	message, _, _ := strings.Cut(document.Message, "\n")
	message = cmp.Or(message, http.StatusText(response.StatusCode))
	return errors.New(s.host() + ": " + s.at.Redact(message))
}
