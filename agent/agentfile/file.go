package agentfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/scaling"
)

// MaxSize is the size of the largest file in bytes.
const MaxSize = 1 << 20

// File is what a file says. What it does not say has the zero value.
type File struct {
	// Interval is how long lies between measurements, at least 1 s.
	Interval time.Duration

	// Folder is where the agent keeps what the next one should know.
	Folder string

	// Prices are what things cost, in one currency.
	Prices agent.Prices

	// Accounts are the storage accounts that queues name, in the order of the file.
	Accounts []Account

	// Pools are the pools, in the order of the file. At least one.
	Pools []Pool
}

// Account says where the location of a storage account stands. Exactly one of the fields beside Name is set.
type Account struct {
	// Name is what queues call it.
	Name string

	// Environment is the environment variable with the location.
	Environment string

	// File is the path of the file with the location.
	File string

	// Address is the location itself, without a secret: requests are signed with a token of Entra ID.
	Address string
}

// Queue names a queue.
type Queue struct {
	// Account is the name of an account of the file; empty for the default account.
	Account string

	// Name is the queue's name in the account.
	Name string
}

// String returns the queue as the file has it.
func (q Queue) String() string {
	if q.Account == "" {
		return q.Name
	}
	return q.Account + "/" + q.Name
}

// Pool is a pool of instances.
type Pool struct {
	// Name is the pool's name: lower-case letters, digits and hyphens, so that files can be named after it.
	Name string

	// Queues are where the instances take jobs from. At least one.
	Queues []Queue

	// Beacons are the control queues in which the instances report.
	Beacons []Queue

	// Policy decides how many instances there should be.
	Policy scaling.Policy

	// Processes are the instances, if they are processes on this machine; nil if the file does not say how instances are
	// started.
	Processes *Processes
}

// Processes are instances that are processes on this machine.
type Processes struct {
	// Command is the program and its arguments.
	Command []string

	// Environment are settings beside those of the agent, each "NAME=value", in the order of the file.
	Environment []string

	// Grace is how long an instance may take to finish its jobs.
	Grace time.Duration

	// Log is the path of the file to which the output of the instances is appended; empty if the file does not say.
	Log string
}

// Read reads a file. Errors in it are an *[Error]; those of the file system are as package os has them.
func Read(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return Parse(path, text)
}

// Parse reads the text of a file. The path is for errors, and relative paths in the file are relative to its folder; nothing is
// opened. The error is an *[Error].
func Parse(path string, text []byte) (*File, error) {
	p := &parser{folder: filepath.Dir(path)}
	var f File
	if root := p.load(text); root != nil {
		p.refuseSecrets(root)
		p.file(root, &f)
	}
	if len(p.problems) > 0 {
		return nil, p.error(path)
	}
	return &f, nil
}
