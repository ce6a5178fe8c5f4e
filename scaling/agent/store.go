package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/scaling"
)

// store keeps the history of one pool in two files, so that the one that is often written is small: what is older than an hour, and the rest.
// Each has a line that says what it is, one line for each sample, and a last line with their number. It is written next to its
// place and then moved there, so that a kill leaves the old or the new one. Between two writes, each new sample is appended with
// another such last line, so that a kill of the process loses none. Only the goroutine of the pool uses it.
type store struct {
	pool     string
	folder   string
	old, new string // paths
	lock     *os.File
	writing  caller[*os.File]
	written  time.Time // when new was last tried; zero if it never was
	archived time.Time // of the newest sample in old; zero if there is none
	lines    int       // how many samples new has; 0 if nothing can be appended
	newest   time.Time // of the last one
}

const (
	keepInterval = time.Minute   // how long lies between two writes at least
	recent       = time.Hour     // samples of that time stay in new
	mostRecent   = 2 * time.Hour // when new has samples older than that, they move to old
)

// Format and version of the file.
const (
	historyFormat  = "millrace agent history"
	historyVersion = 1
)

// historyHead is the first line.
type historyHead struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Pool    string `json:"pool"`
}

// endPrefix is how a last line begins.
var endPrefix = []byte(`{"samples":`)

// historyEnd is the last line.
type historyEnd struct {
	Samples *int `json:"samples"`
}

// errNoHistory means that a file is not a history that can be used.
var errNoHistory = errors.New("the file is not a history of this pool")

// openStore locks the file of a pool for this process.
func openStore(folder, pool string) (*store, error) {
	lock, err := lockHistory(folder, pool)
	if err != nil {
		return nil, err
	}
	return &store{
		pool: pool, folder: folder, lock: lock,
		old: filepath.Join(folder, pool+".older.jsonl"), new: filepath.Join(folder, pool+".history.jsonl"),
	}, nil
}

// lockHistory locks the file of a pool for this process, in a folder that it makes if there is none.
func lockHistory(folder, pool string) (*os.File, error) {
	if err := openfile.MakeDirectory(os.Open, folder, 0o755); err != nil {
		return nil, fmt.Errorf("create the folder of the history: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, pool+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the history of pool %s: %w", pool, err)
	}
	locked, err := openfile.TryLock(lock)
	if err == nil && !locked {
		err = ErrInUse
	}
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock the history of pool %s in %s: %w", pool, folder, err)
	}
	return lock, nil
}

// mend makes the folder again if it was deleted, so that all of the history is written anew.
func (s *store) mend(ctx context.Context) error {
	lock, err := s.writing.call(ctx, requestTimeout, func(context.Context) (*os.File, error) {
		if info, err := s.lock.Stat(); err != nil || openfile.Linked(info) {
			return s.lock, err
		}
		return lockHistory(s.folder, s.pool)
	})
	if err == nil && lock != s.lock {
		s.close()
		s.lock, s.archived = lock, time.Time{}
	}
	return err
}

func (s *store) close() {
	if s != nil {
		_ = s.lock.Close()
	}
}

// read returns what the files have. A file that cannot be used is moved aside, so that nothing is lost if it is somebody's.
func (s *store) read(now time.Time) (h scaling.History, errs []error) {
	for _, path := range []string{s.old, s.new} {
		part, err := readHistory(path, s.pool, now)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if path == s.old && len(part) > 0 {
			s.archived = part[len(part)-1].At
		}
		for len(part) > 0 && len(h) > 0 && !h[len(h)-1].At.Before(part[0].At) { // a kill between two writes leaves some twice
			h = h[:len(h)-1]
		}
		h = append(h, part...)
	}
	return h, errs
}

// readHistory reads one file. One that is missing has no samples.
func readHistory(path, pool string, now time.Time) (scaling.History, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var h scaling.History
	if err == nil {
		h, err = parseHistory(text, pool, now)
	}
	if err != nil {
		aside := path + ".unusable"
		if moved := os.Rename(path, aside); moved != nil {
			return nil, errors.Join(err, moved)
		}
		return nil, fmt.Errorf("%w; it is now %s", err, aside)
	}
	return h, nil
}

func parseHistory(text []byte, pool string, now time.Time) (scaling.History, error) {
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	var head historyHead
	if err := json.Unmarshal(lines[0], &head); err != nil || head.Format != historyFormat {
		return nil, fmt.Errorf("%w: its first line does not say %q", errNoHistory, historyFormat)
	}
	if head.Version != historyVersion {
		return nil, fmt.Errorf("%w: it has version %d, and this program reads version %d", errNoHistory, head.Version, historyVersion)
	}
	if head.Pool != pool {
		return nil, fmt.Errorf("%w: it is that of pool %q", errNoHistory, head.Pool)
	}
	h := make(scaling.History, 0, len(lines)-1)
	samples, whole := 0, -1 // how many samples were read, and how many of h are good
	for i, line := range lines[1:] {
		if bytes.HasPrefix(line, endPrefix) {
			var end historyEnd
			if err := json.Unmarshal(line, &end); err != nil || end.Samples == nil || *end.Samples != samples {
				break
			}
			whole = len(h)
			continue
		}
		var s scaling.Sample
		if err := json.Unmarshal(line, &s); err != nil {
			if whole >= 0 {
				break // the process was killed while it appended this one
			}
			return nil, fmt.Errorf("%w: line %d: %w", errNoHistory, i+2, err)
		}
		samples++
		// What lies in the future was written by a clock that was wrong; the policy goes by time.
		if s.At.After(now) || len(h) > 0 && !s.At.After(h[len(h)-1].At) {
			continue
		}
		h = append(h, s)
	}
	if whole < 0 {
		return nil, fmt.Errorf("%w: it has %d lines and no last one with the number of samples, so it is not whole", errNoHistory, len(lines))
	}
	return h[:whole], nil
}

// due reports whether it is time to write.
func (s *store) due() bool { return s.written.IsZero() || time.Since(s.written) >= keepInterval }

// write writes the history, or what was added to it lately. A slow disk delays it, and nothing else.
func (s *store) write(ctx context.Context, h scaling.History, end bool) error {
	s.written = time.Now()
	s.lines = 0
	if len(h) == 0 {
		return nil
	}
	if err := s.mend(ctx); err != nil {
		return err
	}
	newest := h[len(h)-1].At
	first := since(h, s.archived) // the first sample that is not in old
	if first < len(h) && newest.Sub(h[first].At) > mostRecent || end && first < since(h, newest.Add(-recent)) {
		split := since(h, newest.Add(-recent))
		if err := s.replace(ctx, s.old, h[:split]); err != nil {
			return err
		}
		first, s.archived = split, h[split-1].At
	}
	if err := s.replace(ctx, s.new, h[first:]); err != nil {
		return err
	}
	s.lines, s.newest = len(h)-first, newest
	return nil
}

// append adds the newest sample to what was written. A failure costs nothing that the next write does not bring back, and shows
// there.
func (s *store) append(ctx context.Context, h scaling.History) {
	last := &h[len(h)-1]
	if s.lines == 0 || !last.At.After(s.newest) {
		return
	}
	text, err := formatSamples(h[len(h)-1:], s.lines+1)
	if err == nil {
		_, err = s.writing.call(ctx, requestTimeout, func(context.Context) (*os.File, error) {
			return nil, appendFile(s.new, text)
		})
	}
	if err != nil {
		s.lines = 0
		return
	}
	s.lines++
	s.newest = last.At
}

func appendFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// since returns the index of the first sample after a time.
func since(h scaling.History, at time.Time) int {
	i, _ := slices.BinarySearchFunc(h, at, func(s scaling.Sample, at time.Time) int {
		if s.At.After(at) {
			return 1
		}
		return -1
	})
	return i
}

// replace puts these samples in place of a file.
func (s *store) replace(ctx context.Context, path string, h scaling.History) error {
	text, err := formatHistory(s.pool, h)
	if err != nil {
		return err
	}
	_, err = s.writing.call(ctx, requestTimeout, func(context.Context) (*os.File, error) {
		return nil, replaceFile(path, text)
	})
	return err
}

func formatHistory(pool string, h scaling.History) ([]byte, error) {
	head, err := json.Marshal(historyHead{historyFormat, historyVersion, pool})
	if err != nil {
		return nil, err
	}
	samples, err := formatSamples(h, len(h))
	return slices.Concat(head, []byte("\n"), samples), err
}

// formatSamples returns the lines of samples, and the last line of a file that has n of them with these.
func formatSamples(h scaling.History, n int) ([]byte, error) {
	var b bytes.Buffer
	w := json.NewEncoder(&b) // ends each value with a line break
	for i := range h {
		if err := w.Encode(&h[i]); err != nil {
			return nil, fmt.Errorf("sample of %v: %w", h[i].At, err)
		}
	}
	err := w.Encode(historyEnd{&n})
	return b.Bytes(), err
}

// replaceFile puts a file in place of another as a whole.
func replaceFile(path string, text []byte) (err error) {
	f, err := os.Create(path + ".new") // the lock keeps others away
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(text); err != nil {
		return err
	}
	if err = f.Sync(); err != nil { // or a crash of the machine may leave an empty file under the name
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// memory is the history of one pool, as long as its policy looks back. Only the goroutine of the pool uses it.
type memory struct {
	samples scaling.History
	keep    time.Duration
}

// leastMemory is how long samples are kept at least.
const leastMemory = time.Hour

func newMemory(p scaling.Policy) memory {
	if p.Forecast {
		return memory{} // as long as a History keeps them
	}
	return memory{keep: max(2*p.WithDefaults().DownAfter, leastMemory)}
}

// add adds the newest sample, given how much time has passed since the one before in this process, zero for the first, and forgets what
// is too old. If the clock was set back since the one before, the whole history is
// set back with it: how far its samples lie apart is known. If the clock was set forward, or the machine has slept, which looks the same, there
// is a gap.
func (m *memory) add(s scaling.Sample, p passed) {
	if back := p.setBack(); back > 0 {
		for i := range m.samples {
			m.samples[i].At = m.samples[i].At.Add(-back)
		}
	}
	m.restore(s)
	old := 0
	for m.keep > 0 && old < len(m.samples) && s.At.Sub(m.samples[old].At) > m.keep {
		old++
	}
	m.samples = m.samples[:copy(m.samples, m.samples[old:])]
}

func (m *memory) restore(s scaling.Sample) { m.samples.Add(s) }

func (m *memory) last() (scaling.Sample, bool) {
	if len(m.samples) == 0 {
		return scaling.Sample{}, false
	}
	return m.samples[len(m.samples)-1], true
}

// hold keeps what somebody else has added, such as an operator by hand, for as long as the policy keeps what the load has
// called for. So it does with what the agent before this one has added just before it was killed, and did not write down. What somebody else has removed is not held: the load then decides at once, because jobs wait. Only the goroutine of the pool uses it.
type hold struct {
	last  scaling.Optional[int] // instances at the measurement before
	goal  scaling.Optional[int] // what we have asked for, until it is there
	added int                   // what somebody else has set
	at    time.Time             // when that was seen; zero if it never was
}

// see compares the number of instances with the one before. A platform may take its time, so everything between that one
// and what was asked for is ours.
func (h *hold) see(at time.Time, instances int) {
	last, known := h.last.Get()
	if known && instances > max(last, h.goal.Or(last)) {
		h.added, h.at = instances, at
	}
	h.last = scaling.Known(instances)
	if instances == h.goal.Or(instances) {
		h.goal = scaling.Optional[int]{}
	}
}

func (h *hold) asks(n int) { h.goal = scaling.Known(n) }

// apply returns the decision about a sample, or one that removes nothing for now.
func (h *hold) apply(at time.Time, p scaling.Policy, d scaling.Decision) scaling.Decision {
	p = p.WithDefaults()
	keep := min(d.From, p.Max)
	if h.at.IsZero() || at.Sub(h.at) >= p.DownAfter || d.Instances >= keep {
		return d
	}
	d.Why = fmt.Sprintf("%s stays so for %v, because somebody else, or an agent before this one, had set %d at %s; %d would do: %s",
		change(d.From, keep), p.DownAfter, h.added, h.at.Format(time.TimeOnly), d.Instances, d.Why)
	d.Instances = keep
	return d
}

func change(from, to int) string {
	if from == to {
		return fmt.Sprintf("%d:", from)
	}
	return fmt.Sprintf("%d → %d:", from, to)
}
