package postgrestest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// state returns the state of a process and who its parent is.
func state(pid int) (letter byte, parent int, ok bool) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	// The name of the program is in brackets, and may contain some itself.
	n, _ := fmt.Sscanf(string(line[bytes.LastIndexByte(line, ')')+1:]), " %c %d", &letter, &parent)
	return letter, parent, n == 2
}

// alive reports whether a process runs. One that nobody has waited for does not.
func alive(pid int) bool {
	letter, _, ok := state(pid)
	return ok && letter != 'Z'
}

func childrenOf(pid int) (children []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		one, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if _, parent, ok := state(one); ok && parent == pid {
			children = append(children, one)
		}
	}
	return children
}
