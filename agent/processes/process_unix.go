//go:build unix && !solaris && !illumos && !aix

package processes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// errLocked is the error of lockFile for a file that somebody else has locked.
var errLocked = errors.New("locked")

// lockFile opens and locks a file. The kernel releases the lock when all processes that have inherited the open file have ended or closed
// it, however they end.
func lockFile(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the other error says more
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}

// recordAndRun is run by the shell. The process writes its own id into the locked file that it has inherited, and only then becomes the
// program. So every program has its id on record, whenever the agent is killed.
const recordAndRun = `echo $$ >&3 || exit 121; exec "$@"`

// notRecorded is the exit status of recordAndRun if the id could not be written.
const notRecorded = 121

// inherited is the file descriptor that an instance has the locked file as.
const inherited = 3

// process is the process of an instance. It lives as long as the lock on its file is held, because it has inherited that; ids of
// processes are used again, locks are not.
type process struct {
	pid  int      // 0 if it has not been read yet
	own  bool     // it is a child of this process
	lock *os.File // opened by itself, without the lock, to look who has it
}

// begin starts a program in a session of its own, so that neither Ctrl-C nor the end of the agent's terminal reaches it. The first
// element of the command must be a path.
func begin(root *os.Root, name string, command, env []string, out *os.File) (*process, error) {
	lock, err := lockFile(root, name)
	if errors.Is(err, errLocked) {
		// By something that the former process of this number has left behind.
		if err := root.Remove(name); err != nil {
			return nil, err
		}
		lock, err = lockFile(root, name)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }() // now only the process has it
	if err := lock.Truncate(0); err != nil {
		return nil, err
	}
	look, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		_ = look.Close()
		return nil, err
	}
	defer func() { _ = nothing.Close() }()
	one, err := os.StartProcess("/bin/sh", append([]string{"/bin/sh", "-c", recordAndRun, "sh"}, command...), &os.ProcAttr{
		Env:   (&exec.Cmd{Env: env}).Environ(), // without the former ones of the same name
		Files: []*os.File{nothing, out, out, inherited: lock},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = look.Close()
		return nil, err
	}
	p := &process{pid: one.Pid, own: true, lock: look}
	_ = one.Release() // ended waits for it, without blocking
	return p, nil
}

// find returns the process that a former agent has started, or nil if it has ended.
func find(root *os.Root, name string) (*process, error) {
	lock, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	p := &process{lock: lock}
	if !p.held() || p.known() && !p.isIt() {
		p.close()
		return nil, nil
	}
	return p, nil
}

func (p *process) close() { _ = p.lock.Close() } // it was only read

// known reports whether the process can be told something: whether its id is known. That of a process that was started in the moment
// in which the agent was killed comes soon.
func (p *process) known() bool {
	if p.pid != 0 {
		return true
	}
	var text [32]byte
	n, _ := p.lock.ReadAt(text[:], 0) // the file is shorter, which is an error
	line, _, whole := strings.Cut(string(text[:n]), "\n")
	if pid, err := strconv.Atoi(line); whole && err == nil && pid > 1 {
		p.pid = pid
	}
	return p.pid != 0
}

// ended reports whether the process has ended, and how. It reaps a child that has.
func (p *process) ended() (done bool, how string) {
	if p.own {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
		switch {
		case err == nil && pid == p.pid:
			if p.held() { // by other processes of its session, which are of no use without it
				_ = syscall.Kill(-p.pid, syscall.SIGKILL)
			}
			return true, describe(status)
		case err == nil, errors.Is(err, syscall.EINTR):
			return false, ""
		}
		p.own = false // this program waited for any child
	}
	if p.held() && (!p.known() || p.isIt()) {
		return false, ""
	}
	if p.pid != 0 { // it may be a child nevertheless, started before the last Close
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil); {
		case err == nil && pid == p.pid:
			return true, describe(status)
		case err == nil: // files are closed a little before there is a status
			return false, ""
		}
	}
	return true, "its status is unknown, because another agent had started it"
}

// held reports whether some process has inherited the lock.
func (p *process) held() bool {
	if syscall.Flock(int(p.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return true // also if it cannot be known
	}
	_ = syscall.Flock(int(p.lock.Fd()), syscall.LOCK_UN)
	return false
}

// isIt reports whether the process of this id has the file open, and is none that has the same id by chance, later.
func (p *process) isIt() bool {
	if runtime.GOOS == "linux" {
		its, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", p.pid, inherited))
		if err == nil {
			ours, err := p.lock.Stat()
			return err != nil || os.SameFile(its, ours)
		}
		if _, gone := os.Stat("/proc/self"); gone == nil && errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	// Elsewhere the held lock must do: the id is used again only if the process has left another one behind.
	return !errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH)
}

// tell tells the process to end. Others of its session are not told: what it has started for a job is part of the job.
func (p *process) tell() error { return p.signal(p.pid, syscall.SIGTERM) }

func (p *process) kill() error { return p.signal(-p.pid, syscall.SIGKILL) }

func (p *process) signal(to int, s syscall.Signal) error {
	if !p.own && !p.isIt() {
		return nil // it has ended, which is what was wanted
	}
	if err := syscall.Kill(to, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", s, p.pid, err)
	}
	return nil
}

func describe(s syscall.WaitStatus) string {
	switch {
	case s.Signaled():
		return "killed by signal " + s.Signal().String()
	case s.ExitStatus() == notRecorded:
		return fmt.Sprintf("exit status %d: if the program itself did not return that, its id could not be written into the folder", notRecorded)
	default:
		return fmt.Sprintf("exit status %d", s.ExitStatus())
	}
}
