package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
)

// roleVariable makes this program a child with that role. A child reads JSON values from its standard input and
// answers each, until the input ends.
const roleVariable = "MILLRACE_BENCH_ROLE"

// roles begin with a first value, which they answer, and may answer more.
var roles = map[string]func(first json.RawMessage) (answer any, more answerer, err error){
	"server": serve,
	"worker": work,
}

// answerer answers further values.
type answerer func(json.RawMessage) (any, error)

// answer is a line of a child.
type answer struct {
	Value any    `json:",omitempty"`
	Error string `json:",omitempty"`
}

// playRole makes this process a child, and does not return, if it was started as one.
func playRole() {
	role, asked := roles[os.Getenv(roleVariable)]
	if !asked {
		return
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which ends its children
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var more answerer
	for {
		var line json.RawMessage
		if err := in.Decode(&line); err != nil {
			os.Exit(0) // the parent has closed the input, or has ended
		}
		var a answer
		var err error
		if more == nil {
			a.Value, more, err = role(line)
		} else {
			a.Value, err = more(line)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			os.Exit(1)
		}
	}
}

type child struct {
	role    string
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// startChild starts a child and asks it for the first time. The end of the context kills it; a server outlives that,
// so that its clients end in order.
func startChild(ctx context.Context, role string, first, into any) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{role: role, process: exec.CommandContext(ctx, program)}
	c.process.Env = append(os.Environ(), roleVariable+"="+role)
	c.process.Stderr = os.Stderr
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(out)
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	if err := c.ask(first, into); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// ask sends a value and reads the answer.
func (c *child) ask(line, into any) error {
	if err := json.NewEncoder(c.in).Encode(line); err != nil {
		return fmt.Errorf("ask the %s process: %w", c.role, err)
	}
	a := answer{Value: into}
	if err := c.out.Decode(&a); err != nil {
		return fmt.Errorf("read the answer of the %s process: %w", c.role, err)
	}
	if a.Error != "" {
		return fmt.Errorf("%s process: %s", c.role, a.Error)
	}
	return nil
}

// stop ends the process and waits for it.
func (c *child) stop() error { return errors.Join(c.in.Close(), c.process.Wait()) }
