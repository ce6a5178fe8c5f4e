package processes

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// NumberVariable is the environment variable that tells an instance its number: 1 or more, and no other instance of the folder that
// runs has the same. A number is used again when its instance has ended; one that is started again keeps its own.
const NumberVariable = "MILLRACE_INSTANCE"

// Options configure [Processes].
type Options struct {
	// Command is the program of an instance and its arguments. The program is searched for in the PATH, once, by New. It must be set.
	Command []string

	// Env are settings added to this process's environment, each "NAME=value". They replace those of the same name. Defaults to none.
	Env []string

	// Folder is where it is kept which processes run, so that the next agent finds them. It is made if it does not exist. Each pool
	// needs a folder of its own, on a disk of this machine. It must be set.
	Folder string

	// Grace is how long an instance may take to finish its jobs after it was told to end, before it is killed. It should be longer than
	// the grace of the instance's own listeners. Defaults to 1 min.
	Grace time.Duration

	// Output is where the output of the instances goes, each line as "[number] line". It may block: the instances work on meanwhile.
	// Defaults to os.Stderr.
	Output io.Writer

	// Logger logs starts and ends. Defaults to slog.Default().
	Logger *slog.Logger
}

// withDefaults returns the options with everything set, or everything that is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var wrong []error
	if len(o.Command) == 0 || o.Command[0] == "" {
		wrong = append(wrong, errors.New("there is no Command, the program of an instance"))
	} else if path, err := program(o.Command[0]); err != nil {
		wrong = append(wrong, fmt.Errorf("the Command cannot be run: %w", err))
	} else {
		o.Command = append([]string{path}, o.Command[1:]...)
	}
	for _, one := range o.Env {
		if name, _, found := strings.Cut(one, "="); !found || name == "" {
			wrong = append(wrong, fmt.Errorf("%q in Env is not of the form NAME=value", one))
		}
	}
	if o.Folder == "" {
		wrong = append(wrong, errors.New("there is no Folder, in which it is kept which processes run"))
	}
	switch {
	case o.Grace < 0:
		wrong = append(wrong, fmt.Errorf("the Grace of %v is negative", o.Grace))
	case o.Grace == 0:
		o.Grace = time.Minute
	}
	if o.Output == nil {
		o.Output = os.Stderr
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(wrong...)
}

func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
