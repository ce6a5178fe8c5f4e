package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// shortForm is the connection string of the development account at the default address.
const shortForm = "UseDevelopmentStorage=true"

// startupText says what is served, where, and how to connect.
func (s *settings) startupText(address string, url func(account string) string, d *data) string {
	var text strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&text, "  %-19s "+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintf(&text, "Millrace %s serves the Azure Queue Storage protocol.\n", version())
	line("address", "%s", address)
	kept, damage := d.summary()
	line("data", "%s", kept)
	for _, one := range damage {
		line("  damage", "%s", one)
	}
	if len(s.rules) > 0 {
		line("faults", "%s (repeat with -seed %d)", formatFaults(s.rules), s.seed)
	}
	if limits := s.quotas.String(); limits != "" {
		line("limits", "%s a second", limits)
	}
	if s.public && s.cert == "" {
		line("note", "other machines can connect without TLS, so the traffic can be read")
	}
	for _, account := range s.accountNames() {
		line("account", "%s", url(account))
		key := emulator.DevelopmentKey
		if s.isSecret(account) {
			key = "(your key)"
		}
		long := connectionString(url(account), account, key)
		if !s.isSecret(account) && s.cert == "" && isDefaultAddress(address) {
			line("connection string", "%s", shortForm)
			line("  or", "%s", long)
		} else {
			line("connection string", "%s", long)
		}
		// Without a secondary location the Python client reads the stats from an address in the cloud.
		// It must have no scheme, for which other clients refuse a connection string.
		_, secondary, _ := strings.Cut(url(account), "://")
		line("  for Python", "%s", long+"QueueSecondaryEndpoint="+secondary+"-secondary;")
	}
	if step := s.firstCommand(address, url); step != "" {
		line("from another shell", "%s", step)
	}
	text.WriteString("Stop it with Ctrl-C.\n")
	return text.String()
}

// firstCommand returns a command to try first, with the location of this server if commands do
// not find it by default.
func (s *settings) firstCommand(address string, url func(account string) string) string {
	const account = emulator.DevelopmentAccount
	const create = "millrace create orders"
	switch {
	case s.cert != "" || s.public || s.isSecret(account):
		return ""
	case isDefaultAddress(address):
		return create
	}
	return fmt.Sprintf("export %s='%s'; %s", accountVariable, connectionString(url(account), account, emulator.DevelopmentKey), create)
}

// accountNames returns the names of the accounts, the development account first.
func (s *settings) accountNames() []string {
	var names []string
	if !s.public || s.keys[emulator.DevelopmentAccount] != nil {
		names = append(names, emulator.DevelopmentAccount)
	}
	for _, name := range slices.Sorted(maps.Keys(s.keys)) {
		if name != emulator.DevelopmentAccount {
			names = append(names, name)
		}
	}
	return names
}

func (s *settings) isSecret(account string) bool {
	return account != emulator.DevelopmentAccount || s.keys[account] != nil
}

func isDefaultAddress(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	return err == nil && (host == "127.0.0.1" || host == "localhost") && port == "10001"
}

func connectionString(url, account, key string) string {
	scheme := "http"
	if strings.HasPrefix(url, "https") {
		scheme = "https"
	}
	return fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;QueueEndpoint=%s;", scheme, account, key, url)
}

// data is the served data, in memory or in a directory.
type data struct {
	engine *localqueue.Engine
	dir    string           // "" in memory
	found  *filequeue.Found // contents of the directory at the start; nil in memory
	heap   []byte           // heap ballast, see heapSize
}

// heapSize is the size of an unused heap allocation, which takes addresses but no memory. The
// collector runs when the heap has doubled. With messages in a directory the heap is so small
// that this happens several times a second, and takes a tenth of the server's CPU time. A higher
// GOGC would let large heaps grow by the same factor. With messages in memory it has no effect.
const heapSize = 32 << 20

// openData opens the engine of the settings. It must be closed.
func (s *settings) openData() (*data, error) {
	if s.data == "" {
		engine, err := localqueue.New(s.engineOptions())
		if err != nil {
			return nil, err
		}
		return &data{engine: engine}, nil
	}
	engine, err := filequeue.Open(s.data, s.engineOptions())
	if errors.Is(err, filequeue.ErrCorrupt) {
		return nil, fmt.Errorf("-data: %w; nothing was changed: move the file away to start empty, or use another directory", err)
	}
	if err != nil {
		return nil, fmt.Errorf("-data: %w", err)
	}
	found := engine.Found()
	return &data{engine: engine.Engine, dir: s.data, found: &found, heap: make([]byte, heapSize)}, nil
}

func (d *data) close() error {
	if err := d.engine.Close(); err != nil {
		return fmt.Errorf("close the data in %s: %w", d.dir, err)
	}
	return nil
}

// maxDamage limits the damage that is printed. Badly damaged files have many entries.
const maxDamage = 10

// summary describes the data on one line, and its damage on more.
func (d *data) summary() (line string, damage []string) {
	if d.found == nil {
		return "in memory only: lost when the server stops", nil
	}
	damage = slices.Clone(d.found.Damage[:min(len(d.found.Damage), maxDamage)])
	if more := d.found.Damaged - len(damage); more > 0 {
		damage = append(damage, fmt.Sprintf("and %d more", more))
	}
	if d.found.Copy != "" {
		damage = append(damage, "the original file is kept as "+d.found.Copy)
	}
	line = fmt.Sprintf("%s: %s in %s", d.dir, plural(d.found.Messages, "message"), plural(d.found.Queues, "queue"))
	if d.found.Torn {
		line += "; the log ends in the middle of a commit, as after a kill or a power cut; if the disk lost its end, acknowledged changes may be missing"
	}
	return line, damage
}

// plural returns a number of things, such as "2 bodies".
func plural[N int | int64](n N, what string) string {
	switch {
	case n == 1:
	case what == "body":
		what = "bodies"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (s *settings) engineOptions() *localqueue.Options {
	o := &localqueue.Options{DeletingFor: s.deletingFor, Seed: s.seed}
	if o.DeletingFor == 0 {
		o.DeletingFor = -1 // zero would be the default
	}
	return o
}

func versionCommand() *command {
	asJSON := false
	f := newFlags("version")
	f.BoolVar(&asJSON, "json", false, "print a JSON object")
	return &command{name: "version", does: "print the version", flags: f,
		run: func(_ context.Context, c *console, _ []string) error {
			if asJSON {
				return printJSON(c.out, newBuild(buildInfo()))
			}
			_, err := fmt.Fprintln(c.out, "millrace", version())
			return err
		}}
}

// build is the version of the program, as version prints it in JSON.
type build struct {
	Version  string `json:"version"`  // of the module, such as v0.1.0, or (devel)
	Revision string `json:"revision"` // the commit; "" if it is not known
	Modified bool   `json:"modified"` // built from files that were not committed
	Go       string `json:"go"`
}

func version() string { return describe(buildInfo()) }

func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo() // every binary of go build has it
	return info
}

func newBuild(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	b.Version = cmp.Or(b.Version, "(devel)")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// describe returns the module's version or, without one, the commit of the build.
func describe(info *debug.BuildInfo) string {
	b := newBuild(info)
	text := b.Version
	if text == "(devel)" && b.Revision != "" {
		text += " " + b.Revision[:min(12, len(b.Revision))]
	}
	if text != b.Version && b.Modified {
		text += " modified"
	}
	return text + " " + b.Go
}
