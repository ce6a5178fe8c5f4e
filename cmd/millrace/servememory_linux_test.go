package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func isRaceBuild() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestStrangersCannotTakeTheMemoryOfAPublicServer sends 60 KiB of unfinished headers on each of many
// connections, and reads from outside how much memory the server took at most.
func TestStrangersCannotTakeTheMemoryOfAPublicServer(t *testing.T) {
	const connections, most = 6000, 200 << 10 // KiB
	if testing.Short() {
		t.Skip("holds thousands of connections")
	}
	if isRaceBuild() {
		t.Skip("the race detector takes several times the memory")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < connections+500 {
		t.Skipf("the limit of open files is %d, which is too low: raise it with ulimit -n", files.Cur)
	}
	p := start(t, "-public", "-serve-account", "shop:MDEyMzQ1Njc4OWFiY2RlZg==")
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(strings.Join(p.output, "\n"))
	text := "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a: "+strings.Repeat("b", 1000)+"\r\n", 60)
	held := make([]net.Conn, connections)
	var dialing sync.WaitGroup
	const dialers = 32
	for d := range dialers {
		dialing.Go(func() {
			for i := d; i < connections; i += dialers {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				held[i] = c
				_, _ = io.WriteString(c, text) // the server may close it
			}
		})
	}
	dialing.Wait()
	defer func() {
		for _, c := range held {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if peak == nil {
		t.Skip("this kernel does not report the largest resident set")
	}
	if got, err := strconv.Atoi(string(peak[1])); err != nil || got > most {
		t.Errorf("the server took %d KiB (%v), want at most %d", got, err, most)
	} else {
		t.Logf("the server took %d KiB", got)
	}
}
