package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/examples/video/index"
)

// samples are the searches of a run that has been given none.
var samples = []string{"actor:zoe", "sea* keyword:storm", "director:o'hara", "title:restored"}

// Videos of a search that are shown: all, by pages, unless it is a sample.
const (
	pageSize   = 100
	sampleSize = 3
)

// search makes the searches and writes what they find.
func search(ctx context.Context, x *index.Index, queries []index.Query, out io.Writer) error {
	size, all := pageSize, true
	if len(queries) == 0 {
		size, all = sampleSize, false
		for _, text := range samples {
			q, err := index.ParseQuery(text)
			if err != nil {
				return err
			}
			queries = append(queries, q)
		}
	}
	for _, q := range queries {
		if err := searchOne(ctx, x, q, size, all, out); err != nil {
			return err
		}
	}
	return nil
}

// searchOne writes the first page that a query finds, or all pages.
func searchOne(ctx context.Context, x *index.Index, q index.Query, size int, all bool, out io.Writer) error {
	_, _ = fmt.Fprintf(out, "\nsearch %s\n", q)
	for from, more := "", true; more; {
		page, err := x.Search(ctx, q, from, size)
		if err != nil {
			return err
		}
		if from == "" && len(page.Videos) == 0 {
			_, _ = fmt.Fprintln(out, "  no video")
		}
		for _, v := range page.Videos {
			_, _ = fmt.Fprintf(out, "  %s  %s\n", v.Name, describe(v.Credits))
		}
		from = page.Next
		more = from != "" && all
		if from != "" && !all {
			_, _ = fmt.Fprintln(out, "  and more")
		}
	}
	return nil
}

// describe returns credits for people. They are quoted: a visitor may have written anything.
func describe(c index.Credits) string {
	text := fmt.Sprintf("%q", c.Title)
	for _, part := range []struct {
		what  string
		names []string
	}{{"by", c.Directors}, {"with", c.Actors}, {"about", c.Keywords}} {
		if len(part.names) == 0 {
			continue
		}
		var quoted []string
		for _, name := range part.names {
			quoted = append(quoted, unquoted(name))
		}
		text += " " + part.what + " " + strings.Join(quoted, ", ")
	}
	return text
}

// unquoted returns a name with everything that a terminal does not show plainly escaped.
func unquoted(name string) string {
	quoted := fmt.Sprintf("%q", name)
	return quoted[1 : len(quoted)-1]
}
