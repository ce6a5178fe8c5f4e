package web

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// Limits bound what users of the page may use. The zero value means the defaults.
type Limits struct {
	Upload  int64         // bytes of one picture. Defaults to 100 MB.
	Pixels  int           // of a picture. Defaults to 50 megapixels, which is also the most.
	Output  int           // pixels of a mosaic. Defaults to 400 megapixels, which is also the most.
	Jobs    int           // that are kept. Defaults to 100.
	Running int           // at a time; others wait. Defaults to 2.
	Disk    int64         // bytes of all files, with what jobs at work may still take. Defaults to 20 GB.
	Time    time.Duration // that a job may take while the program runs. Defaults to 1 h.

	Libraries int   // that are uploaded. Defaults to 20.
	Pictures  int   // of one uploaded library. Defaults to 5,000.
	Collected int64 // bytes of one uploaded library. Defaults to 4 GB.
	Uploads   int   // at a time; others are refused. Defaults to 4.
}

func (l Limits) withDefaults() Limits {
	l.Upload = cmp.Or(l.Upload, 100_000_000)
	l.Pixels = min(cmp.Or(l.Pixels, picture.MaxPixels), picture.MaxPixels)
	l.Output = min(cmp.Or(l.Output, picture.MaxOutputPixels), picture.MaxOutputPixels)
	l.Jobs = cmp.Or(l.Jobs, 100)
	l.Running = cmp.Or(l.Running, 2)
	l.Disk = cmp.Or(l.Disk, 20_000_000_000)
	l.Time = cmp.Or(l.Time, time.Hour)
	l.Libraries = cmp.Or(l.Libraries, 20)
	l.Pictures = cmp.Or(l.Pictures, 5_000)
	l.Collected = cmp.Or(l.Collected, 4_000_000_000)
	l.Uploads = cmp.Or(l.Uploads, 4)
	return l
}
