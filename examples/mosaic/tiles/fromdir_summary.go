package tiles

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// DirSummary counts what became of the pictures in a folder. The zero value is that of an empty folder.
type DirSummary struct {
	Found   int            // pictures in the folder and those within it
	Used    int            // those that became tiles
	Cached  int            // those of the used that came from the cache, without being decoded
	Skipped map[string]int // how many of the rest were of each kind, such as "HEIC" or "damaged"

	// ProfilesIgnored counts the used pictures with a colour profile that was not applied.
	ProfilesIgnored int

	// CacheErr says why the cache could not be used or written. The library is complete nevertheless.
	CacheErr error
}

// String is one line for people, such as "612 of 644 used, 32 skipped: 20 HEIC, 12 damaged". The most
// frequent kind comes first.
func (s DirSummary) String() string {
	line := fmt.Sprintf("%d of %d used", s.Used, s.Found)
	kinds := slices.SortedFunc(maps.Keys(s.Skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Skipped[b], s.Skipped[a]), cmp.Compare(a, b))
	})
	total := 0
	parts := make([]string, len(kinds))
	for i, kind := range kinds {
		total += s.Skipped[kind]
		parts[i] = fmt.Sprintf("%d %s", s.Skipped[kind], kind)
	}
	if total > 0 {
		line += fmt.Sprintf(", %d skipped: %s", total, strings.Join(parts, ", "))
	}
	if s.ProfilesIgnored > 0 {
		line += fmt.Sprintf("; the colour profile of %d is ignored", s.ProfilesIgnored)
	}
	return line
}

func (s *DirSummary) skip(err error) {
	if s.Skipped == nil {
		s.Skipped = map[string]int{}
	}
	s.Skipped[kindOf(err)]++
}

// kindOf names the reason why a file is not a tile.
func kindOf(err error) string {
	unsupported := (*picture.UnsupportedError)(nil)
	switch {
	case errors.As(err, &unsupported):
		return unsupported.Format
	case errors.Is(err, picture.ErrNotPicture):
		return "not a picture"
	case errors.Is(err, picture.ErrTooLarge):
		return "too large"
	case errors.Is(err, picture.ErrDamaged):
		return "damaged"
	case errors.Is(err, fs.ErrPermission):
		return "not permitted"
	case errors.Is(err, errAround):
		return "link to a folder around it"
	}
	return "unreadable"
}
