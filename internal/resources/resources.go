// Package resources tells how much memory and processor time this process uses, and how much of them it may use.
package resources

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// eachGroup calls f for the control groups of this process that have a controller, and for those around each, until it fails.
// In a container a group may be named as the host sees it, and be mounted as the root. It does nothing without control groups.
func eachGroup(root fs.FS, controller string, f func(version int, group string) error) error {
	text, err := readText(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not Linux
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) { // such as "0::/a/b" or "4:memory:/a/b"
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var version int
		switch {
		case fields[0] == "0" && fields[1] == "":
			version = 2
		case slices.Contains(strings.Split(fields[1], ","), controller):
			version = 1
		default:
			continue
		}
		for group := cmp.Or(strings.TrimPrefix(path.Clean("/"+fields[2]), "/"), "."); ; group = path.Dir(group) {
			if err := f(version, group); err != nil {
				return err
			}
			if group == "." || group == "/" {
				break
			}
		}
	}
	return nil
}

func readText(root fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(root, name)
	return string(b), err
}
