package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
)

// faultsClient reads and changes the faults of a server: see docs/protocol.md.
type faultsClient struct {
	at     azurestorage.Location
	source string // setting that names the account; "" for the default
	http   *http.Client
}

// newFaultsClient returns a client for the server of an account.
func newFaultsClient(location, source string) (*faultsClient, error) {
	at, err := azurestorage.Queue.Parse(location)
	switch {
	case err != nil:
		return nil, usageError{fmt.Errorf("%s: %w", source, err)}
	case at.Auth == azurestorage.TokenAuth:
		return nil, usageError{fmt.Errorf("%s: faults need the key of the account, or a shared access signature: give a connection string of millrace serve", source)}
	}
	return &faultsClient{at: at, source: source, http: azurestorage.NewClient(1)}, nil
}

func (s *faultsClient) close() { s.http.CloseIdleConnections() }

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
	if err := s.at.Sign(r); err != nil {
		return "", err
	}
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
		return azurestorage.ContextError(ctx)
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
	if message == "" {
		message = http.StatusText(response.StatusCode)
	}
	return errors.New(s.host() + ": " + s.at.Redact(message))
}
