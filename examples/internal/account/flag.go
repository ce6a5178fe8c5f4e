package account

import (
	"os"
	"strings"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/internal/azurestorage"
)

// Variable is the environment variable with the account's location, as for the command
// millrace.
const Variable = "AZURE_STORAGE"

// LocalServer is the location of the server on this machine.
const LocalServer = "UseDevelopmentStorage=true"

// fromFile begins a location that is in a file: all users of the machine can see the command line.
const fromFile = "@"

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
	location, err := azurestorage.ReadSecret(path)
	if err != nil {
		return "", cli.UsageErrorf("%s: %w", source, err)
	}
	return location, nil
}
