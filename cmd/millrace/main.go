package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// The statuses that the program ends with.
const (
	fine     = 0
	failed   = 1
	misused  = 2
	seeHelp  = "see millrace help"
	helpText = `Millrace serves the protocol of Azure Queue Storage on this machine.

Usage:

  millrace serve [flags]    serve until Ctrl-C
  millrace version          say which version this is
  millrace help             say this

Flags of serve:

`
	rulesText = `
Rules of -faults are operation:fault@when, separated by blanks or commas:

  get:503@5%            one in twenty gets, by chance that -seed fixes
  put:500@1/100         each hundredth put
  delete:drop@#3,7      the third and the seventh delete are done and not answered
  *:delay=200ms@10%     a tenth of all requests takes longer
  update:duplicate      all updates are done twice

Operations are *, put, get, peek, update, delete, clear and the service's own names, such as
CreateQueue. Faults are 503, 500, 408, reset, drop, duplicate and delay=200ms.
`
)

// misuse is a command line that cannot be meant.
type misuse struct{ error }

// command does what the arguments say and returns the status to end with.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	err := dispatch(ctx, args, out)
	if err == nil {
		return fine
	}
	// One line, whatever an error from elsewhere is made of.
	say(errs, "millrace: %s", strings.Join(strings.Fields(err.Error()), " "))
	if errors.As(err, new(misuse)) {
		return misused
	}
	return failed
}

func dispatch(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return misuse{errors.New("say what to do, such as millrace serve; " + seeHelp)}
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], out)
	case "version", "-version", "--version":
		if len(args) > 1 {
			return misuse{fmt.Errorf("version takes no argument such as %q", args[1])}
		}
		_, err := fmt.Fprintln(out, "millrace", version())
		return err
	case "help", "-h", "-help", "--help":
		return help(out)
	}
	return misuse{fmt.Errorf("there is no command %q; %s", args[0], seeHelp)}
}

func help(out io.Writer) error {
	var text strings.Builder
	text.WriteString(helpText)
	flags := new(settings).flags()
	flags.SetOutput(&text)
	flags.PrintDefaults()
	text.WriteString(rulesText)
	_, err := io.WriteString(out, text.String())
	return err
}
