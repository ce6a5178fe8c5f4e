package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// accountsVariable is the environment variable with accounts to serve: name:key, separated by
// semicolons.
const accountsVariable = "MILLRACE_ACCOUNTS"

// accountFlags are the values of -serve-account. They are parsed later, because the flag package
// quotes an invalid value in its error, and these contain keys.
type accountFlags []string

func (a *accountFlags) String() string { return "" }

func (a *accountFlags) Set(given string) error {
	*a = append(*a, given)
	return nil
}

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
		if encoded, err = readSecret(path); err != nil {
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
