package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/video/index"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/wakeup"
)

// asVideo makes this test binary the program itself, for the test of its signals.
const asVideo = "VIDEO_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asVideo) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// V-01, V-02: every video that is one gets every format, once, by the listener of its class; what is broken
// stops nobody; and the program ends by itself.
func TestEveryVideoGetsItsFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := host(t.Context(), settings{videos: 20, slots: 4, reserve: 1}, &out, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"63 formats made, ", "1 uploads were no videos", "\nindex: ", "\nsearch director:o director:hara\n", " Restored\" by ", "\ncritical         4 ", "\nnormal ", "\nheavy "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got\n%s\nwant %q in it", out.String(), want)
			}
		}
	})
}

// A stopped program says what is left, and does not hang.
func TestAStoppedProgramSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out, failures bytes.Buffer
		if status := command(ctx, []string{"-videos", "9"}, &out, &failures); status != 1 || !strings.HasPrefix(failures.String(), "video: stopped with 10 of 10 uploads") {
			t.Errorf("got status %d and %q, want 1 and how many are left", status, failures.String())
		}
	})
}

func TestTheCommandLine(t *testing.T) {
	for args, want := range map[string]struct {
		status int
		out    string
	}{
		"-h":                   {0, "Usage:"},
		"-videos 0":            {2, "-videos 0 is outside"},
		"-videos x":            {2, "see video -h"},
		"-slots 3":             {2, "-slots 3 is outside"},
		"-slots 65":            {2, "-slots 65 is outside"},
		"-slots 6 -reserve 4":  {2, "-reserve 4 is outside 0…3"},
		"-reserve -1":          {2, "-reserve -1 is outside"},
		"-colour":              {2, "see video -h"},
		"clip.mov":             {2, `unexpected argument "clip.mov"`},
		"-videos 3 -reserve 0": {0, "9 formats made"},
		"-search alien:x":      {2, `invalid query: "alien:x" begins with no field`},
		"-search sea**":        {2, "see video -h"},
		"-videos 3 -search TITLE:the* -search nobody": {0, "search nobody\n  no video\n"},
	} {
		var out, failures bytes.Buffer
		status := command(t.Context(), strings.Fields(args), &out, &failures)
		said := out.String() + failures.String()
		if status != want.status || !strings.Contains(said, want.out) || status == 2 && strings.Count(said, "\n") != 1 {
			t.Errorf("video %s: got status %d and %q, want %d and %q, an error on one line", args, status, said, want.status, want.out)
		}
	}
}

// failingStore fails to put the blobs whose names end so.
type failingStore struct {
	blob.Store
	suffix string
}

var errFull = errors.New("the disk is full")

func (s *failingStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if s.suffix != "" && strings.HasSuffix(ref.Name, s.suffix) {
		return errFull
	}
	return s.Store.Put(ctx, ref, r, o)
}

// newIndex returns an index in memory.
func newIndex() *index.Index {
	return index.New(table.Memory("videos"), table.Memory("terms"), table.Memory("postings"))
}

// found returns the names of the videos that match a query.
func found(t *testing.T, x *index.Index, query string) (names []string) {
	t.Helper()
	q, err := index.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	page, err := x.Search(t.Context(), q, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range page.Videos {
		names = append(names, v.Name)
	}
	return names
}

func metadataOf(t *testing.T, c index.Credits) *blob.PutOptions {
	t.Helper()
	metadata, err := c.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	return &blob.PutOptions{Metadata: metadata}
}

// A video whose worker failed half-way gets what is missing, and one that is delivered again gets nothing new. It is in the
// index when it has all formats.
func TestNothingIsMadeTwice(t *testing.T) {
	store := &failingStore{Store: blob.Memory(), suffix: "full.delta"}
	done := 0
	w := &worker{store: store, index: newIndex(), done: func(string, int64) { done++ }}
	if err := store.Put(t.Context(), uploadRef("v", 1), bytes.NewReader(film(8, 8, 3, 1).encode()), metadataOf(t, inventCredits(1))); err != nil {
		t.Fatal(err)
	}
	want := func(what string, wrong error, made, present, finished int) {
		t.Helper()
		if err := w.transcode(t.Context(), "v", 1); !errors.Is(err, wrong) || w.made != made || w.present != present || done != finished {
			t.Errorf("%s: got %v, %d made, %d there, %d done; want %v, %d, %d, %d", what, err, w.made, w.present, done, wrong, made, present, finished)
		}
		if indexed := found(t, w.index, inventCredits(1).Title); len(indexed) != min(finished, 1) {
			t.Errorf("%s: found %v", what, indexed)
		}
	}
	want("with a full disk", errFull, 2, 0, 0)
	store.suffix = ""
	want("again", nil, 3, 2, 1)
	want("delivered twice", nil, 3, 5, 2)
	if err := w.transcode(t.Context(), "missing", 1); !errors.Is(err, blob.ErrMissing) || listener.ResultOf(err).Outcome != listener.Retried {
		t.Errorf("an upload that is not there yet: got %v, want a failure that is retried", err)
	}
}

// brokenTable is a table whose changes fail.
type brokenTable struct {
	table.Store
	fails bool
}

func (b *brokenTable) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	if b.fails {
		return nil, table.ErrUnavailable
	}
	return b.Store.Apply(ctx, changes)
}

// A video that the index does not take is not done: its job comes again, and then makes no format anew.
func TestAVideoIsDoneWhenItIsInTheIndex(t *testing.T) {
	postings := &brokenTable{table.Memory("postings"), true}
	done := 0
	w := &worker{store: blob.Memory(), index: index.New(table.Memory("videos"), table.Memory("terms"), postings), done: func(string, int64) { done++ }}
	if err := w.store.Put(t.Context(), uploadRef("v", 1), bytes.NewReader(film(8, 8, 3, 1).encode()), metadataOf(t, inventCredits(1))); err != nil {
		t.Fatal(err)
	}
	if err := w.transcode(t.Context(), "v", 1); !errors.Is(err, table.ErrUnavailable) || listener.ResultOf(err).Outcome != listener.Retried || done != 0 {
		t.Errorf("with a broken table: got %v, %d done; want a failure that is retried", err, done)
	}
	postings.fails = false
	if err := w.transcode(t.Context(), "v", 1); err != nil || done != 1 || w.made != 3 || w.present != 3 {
		t.Errorf("again: got %v, %d done, %d made, %d there; want 1, 3, 3", err, done, w.made, w.present)
	}
	if indexed := found(t, w.index, inventCredits(1).Title); len(indexed) != 1 {
		t.Errorf("found %v, want the video", indexed)
	}
}

// A video that is uploaded again gets formats and a place in the index anew; the job of the upload before may come late.
func TestUploadedAgain(t *testing.T) {
	account := localqueue.New(nil).Account("site")
	q, err := account.Open("jobs")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(blob.Memory(), newIndex(), []*class{{name: "normal", queue: q}}, new(wakeup.Bus), 1)
	w := &worker{store: s.store, index: s.index, done: func(string, int64) {}}
	first := upload{video: "v", class: "normal", clip: clip{width: 8, height: 8}, credits: index.Credits{Title: "Sea"}}
	second := first
	second.credits.Title = "Glass"
	for i, u := range []upload{first, second} {
		if err := s.accept(t.Context(), u, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []int64{2, 1} {
		if err := w.transcode(t.Context(), "v", version); err != nil {
			t.Fatal(err)
		}
		if sea, glass := found(t, w.index, "sea"), found(t, w.index, "glass"); len(sea) != 0 || len(glass) != 1 {
			t.Errorf("after version %d: found %v and %v, want the second credits", version, sea, glass)
		}
	}
	if w.made != 2*len(formats) {
		t.Errorf("got %d formats, want those of both uploads", w.made)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := s.keep(t.Context(), second); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if last, err := s.latest(t.Context(), "v"); err != nil || last != 10 {
		t.Errorf("after 8 uploads at once: got version %d, %v; want 10, each has its own", last, err)
	}
}

// Credits that no site would have accepted, since whoever can write to the store can write anything, are refused without a second
// attempt, and the index does not know of them.
func TestHostileCreditsStopNobody(t *testing.T) {
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("a%d b%d c%d d%d", i, i, i, i))
	}
	for what, metadata := range map[string]map[string]string{
		"none":               nil,
		"no JSON":            {"credits": "hello"},
		"control characters": {"credits": `{"title":"\u001b[2J"}`},
		"many words":         {"credits": `{"title":"a","keywords":["` + strings.Join(many, `","`) + `"]}`},
	} {
		done := 0
		w := &worker{store: blob.Memory(), index: newIndex(), done: func(string, int64) { done++ }}
		if err := w.store.Put(t.Context(), uploadRef("v", 1), bytes.NewReader(film(8, 8, 3, 1).encode()), &blob.PutOptions{Metadata: metadata}); err != nil {
			t.Fatal(err)
		}
		err := w.transcode(t.Context(), "v", 1)
		if !errors.Is(err, index.ErrCredits) || listener.ResultOf(err).Outcome != listener.Poisoned || w.refused != 1 || w.made != 0 || done != 1 {
			t.Errorf("%s: got %v, %d refused, %d formats, %d done; want it poisoned", what, err, w.refused, w.made, done)
		}
	}
}

// The next run searches what a run has indexed, and uploads all videos again: as their next versions.
func TestAnIndexInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "films.db")
	run := func(args ...string) string {
		t.Helper()
		var out, failures bytes.Buffer
		if status := command(t.Context(), append([]string{"-index", path}, args...), &out, &failures); status != 0 {
			t.Fatalf("%v: got status %d and %q", args, status, failures.String())
		}
		_, report, _ := strings.Cut(out.String(), "\nindex: ")
		if kept, made, ok := strings.Cut(report, ";"); ok { // how often workers came first is not the same each time
			_, found, _ := strings.Cut(made, "\n")
			report = kept + found
		}
		return report
	}
	first := run("-videos", "6", "-search", "title:restored", "-search", "the*")
	if !strings.Contains(first, "005-normal") {
		t.Errorf("got %s, want a video that was uploaded again", first)
	}
	for _, videos := range []string{"0", "6", "0"} {
		if again := run("-videos", videos, "-search", "title:restored", "-search", "the*"); again != first {
			t.Errorf("with %s videos: got\n%s; want it as before\n%s", videos, again, first)
		}
	}
	x, closeIndex, err := openIndex(path)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := x.Video(t.Context(), "005-normal"); err != nil || v.Version != 4 {
		t.Errorf("got %v, %v; want version 4 after two uploads twice", v, err)
	}
	var failures bytes.Buffer
	if status := command(t.Context(), []string{"-index", path, "-videos", "0"}, io.Discard, &failures); status != 1 || strings.Count(failures.String(), "\n") != 1 || !strings.HasPrefix(failures.String(), "video: filetable: open ") {
		t.Errorf("while the file is open: got status %d and %q, want why, on one line", status, failures.String())
	}
	if err := closeIndex(); err != nil {
		t.Fatal(err)
	}
}

// What is found is written with all credits, and a terminal is not told to do anything.
func TestWhatIsFoundIsShown(t *testing.T) {
	x := newIndex()
	for i := range 5 {
		c := index.Credits{Title: `The "Sea"`, Actors: []string{"Zoe\u202e O'Hara", "Bo"}, Directors: []string{"Mara"}, Keywords: []string{"storm"}}
		if i == 4 {
			c = index.Credits{Title: "Sea"}
		}
		if err := x.Put(t.Context(), fmt.Sprint("v", i), 1, c); err != nil {
			t.Fatal(err)
		}
	}
	q, err := index.ParseQuery("sea")
	if err != nil {
		t.Fatal(err)
	}
	want := func(i int) string {
		return fmt.Sprintf("  v%d  \"The \\\"Sea\\\"\" by Mara with Zoe\\u202e O'Hara, Bo about storm\n", i)
	}
	for all, wanted := range map[bool]string{
		true:  "\nsearch sea\n" + want(0) + want(1) + want(2) + want(3) + "  v4  \"Sea\"\n",
		false: "\nsearch sea\n" + want(0) + want(1) + "  and more\n",
	} {
		var out bytes.Buffer
		if err := searchOne(t.Context(), x, q, 2, all, &out); err != nil || out.String() != wanted {
			t.Errorf("got\n%s, %v; want\n%s", out.String(), err, wanted)
		}
	}
}

// undelta reverses delta.
func undelta(t interface{ Fatalf(string, ...any) }, encoded []byte) clip {
	line, runs, _ := bytes.Cut(encoded, []byte("\n"))
	var c clip
	var n int
	if _, err := fmt.Sscanf(string(line), "delta %d %d %d", &c.width, &c.height, &n); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	before := make([]byte, c.width*c.height)
	for range n {
		var frame []byte
		for len(frame) < len(before) {
			for range runs[0] {
				frame = append(frame, before[len(frame)]+runs[1])
			}
			runs = runs[2:]
		}
		c.frames = append(c.frames, frame)
		before = frame
	}
	if len(runs) > 0 {
		t.Fatalf("%d bytes are left", len(runs))
	}
	return c
}

func drawClip(r *rapid.T) clip {
	c := clip{width: rapid.IntRange(1, 20).Draw(r, "width"), height: rapid.IntRange(1, 20).Draw(r, "height")}
	for range rapid.IntRange(1, 5).Draw(r, "frames") {
		c.frames = append(c.frames, rapid.SliceOfN(rapid.ByteRange(0, 3), c.width*c.height, c.width*c.height).Draw(r, "frame"))
	}
	return c
}

// What is uploaded and what viewers get is the clip.
func TestFormatsAreTheClip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := drawClip(r)
		uploaded, err := parseClip(c.encode())
		if err != nil || fmt.Sprint(uploaded) != fmt.Sprint(c) {
			r.Fatalf("uploaded: got %v, %v; want %v", uploaded, err, c)
		}
		if got := undelta(r, c.delta()); fmt.Sprint(got) != fmt.Sprint(c) {
			r.Fatalf("delta: got %v, want %v", got, c)
		}
		small := half(c)
		if small.width != max(c.width/2, 1) || small.height != max(c.height/2, 1) || len(small.frames) != len(c.frames) {
			r.Fatalf("half: got %d frames of %d×%d of %d of %d×%d", len(small.frames), small.width, small.height, len(c.frames), c.width, c.height)
		}
		if picture, err := still(c); err != nil || !bytes.HasPrefix(picture, []byte("\x89PNG")) {
			r.Fatalf("still: got %v", err)
		}
	})
	square := clip{2, 2, [][]byte{{10, 20, 30, 40}}}
	if got := half(square); len(got.frames[0]) != 1 || got.frames[0][0] != 25 {
		t.Errorf("half of %v: got %v, want 25", square, got)
	}
	long := clip{256, 1, [][]byte{make([]byte, 256), make([]byte, 256)}}
	if got := undelta(t, long.delta()); fmt.Sprint(got) != fmt.Sprint(long) {
		t.Errorf("a run of 256: got %v", got)
	}
}

// Nobody can make a worker fail by an upload: whatever it is, it is a clip or refused as none.
func FuzzUploads(f *testing.F) {
	for _, seed := range []string{"", "clip", "clip 1 1 1\nx", "clip 1 1 1\n", "clip -1 -1 1\n", "clip 9999999999 9999999999 1\n", "clip 67108864 67108864 1\n", "clip 3 2 1\nabcdef"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, upload []byte) {
		c, err := parseClip(upload)
		if err != nil {
			if !errors.Is(err, errNoClip) {
				t.Errorf("got %v, want that it is no clip", err)
			}
			return
		}
		for _, format := range formats {
			if b, err := format.encode(c); err != nil || len(b) == 0 {
				t.Errorf("%s of %d×%d: got %d bytes, %v", format.name, c.width, c.height, len(b), err)
			}
		}
	})
}

// A film depends on its seed alone.
func TestFilmsAreRepeatable(t *testing.T) {
	one, again, other := film(40, 30, 3, 7), film(40, 30, 3, 7), film(40, 30, 3, 8)
	if !bytes.Equal(one.encode(), again.encode()) || bytes.Equal(one.encode(), other.encode()) {
		t.Error("got another film for the same seed, or the same for another")
	}
	if n := len(one.delta()); n >= len(one.encode())/2 {
		t.Errorf("delta: got %d bytes of %d, want less than half", n, len(one.encode()))
	}
}
