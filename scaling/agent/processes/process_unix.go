//go:build unix && !solaris && !illumos && !aix

package processes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/openfile"
)

// recordAndRun is run by the shell. The process writes what identifies it into the locked file that
// it has inherited, and only then becomes the program. So every program has that on record,
// whenever the agent is killed. It is the id, and on Linux the time of the start and the boot: the
// 22nd field of stat, the 20th after the name. Variables of the subshell do not reach the program.
const recordAndRun = `record() { echo "$$ ${20} $boot" >&3; }
( { read -r stat </proc/$$/stat; read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
record ${stat##*) } ) || exit 121; exec "$@"`

// notRecorded is the exit status of recordAndRun if the record could not be written.
const notRecorded = 121

// process is the process of an instance. On Linux it is identified by its start, which no other
// process has. Elsewhere it lives as long as the lock on its file is held, which it has inherited:
// ids of processes are used again, locks are not.
type process struct {
	pid   int
	start string   // see startOf; empty where that is unknown
	child bool     // of this process, which has not reaped it yet
	lock  *os.File // opened by itself, without the lock, to look who has it
}

var bootID = sync.OnceValue(func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // it is empty on other systems
	return strings.TrimSpace(string(text))
})

// startOf is when a process started, as recordAndRun writes it. It is empty if the process has
// ended, and on systems other than Linux.
func startOf(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
		return "", err
	}
	stat := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(stat) < 20 || stat[0] == "Z" || stat[0] == "X" {
		return "", nil
	}
	return stat[19] + " " + bootID(), nil
}

// begin starts a program in a session of its own, so that neither Ctrl-C nor the end of the agent's
// terminal reaches it. The first element of the command must be a path.
func begin(root *os.Root, name string, lock *os.File, command, env []string, out *os.File) (*process, error) {
	look, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", recordAndRun, "sh"}, command...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = env, out, out, []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = look.Close()
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, child: true, lock: look}
	p.start, _ = startOf(p.pid) // what cannot be known now is read from the record by the next agent
	_ = cmd.Process.Release()   // ended waits for it, without blocking
	return p, nil
}

// find returns the process that a former agent has started, or nil if it has ended. One that was
// started in the moment in which the agent was killed writes its record soon. If none comes and the
// file stays locked, the process may be any: that is an error.
func find(root *os.Root, name string, patience time.Duration) (*process, error) {
	lock, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	p := &process{lock: lock}
	for begin := time.Now(); p.pid == 0 && p.held(); time.Sleep(time.Millisecond) {
		if p.read(); p.pid == 0 && time.Since(begin) > patience {
			p.close()
			return nil, fmt.Errorf("a process has %s locked and is perhaps the instance, but the file does not say which one it is: end it (fuser finds it), and delete the file", lock.Name())
		}
	}
	if p.read(); !p.alive() {
		p.close()
		return nil, nil
	}
	return p, nil
}

func (p *process) close() { _ = p.lock.Close() } // it was only read

// read reads the record, if it is whole.
func (p *process) read() {
	text := make([]byte, 128)
	n, _ := p.lock.ReadAt(text, 0) // the file is shorter, which is an error
	line, _, whole := strings.Cut(string(text[:n]), "\n")
	id, start, _ := strings.Cut(line, " ")
	if pid, err := strconv.Atoi(id); whole && err == nil && pid > 1 {
		p.pid, p.start = pid, strings.TrimSpace(start)
	}
}

// record returns what recordAndRun has written.
func (p *process) record() []byte { return fmt.Appendln(nil, p.pid, p.start) }

// ended reports whether the process has ended, and how. It reaps a child that has.
func (p *process) ended() (done bool, how string) {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
	p.child = err == nil && pid != p.pid
	switch {
	case err == nil && pid == p.pid:
		if p.held() { // by other processes of its session, which are of no use without it
			_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		}
		return true, describe(status)
	case p.child, errors.Is(err, syscall.EINTR), p.alive():
		return false, ""
	}
	return true, "its status is unknown, because another agent had started it"
}

// held reports whether some process has inherited the lock.
func (p *process) held() bool {
	if free, _ := openfile.TryLock(p.lock); !free {
		return true // also if it cannot be known
	}
	_ = openfile.Unlock(p.lock)
	return false
}

// alive reports whether the process runs, and is none that has the same id by chance, later.
// Without the time of its start the held lock must do: the id is used again only if the process has
// left another one behind.
func (p *process) alive() bool {
	if p.start != "" {
		start, err := startOf(p.pid)
		return err != nil || start == p.start // what cannot be seen may run
	}
	return p.pid != 0 && (p.child || p.held() && !errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH))
}

// tell tells the process to end. Others of its session are not told: what it has started for a job
// is part of the job.
func (p *process) tell() error { return p.signal(p.pid, syscall.SIGTERM) }

func (p *process) kill() error { return p.signal(-p.pid, syscall.SIGKILL) }

func (p *process) signal(to int, s syscall.Signal) error {
	if !p.alive() {
		return nil // it has ended, which is what was wanted
	}
	if err := syscall.Kill(to, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", s, p.pid, err)
	}
	return nil
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "killed by signal " + s.Signal().String()
	}
	if s.ExitStatus() == notRecorded {
		return fmt.Sprintf("exit status %d: if the program itself did not return that, its id could not be written into the folder", notRecorded)
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
