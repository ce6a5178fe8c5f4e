package roles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/gather"
)

// The facts about a request that the store keeps.
const (
	factPlan      = "plan"      // how the picture is cut
	factRequested = "requested" // all slices were requested
)

// jobs is the state of all requests in the store, shared by the roles of all processes.
type jobs struct {
	store blob.Store

	// parts gathers the finished slices of each request. Its end is that of the request; only Clean deletes it.
	parts *gather.Gather

	// responses records that the image response of a request was sent, which is done once.
	responses *gather.Gather
}

func newJobs(store blob.Store) jobs {
	in := func(container string) *gather.Gather {
		g, err := gather.New(store, container, nil)
		if err != nil {
			panic(err) // the container is a constant
		}
		return g
	}
	return jobs{store, in(sliceResponses), in(jobState)}
}

// plan describes how the picture of a request is cut and composed again.
type plan struct {
	Tile   int    `json:"tile"`
	Cols   int    `json:"cols"`
	Rows   int    `json:"rows"`
	Slices int    `json:"slices"`
	Format string `json:"format"`
}

func (p plan) geometry() picture.Plan {
	return picture.Plan{Tile: p.Tile, Cols: p.Cols, Rows: p.Rows, Slices: p.Slices}
}

func (p plan) format() picture.Format { return ImageRequest{OutputFormat: p.Format}.format() }

// end is the end of a request.
type end struct {
	// Failed is the reason why there is no mosaic. Empty if there is one.
	Failed string `json:"failed,omitempty"`

	// Output is where the mosaic is kept for its client. Empty if it was delivered.
	Output string `json:"output,omitempty"`
}

// errEnded is the reason to discard a message of a request that has ended, and errDelivered of one
// whose mosaic was delivered to its client or is kept for it.
var (
	errEnded     = errors.New("its request has ended")
	errDelivered = fmt.Errorf("%w, with a mosaic", errEnded)
)

// maxFact limits the bytes read of a fact. Facts are small.
const maxFact = 1 << 20

func encodeFact(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings and numbers
	}
	return text
}

func (j jobs) readPlan(ctx context.Context, id uuid.UUID) (p plan, err error) {
	r, err := j.store.Open(ctx, stateRef(id, factPlan))
	if err != nil {
		return p, err
	}
	defer func() { _ = r.Close() }() // nothing was written
	if err := json.NewDecoder(io.LimitReader(r, maxFact)).Decode(&p); err != nil {
		return p, fmt.Errorf("read %v: %w", stateRef(id, factPlan), err)
	}
	return p, nil
}

func (j jobs) writePlan(ctx context.Context, id uuid.UUID, p plan) error {
	return j.store.Put(ctx, stateRef(id, factPlan), bytes.NewReader(encodeFact(p)), nil)
}

// noted reports whether a fact is recorded; note records it.
func (j jobs) noted(ctx context.Context, id uuid.UUID, fact string) (bool, error) {
	return blob.Exists(ctx, j.store, stateRef(id, fact))
}

func (j jobs) note(ctx context.Context, id uuid.UUID, fact string) error {
	return j.store.Put(ctx, stateRef(id, fact), strings.NewReader("{}"), nil)
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
	recorded, err := j.parts.Once(ctx, id.String(), func(context.Context) ([]byte, error) { return encodeFact(e), nil })
	if err != nil {
		return end{}, err
	}
	return decodeEnd(id, recorded)
}

// delivered ends a request whose mosaic was delivered, and cleans up. A mosaic that another process has
// kept for the client is deleted too.
func (j jobs) delivered(ctx context.Context, id uuid.UUID) error {
	e, err := j.finish(ctx, id, end{})
	if err == nil && e.Output != "" {
		err = j.store.Put(ctx, endRef(id), bytes.NewReader(encodeFact(end{})), nil)
	}
	if err != nil {
		return err
	}
	return j.sweep(ctx, id, false)
}

// discard returns the reason to discard a message if its request has ended, after deleting what late
// steps may have stored. It is called before every step, and after every store of a step.
func (j jobs) discard(ctx context.Context, id uuid.UUID) error {
	e, err := j.ended(ctx, id)
	if err != nil || e == nil {
		return err
	}
	if err := j.sweep(ctx, id, e.Output != ""); err != nil {
		return err
	}
	if e.Failed == "" {
		return dispatcher.Discard(errDelivered)
	}
	return dispatcher.Discard(errEnded)
}

// after returns the error of a step that may have stored blobs, even if it failed. If the request has ended meanwhile,
// after deletes them and returns the reason to discard the message. A handler that failed may have lost its lease, and
// then no other step would delete them.
func (j jobs) after(ctx context.Context, id uuid.UUID, err error) error {
	if e := j.lookBack(ctx, id); e != nil {
		return e
	}
	return j.gone(ctx, id, err)
}

// The tries of lookBack, with longer and longer pauses.
const (
	looksBack     = 5
	lookBackPause = 100 * time.Millisecond
	lookBackTime  = 10 * time.Second // for all of them
)

// lookBack is discard for a handler that may have lost its lease. It continues for a while after the
// context ended, and retries, because no other step would clean up.
func (j jobs) lookBack(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBackTime)
	defer cancel()
	for try := range looksBack {
		err := j.discard(ctx, id)
		if err == nil || errors.Is(err, errEnded) || try == looksBack-1 {
			return err
		}
		select {
		case <-time.After(lookBackPause << try):
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// gone returns the error for a step whose blob is missing. If the request has ended meanwhile, the
// message is discarded. Otherwise the step is retried like any other failure, because the blob may still come, as when it
// is copied or restored; after the last attempt the message is poison. Other errors are returned unchanged.
func (j jobs) gone(ctx context.Context, id uuid.UUID, err error) error {
	if !errors.Is(err, blob.ErrMissing) {
		return err
	}
	if e := j.discard(ctx, id); e != nil {
		return e
	}
	return fmt.Errorf("%w: it was deleted, or the program that stored it uses other blobs than this one", err)
}

// there reports whether the store has anything of a request. It has its picture until the request has ended, and then its end.
func (j jobs) there(ctx context.Context, id uuid.UUID) (bool, error) {
	for _, ref := range []blob.Ref{inputRef(id), endRef(id)} {
		if there, err := blob.Exists(ctx, j.store, ref); there || err != nil {
			return there, err
		}
	}
	return false, nil
}

// stored returns the numbers of the finished slices of a request, in ascending order. Each counts once, however often
// it was rendered.
func (j jobs) stored(ctx context.Context, id uuid.UUID) ([]int, error) {
	return j.parts.Stored(ctx, id.String())
}

// sweep deletes the blobs of a request that has ended, except its end, and, if that is kept, the mosaic with its layout.
// Libraries stay, because other requests may use them.
func (j jobs) sweep(ctx context.Context, id uuid.UUID, keepOutput bool) error {
	refs := []blob.Ref{inputRef(id), stateRef(id, factRequested), j.responses.EndRef(id.String())}
	// A failure does not end the sweep: what is repeated then has less to delete.
	failed := j.parts.Sweep(ctx, id.String())
	note := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	if !keepOutput {
		refs = append(refs, stateRef(id, factPlan))
		for _, f := range formats {
			refs = append(refs, outputRef(id, f))
		}
		for b, err := range j.store.List(ctx, sliceRequests, id.String()+"/") {
			if err != nil {
				note(err)
				break
			}
			refs = append(refs, b.Ref)
		}
	}
	for _, ref := range refs {
		if ctx.Err() != nil {
			note(context.Cause(ctx))
			break
		}
		if err := j.store.Delete(ctx, ref); err != nil {
			note(err)
		}
	}
	return failed
}
