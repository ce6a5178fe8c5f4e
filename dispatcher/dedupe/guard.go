package dedupe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/internal/waiting"
)

// Defaults of [Options].
const (
	defaultMaxKeys   = 100_000
	defaultRetention = 24 * time.Hour
	defaultTimeout   = 5 * time.Second
)

// Options configure a [Guard]. Nil and the zero value mean the defaults.
type Options struct {
	// MaxKeys is how many keys this process remembers; the one that was recorded first is forgotten
	// first. It must exceed the jobs that are handled until a duplicate comes: 2,000 jobs a second
	// and a visibility of 30 s make 60,000. A store remembers any number. Negative is an error.
	// Defaults to 100,000, which take up to 20 MB.
	MaxKeys int

	// Retention is how long a key is remembered. After that it is the key of a new job. Negative,
	// and less than 1 µs, are errors. Defaults to 24 h.
	Retention time.Duration

	// Timeout bounds each call of the store, in addition to its context. The jobs in progress wait
	// so long when the store stops responding, and then one job every 10 s until it responds.
	// Negative, and less than 1 µs, are errors. Defaults to 5 s.
	Timeout time.Duration
}

// Guard remembers the keys of jobs that were handled, and holds those in progress. Make one with [New]
// or [NewShared]. It implements listener.Duplicates. One guard may serve several listeners, because a
// key names its queue. It is safe for concurrent use.
type Guard struct {
	recent    *recent
	store     blob.Store // nil for a guard in memory
	container string
	options   Options

	mu    sync.Mutex
	held  map[digest]*hold // guarded by mu
	hangs waiting.Probe    // of the store; guarded by mu
	away  bool             // the store does not respond; guarded by mu
}

// New returns a guard that remembers keys in the memory of this process. The error names every invalid
// option.
func New(o *Options) (*Guard, error) {
	o = cmp.Or(o, &Options{})
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("duplicate guard: %w", err)
	}
	g := &Guard{held: make(map[digest]*hold), options: o.withDefaults()}
	g.recent = newRecent(g.options)
	return g, nil
}

// NewShared returns a guard that also records keys in a container of the store, which nothing else
// should use, for all processes that have it. It sends nothing. The error names every invalid option.
func NewShared(store blob.Store, container string, o *Options) (*Guard, error) {
	if hook.IsNil(store) {
		return nil, fmt.Errorf("duplicate guard in container %q: a store is required", container)
	}
	g, err := New(o)
	if err = errors.Join(err, blobcheck.Container(container)); err != nil {
		return nil, fmt.Errorf("duplicate guard in container %q: %w", container, err)
	}
	g.store, g.container = store, container
	return g, nil
}

func (o *Options) validate() error {
	var errs []error
	if o.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("the option MaxKeys %d must not be negative", o.MaxKeys))
	}
	if o.Retention < 0 || o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("the options Retention %v and Timeout %v must not be negative", o.Retention, o.Timeout))
	}
	errs = append(errs, units.Wait("Retention", o.Retention), units.Wait("Timeout", o.Timeout))
	return errors.Join(errs...)
}

func (o *Options) withDefaults() Options {
	return Options{
		MaxKeys:   cmp.Or(o.MaxKeys, defaultMaxKeys),
		Retention: cmp.Or(o.Retention, defaultRetention),
		Timeout:   cmp.Or(o.Timeout, defaultTimeout),
	}
}

// digest stands for a key of any length, in memory and in names of blobs.
type digest [sha256.Size]byte

// folder begins the names of all blobs.
const folder = "handled/"

// ref returns where a key is held and recorded.
func (g *Guard) ref(d digest) blob.Ref {
	// Earlier versions take any blob with a name of theirs, handled/ and the digest, for a record.
	return blob.Ref{Container: g.container, Name: folder + "v2/" + hex.EncodeToString(d[:])}
}

// Sweep removes the keys from the store that are older than Options.Retention, by the store's
// clock, and returns how many blobs. Call it now and then, such as once a day; any number of
// processes may. A key that is recorded anew at that moment may be removed with them. One that
// cannot be removed does not keep the others from it, unless the store is away. With an error, such
// as that of [blob.Info.Age], it returns what was removed. Without a store it does nothing.
func (g *Guard) Sweep(ctx context.Context) (removed int, err error) {
	if g.store == nil {
		return 0, nil
	}
	failed, inARow, first := 0, 0, error(nil)
	for info, err := range g.store.List(ctx, g.container, folder) {
		age := time.Duration(0)
		if err == nil {
			age, err = info.Age()
		}
		if err != nil {
			return removed, fmt.Errorf("sweep the keys of handled jobs: %w", errors.Join(err, first))
		}
		if age < g.options.Retention || g.examine(info) != nil {
			continue
		}
		if err := g.store.Delete(ctx, info.Ref); err != nil {
			failed, inARow, first = failed+1, inARow+1, cmp.Or(first, err)
		} else {
			removed, inARow = removed+1, 0
		}
		if ctx.Err() != nil || inARow == maxFailures {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		first = context.Cause(ctx)
	case failed > 1:
		first = fmt.Errorf("%d could not be removed, the first because: %w", failed, first)
	}
	if first != nil {
		return removed, fmt.Errorf("sweep the keys of handled jobs: %w", first)
	}
	return removed, nil
}

// maxFailures is how many removals in a row may fail before the store counts as away.
const maxFailures = 10

// recent remembers the keys that were recorded last, in order.
type recent struct {
	maxKeys   int
	retention time.Duration
	created   time.Time // times are relative to it, which halves their size and hides them from the garbage collector

	mu    sync.Mutex
	at    map[digest]time.Duration // when a key was recorded; guarded by mu
	order []digest                 // the keys of at, oldest first; guarded by mu
}

func newRecent(o Options) *recent {
	return &recent{maxKeys: o.MaxKeys, retention: o.Retention, created: time.Now(), at: make(map[digest]time.Duration)}
}

func (r *recent) has(key digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.at[key]
	return known && !r.outlived(at)
}

// outlived reports whether what was recorded then is no longer remembered.
func (r *recent) outlived(at time.Duration) bool { return time.Since(r.created)-at >= r.retention }

// add remembers the key, and forgets those that are too old or too many. A key that is remembered
// keeps its age.
func (r *recent) add(key digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.order) > 0 && r.outlived(r.at[r.order[0]]) {
		r.forgetOldest()
	}
	if _, known := r.at[key]; known {
		return
	}
	if len(r.order) >= r.maxKeys {
		r.forgetOldest()
	}
	r.at[key] = time.Since(r.created)
	r.order = append(r.order, key)
}

// forgetOldest forgets the key that was recorded first. Requires mu.
func (r *recent) forgetOldest() {
	delete(r.at, r.order[0])
	r.order = r.order[1:]
}
