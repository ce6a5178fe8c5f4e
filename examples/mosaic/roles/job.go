package roles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// The facts about a request that the store keeps.
const (
	factPlan      = "plan"      // how the picture is cut
	factRequested = "requested" // all slices were requested
	factResponded = "responded" // the image response was sent
	factEnd       = "end"       // how the request ended; never deleted
)

// jobs is the state of all requests in the store, shared by the roles of all processes.
type jobs struct{ store blob.Store }

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

func (j jobs) read(ctx context.Context, id uuid.UUID, fact string, v any) error {
	r, err := j.store.Open(ctx, stateRef(id, fact))
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // nothing was written
	if err := json.NewDecoder(io.LimitReader(r, maxFact)).Decode(v); err != nil {
		return fmt.Errorf("read %v: %w", stateRef(id, fact), err)
	}
	return nil
}

func encodeFact(v any) io.Reader {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings and numbers
	}
	return bytes.NewReader(text)
}

func (j jobs) readPlan(ctx context.Context, id uuid.UUID) (p plan, err error) {
	err = j.read(ctx, id, factPlan, &p)
	return p, err
}

func (j jobs) writePlan(ctx context.Context, id uuid.UUID, p plan) error {
	return j.store.Put(ctx, stateRef(id, factPlan), encodeFact(p))
}

// noted reports whether a fact is recorded; note records it.
func (j jobs) noted(ctx context.Context, id uuid.UUID, fact string) (bool, error) {
	return blob.Exists(ctx, j.store, stateRef(id, fact))
}

func (j jobs) note(ctx context.Context, id uuid.UUID, fact string) error {
	return j.store.Put(ctx, stateRef(id, fact), strings.NewReader("{}"))
}

// ended returns the end of the request, or nil if it continues.
func (j jobs) ended(ctx context.Context, id uuid.UUID) (*end, error) {
	var e end
	err := j.read(ctx, id, factEnd, &e)
	if errors.Is(err, blob.ErrMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// finish ends a request. The first end counts and is returned.
func (j jobs) finish(ctx context.Context, id uuid.UUID, e end) (end, error) {
	err := j.store.Create(ctx, stateRef(id, factEnd), encodeFact(e))
	if errors.Is(err, blob.ErrExists) {
		first, err := j.ended(ctx, id)
		if err == nil && first == nil {
			err = fmt.Errorf("%v was deleted while it was read", stateRef(id, factEnd))
		}
		if err != nil {
			return end{}, err
		}
		return *first, nil
	}
	return e, err
}

// delivered ends a request whose mosaic was delivered, and cleans up. A mosaic that another process has
// kept for the client is deleted too.
func (j jobs) delivered(ctx context.Context, id uuid.UUID) error {
	e, err := j.finish(ctx, id, end{})
	if err == nil && e.Output != "" {
		err = j.store.Put(ctx, stateRef(id, factEnd), encodeFact(end{}))
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

// gone returns the error for a step whose blob is missing. If the request has ended meanwhile, the
// message is discarded; otherwise it is poison, because waiting would not help. Other errors are
// returned unchanged.
func (j jobs) gone(ctx context.Context, id uuid.UUID, err error) error {
	if !errors.Is(err, blob.ErrMissing) {
		return err
	}
	if e := j.discard(ctx, id); e != nil {
		return e
	}
	return dispatcher.Poison(err)
}

// stored returns how many slices of a request are finished. Each counts once, however often it
// was rendered.
func (j jobs) stored(ctx context.Context, id uuid.UUID) (int, error) {
	n := 0
	for _, err := range j.store.List(ctx, sliceResponses, id.String()+"/") {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// sweep deletes the blobs of a request, except its end, and the mosaic if that is kept. Libraries
// stay, because other requests may use them.
func (j jobs) sweep(ctx context.Context, id uuid.UUID, keepOutput bool) error {
	refs := []blob.Ref{inputRef(id), stateRef(id, factPlan), stateRef(id, factRequested), stateRef(id, factResponded)}
	if !keepOutput {
		for _, f := range formats {
			refs = append(refs, outputRef(id, f))
		}
	}
	for _, container := range []string{sliceRequests, sliceResponses} {
		for ref, err := range j.store.List(ctx, container, id.String()+"/") {
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
	}
	for _, ref := range refs {
		if err := j.store.Delete(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}
