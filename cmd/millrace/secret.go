package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/millrace/millrace/internal/azurestorage"
)

// fromFile begins a value that names a file with the secret: all users of the machine can see the
// command line.
const fromFile = "@"

// maxSecretFile limits the size of such a file in bytes.
const maxSecretFile = 64 << 10

// readSecret reads the only line of a file. Errors do not repeat its content.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", errors.New("no file follows the @")
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxSecretFile {
		return "", fmt.Errorf("%s has %d bytes; it must be one line", path, info.Size())
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

// secret matches a secret parameter of a connection string or an address.
var secret = regexp.MustCompile(`(?i)\b(sig|accountkey|sharedaccesssignature)=[^&;\s"'<>]*`)

// redact removes secrets from messages, where misplaced arguments may have put them.
func redact(text string) string { return secret.ReplaceAllString(text, "$1=REDACTED") }

// quote quotes an argument for people, unless it looks like a location, which may contain a
// secret.
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
func isLocation(arg string) bool { return azurestorage.IsLocation(arg) }
