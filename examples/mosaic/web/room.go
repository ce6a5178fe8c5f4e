package web

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"path"

	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// used returns the bytes of all files that count against the limit.
func (s *Server) used() int64 {
	return s.shelf.size(".") + folderSize(s.options.Blobs) + folderSize(s.options.Queues)
}

// folderSize returns the bytes of the files in a folder, 0 if there is none.
func folderSize(folder string) int64 {
	if folder == "" {
		return 0
	}
	return filesSize(os.DirFS(folder), ".")
}

// filesSize returns the bytes of the files below a folder. What has just been deleted takes no space.
func filesSize(files fs.FS, folder string) (n int64) {
	_ = fs.WalkDir(files, folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what has just been deleted takes no space
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// promised returns the bytes that jobs may still take that have not ended.
func (s *Server) promised() (n int64) {
	for _, j := range s.shelf.all() {
		if now := j.current(); !now.State.ended() {
			n += s.takes(now.plan())
		}
	}
	return n
}

// takes is what the files of a job may take at once. While the mosaic is composed it is there three times if the blobs count:
// as slices, as the blob and as the file of the page.
func (s *Server) takes(p picture.Plan) int64 {
	if s.options.Blobs == "" {
		return mosaicBytes(p)
	}
	return 3 * mosaicBytes(p)
}

// mosaicBytes is what the file of a mosaic may take.
func mosaicBytes(p picture.Plan) int64 {
	size := p.Size()
	return int64(size.X) * int64(size.Y) * 3
}

// room refuses a job of so many bytes that there is no room for.
func (s *Server) room(bytes int64) error {
	if s.shelf.count() >= s.limits.Jobs {
		return refuse(http.StatusConflict, "%d mosaics are kept, which is the limit: delete some", s.limits.Jobs)
	}
	if taken := s.used() + s.promised(); taken+bytes > s.limits.Disk {
		return refuse(http.StatusInsufficientStorage, "this may take %s more, and %s of %s are used or promised to mosaics that are being made: delete some mosaics or libraries, or make a smaller one", bytesText(bytes), bytesText(taken), bytesText(s.limits.Disk))
	}
	return nil
}

// makeRoom is room, after what can be made again was removed, if there is no room otherwise.
func (s *Server) makeRoom(ctx context.Context, bytes int64) error {
	err := s.room(bytes)
	if err == nil || s.used()+s.promised()+bytes <= s.limits.Disk {
		return err
	}
	s.reclaim(ctx)
	return s.room(bytes)
}

// reclaim removes what can be made again, and what nobody needs.
func (s *Server) reclaim(ctx context.Context) {
	if err := s.options.Reclaim(ctx); err != nil && ctx.Err() == nil {
		s.logger.Warn("what nobody needs any more cannot be removed", "error", err)
	}
	entries, err := fs.ReadDir(s.root.FS(), cacheFolder)
	for _, e := range entries {
		if err == nil {
			err = s.root.RemoveAll(path.Join(cacheFolder, e.Name()))
		}
	}
	if err != nil {
		s.logger.Warn("the cache of tiles cannot be emptied", "error", err)
	}
}

// roomForTiles refuses to store the tiles of a library that there is no room for.
func (s *Server) roomForTiles(l *tiles.Library) error {
	if _, err := s.root.Stat(tilesFile(l.ID())); err == nil {
		return nil // stored already
	}
	bytes := libraryBytes(l)
	if s.options.Blobs != "" {
		bytes *= 2
	}
	if s.used()+s.promised()+bytes > s.limits.Disk {
		return plainly("There is no room for the tiles: they may take %s. Delete some mosaics or libraries, and then try again.", bytesText(bytes))
	}
	return nil
}

// roomForLibrary refuses a library that there is no room for.
func (s *Server) roomForLibrary() error {
	uploaded := 0
	for _, v := range s.libraries.views() {
		if v.Uploaded {
			uploaded++
		}
	}
	if uploaded >= s.limits.Libraries {
		return refuse(http.StatusConflict, "%d libraries were uploaded, which is the limit: delete one first", uploaded)
	}
	if used := s.used(); used > s.limits.Disk {
		return refuse(http.StatusInsufficientStorage, "%s of %s are used: delete some mosaics or libraries", bytesText(used), bytesText(s.limits.Disk))
	}
	return nil
}
