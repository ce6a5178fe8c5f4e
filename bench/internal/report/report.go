// Package report writes what a benchmark has measured: its table to the output and to a page of the
// documentation, its plot to files.
package report

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Report is where the results of a benchmark go, beside its output.
type Report struct {
	name, load, svg, page string
}

// New defines the flags -svg and -page of the benchmark of this name. It reads the load of the machine, so the
// benchmark must not have begun.
func New(name string, flags *flag.FlagSet) *Report {
	r := &Report{name: name, load: loadBefore()}
	flags.StringVar(&r.svg, "svg", "", "write the plot to this file")
	flags.StringVar(&r.page, "page", "", "write the table to this page, between its marks, and the plot to images/"+name+".svg beside it")
	return r
}

// NewWithoutPlot defines the flag -page alone, for a benchmark that has no plot; otherwise it is [New].
func NewWithoutPlot(name string, flags *flag.FlagSet) *Report {
	r := &Report{name: name, load: loadBefore()}
	flags.StringVar(&r.page, "page", "", "write the table to this page, between its marks")
	return r
}

// WriteTable writes the table to the output, and above it and it to the page if -page asks for that.
func (r *Report) WriteTable(out io.Writer, above, table string) error {
	_, err := io.WriteString(out, table)
	if r.page != "" {
		err = errors.Join(err, r.writePage(above+table))
	}
	return err
}

// Write writes the table to the output, and the plot and the page if the flags ask for them. On the page,
// above comes before the table.
func (r *Report) Write(out io.Writer, above, table, plot string) error {
	_, err := io.WriteString(out, table)
	if r.svg != "" {
		err = errors.Join(err, os.WriteFile(r.svg, []byte(plot), 0o644))
	}
	if r.page != "" {
		image := filepath.Join(filepath.Dir(r.page), "images", r.name+".svg")
		err = errors.Join(err, os.WriteFile(image, []byte(plot), 0o644), r.writePage(above+table))
	}
	return err
}

// WriteImage writes another plot to images/NAME.svg beside the page, if -page asks for one.
func (r *Report) WriteImage(name, plot string) error {
	if r.page == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(filepath.Dir(r.page), "images", name+".svg"), []byte(plot), 0o644)
}

// Machine says what was measured on.
func (r *Report) Machine() string {
	return fmt.Sprintf("%d processors, %s/%s, %s%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), r.load)
}

// marks returns the lines of the page around what is replaced.
func (r *Report) marks() (begin, end string) {
	return fmt.Sprintf("<!-- %[1]s: written by bench/%[1]s -->\n", r.name), fmt.Sprintf("<!-- %s: end -->\n", r.name)
}

// writePage replaces what is between the marks of the page.
func (r *Report) writePage(content string) error {
	text, err := os.ReadFile(r.page)
	if err != nil {
		return err
	}
	begin, end := r.marks()
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("%s does not have the lines %q and %q", r.page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(r.page, []byte(before+begin+"\n"+content+"\n"+end+after), 0o644)
}

// loadBefore returns what Linux says of the other work of the machine; nothing elsewhere.
func loadBefore() string {
	text, err := os.ReadFile("/proc/loadavg")
	minute, _, found := strings.Cut(string(text), " ")
	if err != nil || !found {
		return ""
	}
	return fmt.Sprintf(", a load of %s in the minute before", minute)
}
