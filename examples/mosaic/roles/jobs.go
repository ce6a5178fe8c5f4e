package roles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// The facts about a request that the store keeps.
const (
	factLayout    = "layout"    // the layout of the whole mosaic
	factPlan      = "plan"      // how the picture is cut
	factRequested = "requested" // all slices were requested
	factPoison    = "poison-"   // prefix: why a message is poison
)

// jobs is the state of all requests in the store, shared by the roles of all processes.
type jobs struct {
	store blob.Store

	// parts gathers the finished slices of each request. Its end is the end of the request, and stays.
	parts *gather.Gather

	// responses records that the image response of a request was sent, which is done once.
	responses *gather.Gather
}

func newJobs(store blob.Store) (jobs, error) {
	parts, err := gather.New(store, sliceResponses, nil)
	responses, errResponses := gather.New(store, jobState, nil)
	return jobs{store, parts, responses}, errors.Join(err, errResponses)
}

type end struct {
	// Failed is the reason why there is no mosaic. Empty on success.
	Failed string `json:"failed,omitempty"`

	// Output is where the mosaic is kept for its client. Empty if it was delivered.
	Output string `json:"output,omitempty"`
}

// errEnded means that a request has ended, so that its remaining messages need no work.
var errEnded = errors.New("the request has ended")

func (j jobs) writeFact(ctx context.Context, id uuid.UUID, fact string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return j.store.Put(ctx, stateRef(id, fact), bytes.NewReader(text), nil)
}

func (j jobs) readFact(ctx context.Context, id uuid.UUID, fact string, value any) error {
	return j.read(ctx, stateRef(id, fact), func(r io.Reader) error {
		const limit = 1 << 20
		return json.NewDecoder(io.LimitReader(r, limit)).Decode(value)
	})
}

// read opens a blob, calls use, and closes it.
func (j jobs) read(ctx context.Context, ref blob.Ref, use func(io.Reader) error) error {
	r, err := j.store.Open(ctx, ref)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // nothing was written
	if err := use(r); err != nil {
		return fmt.Errorf("read %v: %w", ref, err)
	}
	return nil
}

// write stores a blob while write produces it.
func write(write func(io.Writer) error, store func(io.Reader) error) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { // ends because write closes the pipe
		err := write(w)
		_ = w.CloseWithError(err) // never fails; nil is Close
		done <- err
	}()
	err := store(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, r) // a store need not read a blob that exists
	}
	_ = r.CloseWithError(err) // never fails
	if written := <-done; err == nil {
		return written
	}
	return err
}

// readLayout reads a layout, of the whole mosaic or of a slice.
func (j jobs) readLayout(ctx context.Context, ref blob.Ref) (l *layout.Layout, err error) {
	err = j.read(ctx, ref, func(r io.Reader) error {
		l, err = layout.Read(r)
		return err
	})
	return l, err
}

// writeSlice stores the rows of a slice.
func (j jobs) writeSlice(ctx context.Context, id uuid.UUID, whole *layout.Layout, p picture.Plan, i int) error {
	first, end := p.SliceRows(i)
	return write(whole.Window(image.Rect(0, first, p.Cols, end)).Write, func(r io.Reader) error {
		return j.store.Put(ctx, cutRef(id, i), r, nil)
	})
}

// ended returns the end of the request, or nil if it continues.
func (j jobs) ended(ctx context.Context, id uuid.UUID) (*end, error) {
	recorded, ended, err := j.parts.End(ctx, id.String())
	if err != nil || !ended {
		return nil, err
	}
	e, err := decodeEnd(id, recorded)
	return &e, err
}

func decodeEnd(id uuid.UUID, recorded gather.End) (e end, err error) {
	if err := json.Unmarshal(recorded.Result, &e); err != nil {
		return e, fmt.Errorf("read %v: %w", endRef(id), err)
	}
	return e, nil
}

// finish ends a request. The first end counts and is returned.
func (j jobs) finish(ctx context.Context, id uuid.UUID, e end) (end, error) {
	recorded, err := j.parts.Once(ctx, id.String(), func(context.Context) ([]byte, error) { return json.Marshal(e) })
	if err != nil {
		return end{}, err
	}
	return decodeEnd(id, recorded)
}

// continues returns errEnded if a request has ended, after deleting blobs that late steps may have
// stored. It is called before every step.
func (j jobs) continues(ctx context.Context, id uuid.UUID) error {
	e, err := j.ended(ctx, id)
	if err != nil || e == nil {
		return err
	}
	if err := j.sweep(ctx, id, e.Output != ""); err != nil {
		return err
	}
	return errEnded
}

// after returns the error of a step that may have stored blobs. If the request has ended meanwhile, it
// deletes them. The handler may have lost its lease, and then no other step would delete them; so it
// continues for a while after the context ended.
func (j jobs) after(ctx context.Context, id uuid.UUID, err error) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if ended := persist(late, func() error { return j.continues(late, id) }); errors.Is(ended, errEnded) {
		return ended
	}
	if errors.Is(err, blob.ErrMissing) {
		// Like any other failure: the blob may still come, for example if a backup is being restored.
		return fmt.Errorf("%w: it was deleted, or the program that stored it uses other blobs", err)
	}
	return err
}

// persist tries a step up to five times, because no handler would make up for it.
func persist(ctx context.Context, step func() error) (err error) {
	for try := range 5 {
		if err = step(); err == nil || errors.Is(err, errEnded) || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond << try)
	}
	return err
}

// sweep deletes the blobs of a request that has ended, except its end, and, if that is kept, the mosaic with its layout.
// Libraries stay, because other requests may use them.
func (j jobs) sweep(ctx context.Context, id uuid.UUID, keepOutput bool) error {
	failed := j.parts.Sweep(ctx, id.String())
	remove := func(ref blob.Ref) { failed = errors.Join(failed, j.store.Delete(ctx, ref)) }
	remove(inputRef(id))
	if !keepOutput {
		remove(outputRef(id))
	}
	for _, container := range []string{sliceRequests, jobState} {
		for b, err := range j.store.List(ctx, container, id.String()+"/") {
			if err != nil {
				return errors.Join(failed, err)
			}
			if !keepOutput || b.Ref != stateRef(id, factPlan) && b.Ref != stateRef(id, factLayout) {
				remove(b.Ref)
			}
		}
	}
	return failed
}

// Progress is how far a request is.
type Progress struct {
	Slices    int
	Stored    []int  // numbers of the finished slices, from 0 and ascending
	Requested bool   // all slices were requested
	Poison    string // why a message that the request needs is poison; "" if all are well
}

// progress reads the progress of a request that has not ended.
func (j jobs) progress(ctx context.Context, id uuid.UUID, count int) (p Progress, err error) {
	p.Slices = count
	facts := make(map[string]bool)
	for b, err := range j.store.List(ctx, jobState, id.String()+"/") {
		if err != nil {
			return p, err
		}
		facts[strings.TrimPrefix(b.Ref.Name, id.String()+"/")] = true
	}
	if len(facts) == 0 {
		if _, err := j.store.Stat(ctx, inputRef(id)); err != nil {
			return p, fmt.Errorf("the request does not exist any more: %w", err)
		}
	}
	p.Requested = facts[factRequested]
	if p.Stored, err = j.parts.Stored(ctx, id.String()); err != nil {
		return p, err
	}
	for fact := range facts {
		name, ok := strings.CutPrefix(fact, factPoison)
		if !ok || p.overcame(name) {
			continue
		}
		if err := j.readFact(ctx, id, fact, &p.Poison); err != nil {
			return p, err
		}
	}
	return p, nil
}

// overcame reports whether the step of a message that was poison has been made since, because the
// message was redriven.
func (p Progress) overcame(message string) bool {
	if message == imageRequests+"-000000" {
		return p.Requested
	}
	return slices.ContainsFunc(p.Stored, func(i int) bool { return message == fmt.Sprintf("%s-%06d", sliceRequests, i) })
}

// libraries caches the two tile libraries that were used last. Libraries never change.
type libraries struct {
	jobs jobs
	turn chan struct{} // has room for one: full while a library is looked for, so that each is read once
	last []*tiles.Library
}

// get returns a library. A library that cannot be read is poison.
func (l *libraries) get(ctx context.Context, ref blob.Ref) (library *tiles.Library, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for _, library := range l.last {
		if libraryRef(library.ID()) == ref {
			return library, nil
		}
	}
	err = l.jobs.read(ctx, ref, func(r io.Reader) error {
		library, err = tiles.Read(r)
		return err
	})
	if errors.Is(err, tiles.ErrBadLibrary) {
		return nil, dispatcher.Poison(err)
	}
	if err == nil {
		l.last = append([]*tiles.Library{library}, l.last...)[:min(len(l.last)+1, 2)]
	}
	return library, err
}
