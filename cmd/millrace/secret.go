package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// fromFile is what a value begins with that is not the secret itself but the file that
// has it: a command line can be seen by everybody on the machine.
const fromFile = "@"

// mostSecret bounds what is read of a file. Locations and keys are short.
const maxSecretFile = 64 << 10

// readSecret reads the one line of a file. No error repeats what is in it.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", errors.New("no file follows the @")
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxSecretFile {
		return "", fmt.Errorf("%s has %d bytes, and one line is wanted", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(text))
	switch {
	case line == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsAny(line, "\r\n"):
		return "", fmt.Errorf("%s has more than one line", path)
	}
	return line, nil
}

// secret matches what opens something, in a connection string or an address.
var secret = regexp.MustCompile(`(?i)\b(sig|accountkey|sharedaccesssignature)=[^&;\s"'<>]*`)

// redact takes secrets out of what people are told, which have come there by mistake: as an
// argument in the wrong place.
func redact(text string) string { return secret.ReplaceAllString(text, "$1=REDACTED") }

// quote returns an argument for people, and not one that looks like a location: it may
// have a secret in it.
func quote(arg string) string {
	if isLocation(arg) {
		return "the location of an account (give it with -account)"
	}
	if len(arg) > 80 {
		arg = arg[:80] + "…"
	}
	return fmt.Sprintf("%q", arg)
}

// isLocation reports whether an argument looks like a connection string or an address.
func isLocation(arg string) bool {
	lower := strings.ToLower(arg)
	return strings.Contains(lower, "://") || strings.Contains(lower, "accountkey=") || strings.Contains(lower, "accountname=") ||
		strings.Contains(lower, "sharedaccesssignature=") || strings.Contains(lower, "usedevelopmentstorage=")
}
