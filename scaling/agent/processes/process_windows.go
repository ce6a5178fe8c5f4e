package processes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// process is the process of an instance. It is identified by its id and the time of its creation,
// which together are never used again.
type process struct {
	pid    int
	handle syscall.Handle
}

const (
	access    = syscall.SYNCHRONIZE | syscall.PROCESS_QUERY_INFORMATION | syscall.PROCESS_TERMINATE
	ctrlBreak = 1
)

var generateConsoleCtrlEvent = syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")

// begin starts a program in a process group of its own, which Ctrl-C does not reach. An agent that
// is killed before the id is written leaves a process that the next one does not find.
func begin(root *os.Root, name string, _ *os.File, command, env []string, out *os.File) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p, err := opened(cmd.Process.Pid)
	if err == nil {
		err = root.WriteFile(name, p.record(), 0o600)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("record process %d: %w", cmd.Process.Pid, err), cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		return nil, err
	}
	_ = cmd.Process.Release()
	return p, nil
}

func opened(pid int) (*process, error) {
	handle, err := syscall.OpenProcess(access, false, uint32(pid))
	return &process{pid: pid, handle: handle}, err
}

// record is the id and the time of creation, which is known while the handle is open.
func (p *process) record() []byte {
	var created, exited, kernel, user syscall.Filetime
	_ = syscall.GetProcessTimes(p.handle, &created, &exited, &kernel, &user)
	return fmt.Appendf(nil, "%d %d\n", p.pid, created.Nanoseconds())
}

// find returns the process that a former agent has started, or nil if it has ended.
func find(root *os.Root, name string, _ time.Duration) (*process, error) {
	text, err := root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var pid int
	_, _ = fmt.Sscan(string(text), &pid) // it is 0 if the agent was killed when it wrote
	p, err := opened(pid)
	if err != nil {
		return nil, nil // there is none
	}
	if done, _ := p.ended(); done || string(p.record()) != string(text) {
		p.close()
		return nil, nil
	}
	return p, nil
}

func (p *process) close() { _ = syscall.CloseHandle(p.handle) }

// held is always true: here no lock tells whether a process lives.
func (p *process) held() bool { return true }

func (p *process) ended() (done bool, how string) {
	if event, err := syscall.WaitForSingleObject(p.handle, 0); err != nil || event != syscall.WAIT_OBJECT_0 {
		return false, ""
	}
	var status uint32
	_ = syscall.GetExitCodeProcess(p.handle, &status) // or it is shown as 0
	return true, "exit status " + strconv.FormatUint(uint64(status), 10)
}

// tell tells the process to end, by Ctrl-Break, which Go programs see as os.Interrupt. It needs the
// console of the agent.
func (p *process) tell() error {
	if ok, _, err := generateConsoleCtrlEvent.Call(ctrlBreak, uintptr(p.pid)); ok == 0 {
		return fmt.Errorf("send Ctrl-Break to process %d: %w", p.pid, err)
	}
	return nil
}

func (p *process) kill() error { return syscall.TerminateProcess(p.handle, 1) }
