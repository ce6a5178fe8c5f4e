package roles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Size of the test picture: large enough to be cut, small enough to be rendered a thousand times.
const (
	testTile   = 4
	testCols   = 5
	testRows   = 7
	testSlices = 4
)

var allQueues = []string{imageRequests, sliceRequests, sliceResponses, imageResponses}

// world has the account and the store that processes share.
type world struct {
	t      *testing.T
	engine *localqueue.Engine
	store  blob.Store
}

// jobsIn returns the state of requests in a store.
func jobsIn(store blob.Store) jobs {
	j, err := newJobs(store)
	if err != nil {
		panic(err) // the containers are constants
	}
	return j
}

func newWorld(t *testing.T, threshold int) *world {
	w := &world{t: t, engine: must(localqueue.New(&localqueue.Options{Seed: 1})), store: blob.Memory()}
	for _, name := range allQueues {
		metadata := map[string]string{"PoisonThreshold": fmt.Sprint(threshold)}
		if threshold == 0 {
			metadata = nil
		}
		if err := w.queue(name).Create(t.Context(), metadata); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) queue(name string) queue.Manager {
	return w.engine.Queue(queue.Name{Account: "test", Queue: name})
}

// process is one program with all three roles.
type process struct {
	*System
	power power
	store *faultyStore
	sent  atomic.Int64 // messages to the four queues
	stop  context.CancelFunc
	ended chan struct{}
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// open opens a process; start runs its listeners.
func (w *world) open(f *faults) *process {
	w.t.Helper()
	p := &process{log: &lockedBuffer{}}
	if f == nil {
		f = &faults{times: map[string]int{}}
	}
	p.store = &faultyStore{next: w.store, faults: f, power: &p.power}
	open := func(name string) (queue.Queue, error) {
		return &faultyQueue{w.queue(name), f, &p.power, &p.sent}, nil
	}
	// Opening with faults is tested elsewhere; here they begin with the work.
	rate := f.rate
	f.rate = 0
	s, err := Open(open, p.store, Options{
		Processors: 3, Grace: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	f.rate = rate
	if err != nil {
		w.t.Fatal(err)
	}
	p.System = s
	return p
}

func (w *world) start(p *process) {
	ctx, stop := context.WithCancel(w.t.Context())
	p.stop, p.ended = stop, make(chan struct{})
	go func() {
		defer close(p.ended)
		if err := runAll(ctx, p.Runners()); err != nil && !p.power.off.Load() {
			w.t.Errorf("listeners: got the error %v, want none", err)
		}
	}()
}

// runAll is millrace.Run without signals, which a bubble does not support.
func runAll(ctx context.Context, rs []millrace.Runner) error {
	errs := make([]error, len(rs))
	var all sync.WaitGroup
	for i, r := range rs {
		all.Go(func() { errs[i] = r.Run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// end stops a process gracefully.
func (p *process) end() {
	p.stop()
	<-p.ended
}

// kill ends a process as kill -9 would: its operations have no effect any more, and its messages stay
// hidden until their leases expire.
func (p *process) kill() {
	p.power.off.Store(true)
	p.stop()
	for _, r := range p.Runners() {
		r.Halt()
	}
	<-p.ended
}

// client ordered a mosaic.
type client struct {
	*Order
	progress  []Progress
	mu        sync.Mutex
	delivered [][]byte // guarded by mu
}

// Wait waits for the mosaic and takes it. Poison is an error, and faults are retried.
func (c *client) Wait(ctx context.Context) error {
	err := c.Order.Wait(ctx, func(p Progress) error {
		c.progress = append(c.progress, p)
		if p.Poison != "" {
			return errors.New(p.Poison)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for {
		err := c.Deliver(ctx, func(r io.Reader) error {
			data, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.delivered = append(c.delivered, data)
			return nil
		})
		if !errors.Is(err, errFault) {
			return err
		}
	}
}

func (c *client) deliveries() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.delivered)
}

// submit orders a mosaic, and retries until it is accepted.
func (w *world) submit(p *process, changes ...func(*Request)) *client {
	w.t.Helper()
	c := &client{}
	for {
		var b bytes.Buffer
		img := testPicture()
		if err := picture.Encode(&b, img); err != nil {
			w.t.Fatal(err)
		}
		r := Request{
			ClientID: "tester", Picture: &b, Library: testLibrary(w.t), Slices: testSlices, Reuse: layout.DefaultReuse,
		}
		for _, change := range changes {
			change(&r)
		}
		o, err := p.Broker.Submit(w.t.Context(), r)
		if err == nil {
			c.Order = o
			return c
		}
		if !errors.Is(err, errFault) {
			w.t.Fatal(err)
		}
	}
}

func testPicture() image.Image {
	img := image.NewRGBA(image.Rect(0, 0, testCols*testTile+3, testRows*testTile+1))
	for y := range img.Rect.Dy() {
		for x := range img.Rect.Dx() {
			img.SetRGBA(x, y, color.RGBA{uint8(x * 11), uint8(y * 8), uint8(x * y), 255})
		}
	}
	return img
}

func testLibrary(t testing.TB) *tiles.Library {
	var all []tiles.Tile
	for i := range 27 {
		c := [3]uint8{uint8(i % 3 * 120), uint8(i / 3 % 3 * 120), uint8(i / 9 * 120)}
		tile := tiles.Tile{
			Name: fmt.Sprintf("%02d", i),
		}
		for range testTile * testTile {
			tile.Pix = append(tile.Pix, c[0], c[1], c[2], 255)
		}
		all = append(all, tile)
	}
	l, err := tiles.New(testTile, all)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// check compares the delivered mosaic with one made without queues.
func (w *world) check(c *client) {
	w.t.Helper()
	got := c.deliveries()
	if len(got) != 1 {
		w.t.Fatalf("deliveries: got %d, want 1", len(got))
	}
	img, err := picture.Decode(bytes.NewReader(got[0]))
	if err != nil {
		w.t.Fatal(err)
	}
	whole := image.Rect(0, 0, testCols*testTile, testRows*testTile)
	want, err := w.wantLayout().Lay(testLibrary(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	if img.Bounds() != whole {
		w.t.Fatalf("bounds of the mosaic: got %v, want %v", img.Bounds(), whole)
	}
	for y := range whole.Dy() {
		for x := range whole.Dx() {
			a, b := color.RGBAModel.Convert(img.At(x, y)), color.RGBAModel.Convert(want.At(x, y))
			if a != b {
				w.t.Fatalf("pixel %d,%d: got %v, want %v", x, y, a, b)
			}
		}
	}
}

// wantLayout chooses the tiles of the test picture without queues.
func (w *world) wantLayout() *layout.Layout {
	w.t.Helper()
	whole := image.Rect(0, 0, testCols*testTile, testRows*testTile)
	cells, err := layout.Measure(testPicture(), whole, testCols, testRows)
	if err != nil {
		w.t.Fatal(err)
	}
	chosen, err := layout.Choose(w.t.Context(), cells, testLibrary(w.t), layout.Options{Reuse: layout.DefaultReuse})
	if err != nil {
		w.t.Fatal(err)
	}
	return chosen
}

// settle waits until nothing is pending: leases expire, delays end and duplicates arrive.
func (w *world) settle() {
	w.t.Helper()
	for range 500 {
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if w.depth() == 0 {
			time.Sleep(time.Minute)
			synctest.Wait()
			return
		}
	}
	w.t.Errorf("messages in the queues: got %d, want 0", w.depth())
}

func (w *world) depth() (n int64) {
	for _, name := range allQueues {
		p, err := w.queue(name).Properties(context.Background())
		if err != nil {
			w.t.Fatal(err)
		}
		n += p.Depth
	}
	return n
}

// poisoned counts the messages in the poison queues.
func (w *world) poisoned() (n int64) {
	for _, name := range allQueues {
		p, err := w.queue(name + "-poison").Properties(context.Background())
		if errors.Is(err, queue.ErrQueueMissing) {
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		n += p.Depth
	}
	return n
}

// blobs lists all blobs except libraries.
func (w *world) blobs() (names []string) {
	for _, container := range []string{imageInput, sliceRequests, sliceResponses, imageOutput, jobState} {
		for b, err := range w.store.List(context.Background(), container, "") {
			if err != nil {
				w.t.Fatal(err)
			}
			names = append(names, b.Ref.Container+"/"+b.Ref.Name)
		}
	}
	return names
}

// only checks that nothing is left of the requests except their ends.
func (w *world) onlyEnds(ids ...uuid.UUID) {
	w.t.Helper()
	var want []string
	for _, id := range ids {
		want = append(want, sliceResponses+"/"+id.String()+"/end")
	}
	slices.Sort(want)
	if got := w.blobs(); !slices.Equal(got, want) {
		w.t.Errorf("blobs: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
