package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/table"
)

// Index is the index of videos in three tables, which the package comment describes.
type Index struct {
	videos, terms, postings table.Store
	conflicts               atomic.Int64
}

// New returns the index in three tables, which exist.
func New(videos, terms, postings table.Store) *Index {
	return &Index{videos: videos, terms: terms, postings: postings}
}

// Conflicts returns how often a step of this Index was made again because another worker had come first.
func (x *Index) Conflicts() int64 { return x.conflicts.Load() }

// Video is a video with its credits.
type Video struct {
	Name    string
	Version int64 // of the credits
	Credits Credits

	before Credits    // the former ones, if postings of them may remain; otherwise without a title
	etag   table.ETag // "" if the video does not exist
}

// maxVideo is how long the name of a video may be: a key may have 512 characters.
const maxVideo = 256

// checkVideo refuses invalid keys. A name is ASCII because stores order other characters differently, and a search compares
// the names of several pages.
func checkVideo(name string) error {
	ascii := !strings.ContainsFunc(name, func(r rune) bool { return r > '~' })
	if err := (table.Key{Partition: name}).Check(); err != nil || !ascii || len(name) > maxVideo {
		return fmt.Errorf("the name of a video has 1 to %d characters of ASCII, but no control characters and no / \\ # ?", maxVideo)
	}
	return nil
}

// Put makes the index say that a video has these credits, unless it has credits of a later version already. It may be called again, at the
// same time and after any failure. A video has one set of credits in a version, from 1.
//
// The error is [ErrCredits], that the version has other credits already, or the error of a table. After an error of a table, or
// [ErrContended], repeat the same call, even if there is a later version by then: it removes the traces of this version.
func (x *Index) Put(ctx context.Context, video string, version int64, c Credits) error {
	bad := checkVideo(video)
	if bad == nil {
		bad = c.Check()
	}
	if bad == nil && version < 1 {
		bad = errors.New("versions begin at 1")
	}
	if bad != nil {
		return fmt.Errorf("index %.100q in version %d: %w", video, version, bad)
	}
	p := update{Index: x, video: Video{Name: video, Version: version, Credits: c}}
	for !p.done {
		if err := x.contend(ctx, func() error { return p.step(ctx) }); err != nil {
			return fmt.Errorf("index %s: %w", video, err)
		}
	}
	return nil
}

// update is a Put under way.
type update struct {
	*Index
	video Video
	added bool // its postings are there
	done  bool
}

// step reads the video's entity and makes the one step that it calls for. It fails as outrun says if another worker comes
// first, and is then made again.
func (p *update) step(ctx context.Context) error {
	now, err := p.read(ctx, p.video.Name)
	if err != nil {
		return err
	}
	switch {
	case now.Version > p.video.Version:
		p.done = true
		return p.removeAll(ctx, p.video.Name, p.video.Credits.terms(), p.video.Version)
	case now.before.Title != "" && (now.Version < p.video.Version || p.added):
		// A killed worker may have left postings of the former version. They go before a new version comes, so that an
		// entity never names more than one set of credits to be removed.
		// Postings of terms that the video still has are of its version, and stay.
		if err := p.removeAll(ctx, now.Name, now.before.terms(), now.Version-1); err != nil {
			return err
		}
		now.before = Credits{}
		return p.write(ctx, now)
	case now.Version < p.video.Version:
		next := p.video
		next.before, next.etag = now.Credits, now.etag
		return p.write(ctx, next)
	case !now.Credits.equal(p.video.Credits):
		return fmt.Errorf("version %d has other credits already", now.Version)
	case !p.added:
		p.added = true
		return p.addAll(ctx)
	}
	p.done = true
	return nil
}

// addAll adds the postings of this version.
func (p *update) addAll(ctx context.Context) error {
	for _, t := range p.video.Credits.terms() {
		if err := p.add(ctx, t, p.video.Name, p.video.Version); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes the postings of a video up to a version.
func (x *Index) removeAll(ctx context.Context, video string, terms []term, version int64) error {
	for _, t := range terms {
		if err := x.remove(ctx, t, video, version); err != nil {
			return err
		}
	}
	return nil
}

// Properties of a video's entity.
const (
	versionProperty = "Version"
	creditsProperty = "Credits"
	beforeProperty  = "Before"
)

// read returns a video; one that does not exist has the version 0.
func (x *Index) read(ctx context.Context, video string) (Video, error) {
	e, err := find(ctx, x.videos, table.Key{Partition: video})
	if err != nil || e.ETag == "" {
		return Video{Name: video}, err
	}
	v := Video{Name: video, Version: e.Int(versionProperty), etag: e.ETag}
	if v.Credits, err = decode(e.Text(creditsProperty)); err != nil {
		return Video{}, fmt.Errorf("read the video %s: %w", video, err)
	}
	if before := e.Text(beforeProperty); before != "" {
		if v.before, err = decode(before); err != nil {
			return Video{}, fmt.Errorf("read the video %s: %w", video, err)
		}
	}
	return v, nil
}

// write stores a video if it is still as it was read.
func (x *Index) write(ctx context.Context, v Video) error {
	credits, err := v.Credits.encode()
	if err != nil {
		return err
	}
	e := table.Entity{Key: table.Key{Partition: v.Name}, ETag: v.etag}
	e.Properties = map[string]any{versionProperty: v.Version, creditsProperty: credits}
	if v.before.Title != "" {
		if e.Properties[beforeProperty], err = v.before.encode(); err != nil {
			return err
		}
	}
	if v.etag == "" {
		_, err = x.videos.Insert(ctx, e)
	} else {
		_, err = x.videos.Update(ctx, e)
	}
	return err
}

// find returns an entity; one that does not exist has no ETag and no properties.
func find(ctx context.Context, s table.Store, k table.Key) (table.Entity, error) {
	e, err := s.Get(ctx, k)
	if errors.Is(err, table.ErrMissing) {
		return table.Entity{Key: k, Properties: map[string]any{}}, nil
	}
	return e, err
}
