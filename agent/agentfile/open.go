package agentfile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

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
		account, err := a.open(getenv, s.Default)
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

func (a Account) open(getenv func(string) string, otherwise string) (*azurequeue.Account, error) {
	location, err := a.location(getenv, otherwise)
	if err != nil {
		return nil, err
	}
	return azurequeue.OpenAccount(location, nil)
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

func (o *Opened) open(f *File) error {
	var errs []error
	for _, p := range f.Pools {
		queues, err := o.queues(p.Queues, "queues of pool "+p.Name)
		beacons, err2 := o.queues(p.Beacons, "beacons of pool "+p.Name)
		errs = append(errs, err, err2)
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
