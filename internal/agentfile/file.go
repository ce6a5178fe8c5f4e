package agentfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
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

	// Azure is the id of the container app or the scale set that has the instances; empty if the file does not say.
	Azure string
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

// Error is everything that is wrong with a file.
type Error struct {
	// Path is the path of the file.
	Path string

	// Problems are in the order of the lines. At least one.
	Problems []Problem
}

// Problem is one thing that is wrong.
type Problem struct {
	// Line is the line, counted from 1; 0 if it concerns the whole file.
	Line int

	// Text says what is wrong and what is allowed. It contains no secret.
	Text string
}

// Error returns all problems, each on a line of its own that begins with the path and the line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, one := range e.Problems {
		lines[i] = fmt.Sprintf("%s: %s", e.Path, one.Text)
		if one.Line > 0 {
			lines[i] = fmt.Sprintf("%s:%d: %s", e.Path, one.Line, one.Text)
		}
	}
	return strings.Join(lines, "\n")
}

func (p *parser) error(path string) *Error {
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return &Error{Path: path, Problems: slices.Compact(p.problems)}
}

// Variable is the environment variable with the location of the default account.
const Variable = "AZURE_STORAGE"

// localServer is the location of the server that millrace serve starts.
const localServer = "UseDevelopmentStorage=true"

// Sources are where the locations of accounts come from. Nil and the zero value mean the defaults.
type Sources struct {
	// Default is the location of the account of queues that name none, as [azurequeue.OpenAccount] takes it. Defaults to that
	// in the environment variable [Variable], or else to the server that millrace serve starts on this machine.
	Default string

	// Getenv returns environment variables. Defaults to os.Getenv.
	Getenv func(name string) string
}

// Opened are the pools of a file over open accounts.
type Opened struct {
	// Pools are the pools without actuators, in the order of the file.
	Pools []agent.Pool

	accounts map[string]*azurequeue.Account // by the names of the file
}

// Close releases the connections. The queues of the pools must not be used afterwards. It never fails.
func (o *Opened) Close() {
	for _, a := range o.accounts {
		_ = a.Close() // it never fails
	}
}

// Open opens the accounts whose queues are named, and the queues. It sends no request. The error is everything that is wrong
// with the locations, and contains none of them. Close the result.
func (f *File) Open(s *Sources) (*Opened, error) {
	if s == nil {
		s = &Sources{}
	}
	getenv := s.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	o := &Opened{accounts: map[string]*azurequeue.Account{}}
	var errs []error
	for _, a := range f.used() {
		location, err := a.location(getenv, s.Default)
		var account *azurequeue.Account
		if err == nil {
			account, err = azurequeue.OpenAccount(location, nil)
		}
		if err != nil {
			errs = append(errs, a.explain(err))
			continue
		}
		o.accounts[a.Name] = account
	}
	if len(errs) == 0 {
		errs = append(errs, o.open(f))
	}
	if err := errors.Join(errs...); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// used returns the accounts whose queues are named. The default account has no name.
func (f *File) used() []Account {
	var used []Account
	for _, pool := range f.Pools {
		for _, q := range slices.Concat(pool.Queues, pool.Beacons) {
			if slices.ContainsFunc(used, func(a Account) bool { return a.Name == q.Account }) {
				continue
			}
			i := slices.IndexFunc(f.Accounts, func(a Account) bool { return a.Name == q.Account })
			if i < 0 {
				used = append(used, Account{}) // Parse has refused unknown ones
				continue
			}
			used = append(used, f.Accounts[i])
		}
	}
	return used
}

func (a Account) location(getenv func(string) string, otherwise string) (string, error) {
	switch {
	case a.Address != "":
		return a.Address, nil
	case a.File != "":
		return readLocation(a.File)
	case a.Environment != "":
		location := strings.TrimSpace(getenv(a.Environment))
		if location == "" {
			return "", fmt.Errorf("the environment variable %s is not set: put the location of the account into it", a.Environment)
		}
		return location, nil
	case otherwise != "":
		return otherwise, nil
	case strings.TrimSpace(getenv(Variable)) != "":
		return getenv(Variable), nil
	}
	return localServer, nil
}

// maxLocation limits the size of a file with a location in bytes.
const maxLocation = 64 << 10

// readLocation reads the only line of a file. Errors do not repeat it.
func readLocation(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxLocation {
		return "", fmt.Errorf("%s has %d bytes: it must be one line with the location", path, info.Size())
	}
	text, err := os.ReadFile(path) //nolint:gosec // the user named it
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(text))
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", fmt.Errorf("%s must be one line with the location of the account", path)
	}
	return line, nil
}

// explain says of which account a location is wrong.
func (a Account) explain(err error) error {
	what := "the default account, of " + Variable + " unless another location is given"
	if a.Name != "" {
		what = "account " + a.Name
	}
	if known := (*queue.Error)(nil); errors.As(err, &known) && known.Detail != "" {
		return fmt.Errorf("%s: %s; %s", what, known.Detail, known.Hint)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// oneQueue says why a queue has one pool.
const oneQueue = "each would start instances for the same messages; put it into one pool"

func (o *Opened) open(f *File) error {
	var errs []error
	taken := map[queue.Name]string{} // what has a queue, with the account in lower case, in which Azure has them
	for _, p := range f.Pools {
		queues, err := o.queues(p.Queues, "queues of pool "+p.Name)
		beacons, err2 := o.queues(p.Beacons, "beacons of pool "+p.Name)
		errs = append(errs, err, err2)
		for i, q := range queues {
			name := q.Name()
			name.Account = strings.ToLower(name.Account)
			if other, found := taken[name]; found {
				errs = append(errs, fmt.Errorf("queues of pool %s: %s is the queue %s: %s", p.Name, p.Queues[i], other, oneQueue))
				continue
			}
			taken[name] = fmt.Sprintf("%s of pool %s", p.Queues[i], p.Name)
		}
		o.Pools = append(o.Pools, agent.Pool{Name: p.Name, Queues: queues, Beacons: beacons, Policy: p.Policy})
	}
	return errors.Join(errs...)
}

// queues opens queues. Two names of accounts may be of the same account, so queues may turn out to be the same.
func (o *Opened) queues(names []Queue, what string) (opened []queue.Queue, err error) {
	seen := map[queue.Name]Queue{}
	for _, name := range names {
		q, err := o.accounts[name.Account].Open(name.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if first, found := seen[q.Name()]; found {
			return nil, fmt.Errorf("%s: %s and %s are the same queue, %s: name it once", what, first, name, q.Name())
		}
		seen[q.Name()] = name
		opened = append(opened, q)
	}
	return opened, nil
}
