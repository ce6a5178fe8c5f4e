package tabletest

import (
	"time"

	"github.com/millrace/millrace/table"
)

var entityTests = []test{
	{"AnEntityIsInsertedReadUpdatedAndDeleted", entityLives},
	{"InsertTellsThatAnEntityExists", insertTells},
	{"ChangesTellThatAnEntityIsMissing", changesTell},
	{"AnUpdateReplacesAllProperties", updateReplaces},
	{"TheStoreKeepsNothingOfItsArguments", storeKeepsNothing},
	{"ModifiedIsWhenTheEntityChanged", modifiedIsWhen},
}

var ann = key("owners", "ann")

func entityLives(e *env) {
	e.hasNot(ann)
	etag := e.insert(ann, properties{"Name": "Ann", "Age": int32(30)})
	e.has(ann, etag, properties{"Name": "Ann", "Age": int32(30)})
	etag = e.update(ann, etag, properties{"Name": "Ann", "Age": int32(31)})
	e.has(ann, etag, properties{"Name": "Ann", "Age": int32(31)})
	e.selects(table.Query{}, "owners/ann")
	e.ok(e.s.Delete(e.Context(), ann, etag))
	e.hasNot(ann)
	e.selects(table.Query{})
	etag = e.insert(ann, nil)
	e.has(ann, etag, nil)
}

func insertTells(e *env) {
	etag := e.insert(ann, properties{"Name": "Ann"})
	got, err := e.s.Insert(e.Context(), table.Entity{Key: ann, Properties: properties{"Name": "Bob"}, ETag: etag})
	e.is(err, table.ErrExists, "insert", ann)
	if got != "" {
		e.Errorf("an insert that failed returned the version %q", got)
	}
	_, err = e.s.Insert(e.Context(), table.Entity{Key: ann, ETag: table.Any})
	e.is(err, table.ErrExists, "insert", ann)
	e.has(ann, etag, properties{"Name": "Ann"})
	e.insert(key("owners", "an"), nil) // a neighbor
	e.insert(key("owner", "sann"), nil)
	e.has(ann, etag, properties{"Name": "Ann"})
}

func changesTell(e *env) {
	etag := e.insert(ann, nil)
	bob := key("owners", "bob")
	for _, version := range []table.ETag{etag, table.Any} {
		got, err := e.s.Update(e.Context(), table.Entity{Key: bob, ETag: version})
		e.is(err, table.ErrMissing, "update", bob)
		if got != "" {
			e.Errorf("an update that failed returned the version %q", got)
		}
		e.is(e.s.Delete(e.Context(), bob, version), table.ErrMissing, "delete", bob)
		e.hasNot(bob)
	}
	e.has(ann, etag, nil)
}

// updateReplaces: no property of the version before is left, and none changes its type.
func updateReplaces(e *env) {
	etag := e.insert(ann, properties{"Name": "Ann", "Age": int32(30), "Kind": "person"})
	etag = e.update(ann, etag, properties{"Age": int64(31), "Town": "Bern"})
	e.has(ann, etag, properties{"Age": int64(31), "Town": "Bern"})
	etag = e.update(ann, etag, nil)
	e.has(ann, etag, nil)
}

func storeKeepsNothing(e *env) {
	image, want := []byte{1, 2, 3}, properties{"Image": []byte{1, 2, 3}, "Name": "Ann"}
	given := properties{"Image": image, "Name": "Ann"}
	spoil := func(p properties) {
		if data, ok := p["Image"].([]byte); ok && len(data) > 0 {
			data[0]++
		}
		p["Name"] = "Bob"
		p["More"] = true
	}
	etag := e.insert(ann, given)
	spoil(given)
	e.has(ann, etag, want)
	spoil(e.get(ann).Properties)
	e.has(ann, etag, want)
	for _, got := range e.page(table.Query{}).Entities {
		spoil(got.Properties)
	}
	e.has(ann, etag, want)

	given = properties{"Image": []byte{1, 2, 3}, "Name": "Ann"}
	etag = e.update(ann, etag, given)
	spoil(given)
	e.has(ann, etag, want)

	given = properties{"Image": []byte{1, 2, 3}, "Name": "Ann"}
	etags, err := e.s.Apply(e.Context(), []table.Change{table.Updating(table.Entity{Key: ann, Properties: given, ETag: etag})})
	e.ok(err)
	spoil(given)
	e.has(ann, etags[0], want)
}

// modifiedIsWhen: in a bubble, times are exact.
func modifiedIsWhen(e *env) {
	begin := time.Now().UTC()
	etag := e.insert(ann, nil)
	first := e.get(ann).Modified
	if e.h.Bubble {
		time.Sleep(time.Hour)
	}
	e.update(ann, etag, nil)
	second := e.get(ann).Modified
	if second.Before(first) {
		e.Errorf("modified at %v and later at %v", first, second)
	}
	if e.h.Bubble && (!first.Equal(begin) || second.Sub(first) != time.Hour) {
		e.Errorf("modified at %v and %v, want %v and an hour later", first, second, begin)
	}
	if page := e.page(table.Query{}); len(page.Entities) != 1 || !page.Entities[0].Modified.Equal(second) {
		e.Errorf("the page %v does not say that the entity was modified at %v", page, second)
	}
}
