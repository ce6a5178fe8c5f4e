package main

import (
	"errors"

	"github.com/millrace/millrace/examples/video/index"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

// openIndex opens the index in a file, or one in memory if the path is "". The caller calls closeIndex.
func openIndex(path string) (x *index.Index, closeIndex func() error, err error) {
	if path == "" {
		return index.New(table.Memory("videos"), table.Memory("terms"), table.Memory("postings")), func() error { return nil }, nil
	}
	file, err := filetable.Open(path, nil)
	if err != nil {
		return nil, nil, err
	}
	var all [3]table.Store
	for i, name := range []string{"videos", "terms", "postings"} {
		if all[i], err = file.Table(name); err != nil {
			return nil, nil, errors.Join(err, file.Close())
		}
	}
	return index.New(all[0], all[1], all[2]), file.Close, nil
}
