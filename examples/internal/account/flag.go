package account

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/millrace/millrace/examples/internal/cli"
)

// Variable is the environment variable with the account's location, as for the command
// millrace.
const Variable = "AZURE_STORAGE"

// LocalServer is the location of the server on this machine.
const LocalServer = "UseDevelopmentStorage=true"

// fromFile begins a location that is in a file: all users of the machine can see the command line.
const fromFile = "@"

// maxLocationFile limits the size of such a file in bytes.
const maxLocationFile = 64 << 10

// Flag is the flag -account.
type Flag struct{ Given string }

// Location returns the location in the flag or the environment variable. It defaults to the server
// on this machine.
func (a Flag) Location() (string, error) { return a.LocationOr(LocalServer) }

// LocationOr returns the location in the flag or the environment variable, or else the default.
func (a Flag) LocationOr(otherwise string) (string, error) {
	given, source := a.Given, "-account"
	if given == "" {
		given, source = strings.TrimSpace(os.Getenv(Variable)), Variable
	}
	if given == "" {
		return otherwise, nil
	}
	path, inFile := strings.CutPrefix(given, fromFile)
	if !inFile {
		return given, nil
	}
	location, err := readLocation(path)
	if err != nil {
		return "", cli.UsageErrorf("%s: %w", source, err)
	}
	return location, nil
}

// readLocation reads the only line of a file. Errors do not repeat its content.
func readLocation(path string) (string, error) {
	if path == "" {
		return "", errors.New("no file follows the @")
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxLocationFile {
		return "", fmt.Errorf("%s is not a file with one line", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(text))
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", fmt.Errorf("%s does not have one line with a location", path)
	}
	return line, nil
}
