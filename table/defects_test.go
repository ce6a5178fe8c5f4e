package table_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/tabletest"
)

const secret = "c2VjcmV0"

// Each defect is a mistake that a store could have, wrapped around a correct store. The suite must find it.
var defects = []struct {
	name  string
	found string // the tests of which each must find it
	make  func(s table.Store) table.Store
}{
	{"an update does not compare versions", "OfTwoWritersTheSecondFails ALoserReadsAgainAndWins OfManyWritersOfAVersionOneWins " +
		"ManyWritersLoseNoChange EveryChangeMakesANewVersion AnyHistoryFollowsTheModel", func(s table.Store) table.Store { return careless{s} }},
	{"versions are compared before the write, not with it", "OfManyWritersOfAVersionOneWins ManyWritersLoseNoChange", func(s table.Store) table.Store { return early{s} }},
	{"a deletion does not compare versions", "OfTwoWritersTheSecondFails", func(s table.Store) table.Store {
		return deletes{s, func(ctx context.Context, k table.Key, _ table.ETag) error { return s.Delete(ctx, k, table.Any) }}
	}},
	{"what is missing can be deleted", "ChangesTellThatAnEntityIsMissing OfManyInsertsOneSucceeds", func(s table.Store) table.Store {
		return deletes{s, func(ctx context.Context, k table.Key, etag table.ETag) error {
			if err := s.Delete(ctx, k, etag); !errors.Is(err, table.ErrMissing) {
				return err
			}
			return nil
		}}
	}},
	{"insert replaces", "InsertTellsThatAnEntityExists OfManyInsertsOneSucceeds AnyHistoryFollowsTheModel", func(s table.Store) table.Store { return upserts{s} }},
	{"update inserts", "ChangesTellThatAnEntityIsMissing", func(s table.Store) table.Store { return inserts{s} }},
	{"update merges", "AnUpdateReplacesAllProperties AnyHistoryFollowsTheModel", func(s table.Store) table.Store { return merges{s} }},
	{"a write of the same content is left out", "EveryChangeMakesANewVersion", func(s table.Store) table.Store { return saves{s} }},
	{"versions begin anew after a deletion", "EveryChangeMakesANewVersion AnyHistoryFollowsTheModel", func(s table.Store) table.Store {
		return &recounts{Store: s, versions: map[table.Key]int{}, real: map[string]table.ETag{}}
	}},
	{"any is a version", "AnyReplacesAndDeletesEveryVersion", func(s table.Store) table.Store { return literal{s} }},
	{"an update of any reads the version first", "AnyReplacesAndDeletesEveryVersion", func(s table.Store) table.Store { return &onceAny{Store: s} }},

	{"numbers have one type", "EveryValueComesBack", func(s table.Store) table.Store {
		return values(s, func(v any) any {
			if n, ok := v.(int32); ok {
				return int64(n)
			}
			return v
		})
	}},
	{"numbers go through float64", "EveryValueComesBack EveryOperatorComparesEveryType", func(s table.Store) table.Store {
		return stored(s, func(v any) any {
			if n, ok := v.(int64); ok && n < 1<<62 {
				return int64(float64(n))
			}
			return v
		})
	}},
	{"times have milliseconds", "EveryValueComesBack", func(s table.Store) table.Store {
		return stored(s, func(v any) any {
			if moment, ok := v.(time.Time); ok {
				return moment.UTC().Truncate(time.Millisecond)
			}
			return v
		})
	}},
	{"times are local", "EveryValueComesBack", func(s table.Store) table.Store {
		return values(s, func(v any) any {
			if moment, ok := v.(time.Time); ok {
				return moment.In(time.FixedZone("", 3600))
			}
			return v
		})
	}},
	{"empty bytes are nil", "EveryValueComesBack", func(s table.Store) table.Store {
		return values(s, func(v any) any {
			if data, ok := v.([]byte); ok && len(data) == 0 {
				return []byte(nil)
			}
			return v
		})
	}},
	{"bytes are text", "EveryValueComesBack LargeValuesComeBack", func(s table.Store) table.Store {
		return values(s, func(v any) any {
			if data, ok := v.([]byte); ok {
				return string(data)
			}
			return v
		})
	}},
	{"texts are trimmed", "EveryValueComesBack", func(s table.Store) table.Store {
		return stored(s, func(v any) any {
			if text, ok := v.(string); ok {
				return strings.TrimSpace(text)
			}
			return v
		})
	}},
	{"line ends are normalized", "EveryValueComesBack", func(s table.Store) table.Store {
		return stored(s, func(v any) any {
			if text, ok := v.(string); ok {
				return strings.ReplaceAll(text, "\r\n", "\n")
			}
			return v
		})
	}},
	{"values are cut at 64,000 bytes", "LargeValuesComeBack", func(s table.Store) table.Store {
		return stored(s, func(v any) any {
			if data, ok := v.([]byte); ok {
				return data[:min(len(data), 64_000)]
			}
			return v
		})
	}},
	{"there are 251 properties at most", "ManyPropertiesComeBack", func(s table.Store) table.Store { return few{s} }},
	{"no properties are nil", "AnEntityIsInsertedReadUpdatedAndDeleted", func(s table.Store) table.Store { return nils{s} }},
	{"what is returned is kept", "TheStoreKeepsNothingOfItsArguments", func(s table.Store) table.Store { return &caches{Store: s} }},
	{"what is given is kept", "TheStoreKeepsNothingOfItsArguments", func(s table.Store) table.Store { return &clings{Store: s} }},
	{"modified is not kept", "ModifiedIsWhenTheEntityChanged AnEntityIsInsertedReadUpdatedAndDeleted", func(s table.Store) table.Store {
		return entities(s, func(e *table.Entity) { e.Modified = time.Time{} })
	}},
	{"modified is when it was read", "ModifiedIsWhenTheEntityChanged", func(s table.Store) table.Store {
		return entities(s, func(e *table.Entity) { e.Modified = e.Modified.Add(time.Hour) })
	}},

	{"keys have no case", "EveryRowIsItsOwnEntity EveryPartitionIsItsOwn", func(s table.Store) table.Store {
		return renamed{s, func(k table.Key) table.Key {
			return table.Key{Partition: strings.ToLower(k.Partition), Row: strings.ToLower(k.Row)}
		}}
	}},
	{"keys are trimmed", "EveryRowIsItsOwnEntity", func(s table.Store) table.Store {
		return renamed{s, func(k table.Key) table.Key { return table.Key{Partition: k.Partition, Row: strings.TrimSpace(k.Row)} }}
	}},
	{"keys are unescaped once too often", "EveryRowIsItsOwnEntity", func(s table.Store) table.Store {
		return renamed{s, func(k table.Key) table.Key {
			return table.Key{Partition: k.Partition, Row: strings.ReplaceAll(k.Row, "%25", "%")}
		}}
	}},
	{"a quote is doubled", "EveryRowIsItsOwnEntity", func(s table.Store) table.Store {
		return renamed{s, func(k table.Key) table.Key {
			return table.Key{Partition: k.Partition, Row: strings.ReplaceAll(k.Row, "''", "'")}
		}}
	}},
	{"long keys are cut", "TheLongestKeysWork", func(s table.Store) table.Store {
		return renamed{s, func(k table.Key) table.Key {
			return table.Key{Partition: k.Partition, Row: k.Row[:min(len(k.Row), 500)]}
		}}
	}},

	{"a page is in reverse", "AQueryYieldsEntitiesInOrder EveryRowIsItsOwnEntity", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, _ table.Query) { slices.Reverse(p.Entities) })
	}},
	{"rows are in the order of numbers", "AQueryYieldsEntitiesInOrder", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, _ table.Query) {
			slices.SortStableFunc(p.Entities, func(a, b table.Entity) int {
				return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(len(a.Row), len(b.Row)), cmp.Compare(a.Row, b.Row))
			})
		})
	}},
	{"a query begins behind its first row", "ARangeHasItsRowsOnly", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, q table.Query) {
			p.Entities = slices.DeleteFunc(p.Entities, func(e table.Entity) bool { return q.FromRow != "" && e.Row == q.FromRow })
		})
	}},
	{"a query includes its last row", "ARangeHasItsRowsOnly AnyHistoryFollowsTheModel", func(s table.Store) table.Store {
		return queries{s, func(ctx context.Context, q table.Query) (table.Page, error) {
			if q.ToRow != "" && q.Check() == nil {
				q.ToRow += " "
			}
			return s.Query(ctx, q)
		}}
	}},
	{"a partition is a prefix", "AQueryYieldsEntitiesInOrder EveryPartitionIsItsOwn", func(s table.Store) table.Store { return prefixes{s} }},
	{"a query has other versions", "AQueryReturnsWhatGetReturns", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, _ table.Query) {
			for i := range p.Entities {
				p.Entities[i].ETag += " "
			}
		})
	}},
	{"Top is left out", "TopIsTheFirstEntities", func(s table.Store) table.Store {
		return queries{s, func(ctx context.Context, q table.Query) (table.Page, error) {
			if q.Check() == nil {
				q.Top = 0
			}
			return s.Query(ctx, q)
		}}
	}},
	{"a filter is left out", "EveryOperatorComparesEveryType AFilterNarrowsARange AndAndOrCombine AnyHistoryFollowsTheModel", func(s table.Store) table.Store {
		return queries{s, func(ctx context.Context, q table.Query) (table.Page, error) {
			if q.Check() == nil {
				q.Filter = table.Filter{}
			}
			return s.Query(ctx, q)
		}}
	}},
	{"what is missing is not equal", "AFilterNeedsTheProperty", func(s table.Store) table.Store { return unequal{s} }},
	{"quotes end a text", "NoTextEscapesFromAFilter", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, q table.Query) {
			if strings.Contains(q.Filter.String(), "''") {
				p.Entities = nil
			}
		})
	}},

	{"there is one page", "APageEndsAtAThousandEntities APageMayBeEmptyBeforeTheEnd AllReadsPageAfterPage", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, _ table.Query) { p.Next = "" })
	}},
	{"an empty page has no token", "APageMayBeEmptyBeforeTheEnd AnyHistoryFollowsTheModel", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, _ table.Query) {
			if len(p.Entities) == 0 {
				p.Next = ""
			}
		})
	}},
	{"pages are large", "APageEndsAtAThousandEntities APageEndsAtFourMebibytes APageEndsWhereAPartitionEnds APageMayBeEmptyBeforeTheEnd", func(s table.Store) table.Store { return joins{s} }},
	{"a token counts entities", "InsertedBeforeATokenIsNotSeenAndBeyondIs PagesSurviveTheDeletionOfWhatTheyShow", func(s table.Store) table.Store { return counts{s} }},
	{"a token names an entity that must exist", "APageMayBeginWhereNothingIs InsertedBeforeATokenIsNotSeenAndBeyondIs", func(s table.Store) table.Store { return exists{s} }},
	{"a token is the last key of a page", "InsertedBeforeATokenIsNotSeenAndBeyondIs", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, q table.Query) {
			if n := len(p.Entities); n > 1 && p.Next != "" {
				p.Next = table.TokenFor(p.Entities[n-1].Key)
			}
		})
	}},
	{"entities are in the order of their changes", "InsertedBeforeATokenIsNotSeenAndBeyondIs AQueryYieldsEntitiesInOrder", func(s table.Store) table.Store {
		return pages(s, func(p *table.Page, _ table.Query) {
			slices.SortFunc(p.Entities, func(a, b table.Entity) int {
				return cmp.Or(cmp.Compare(len(a.ETag), len(b.ETag)), cmp.Compare(a.ETag, b.ETag))
			})
		})
	}},
	{"a token keeps its page size", "ATokenTakesAnotherTop", func(s table.Store) table.Store { return sized{s} }},
	{"a token leaves its partition", "APageMayBeginWhereNothingIs", func(s table.Store) table.Store { return leaves{s} }},
	{"tokens are escaped", "TopIsTheFirstEntities", func(s table.Store) table.Store { return escapes{s} }},

	{"a group is made change by change", "AGroupThatFailsChangesNothing APageHasNoPartOfAGroup GroupsRace AnyHistoryFollowsTheModel", func(s table.Store) table.Store { return piecemeal{s} }},
	{"a group has 101 changes", "AGroupHasUpToAHundredChanges", func(s table.Store) table.Store { return piecemeal{s} }},
	{"a group has 1 MiB at most", "AGroupMayHaveTwoMebibytes", func(s table.Store) table.Store { return slight{s} }},
	{"a group has any changes", "AGroupThatBreaksARuleChangesNothing", func(s table.Store) table.Store { return piecemeal{s} }},
	{"a group has versions in another order", "AGroupMakesAllItsChanges", func(s table.Store) table.Store {
		return groups{s, func(etags []table.ETag) []table.ETag { slices.Reverse(etags); return etags }}
	}},
	{"a group has no versions", "AGroupMakesAllItsChanges", func(s table.Store) table.Store {
		return groups{s, func([]table.ETag) []table.ETag { return nil }}
	}},
	{"a page is read in two halves", "APageHasNoPartOfAGroup", func(s table.Store) table.Store { return halves{s} }},
	{"a query goes on as it began", "TwoPagesAreNotOneSnapshot", func(s table.Store) table.Store { return &frozen{Store: s, pages: map[table.Token]table.Page{}} }},

	{"errors are bare", "InsertTellsThatAnEntityExists", func(s table.Store) table.Store {
		return failures{s, func(e *table.Error) error { return e.Kind }}
	}},
	{"errors do not name the table", "InsertTellsThatAnEntityExists", func(s table.Store) table.Store {
		return failures{s, func(e *table.Error) error { e.Table = ""; return e }}
	}},
	{"errors do not name the entity", "InsertTellsThatAnEntityExists", func(s table.Store) table.Store {
		return failures{s, func(e *table.Error) error { e.Key = table.Key{}; return e }}
	}},
	{"errors do not name the operation", "InsertTellsThatAnEntityExists", func(s table.Store) table.Store {
		return failures{s, func(e *table.Error) error { e.Op = ""; return e }}
	}},
	{"errors have lines", "InsertTellsThatAnEntityExists", func(s table.Store) table.Store {
		return failures{s, func(e *table.Error) error { return fmt.Errorf("%w\nsee above", e) }}
	}},
	{"errors have secrets", "InsertTellsThatAnEntityExists", func(s table.Store) table.Store {
		return failures{s, func(e *table.Error) error { e.Detail = "signed with " + secret; return e }}
	}},
	{"contexts are not heard", "AnEndedContextEndsEveryCall AllReadsPageAfterPage", func(s table.Store) table.Store { return deaf{s} }},
	{"an end has no cause", "AnEndedContextEndsEveryCall", func(s table.Store) table.Store { return causeless{s} }},
	{"contexts come before arguments", "BadKeysAreRefused BadPropertiesAreRefused BadVersionsAreRefused BadQueriesAreRefused AGroupThatBreaksARuleChangesNothing", func(s table.Store) table.Store { return hasty{s} }},
}

// careless updates whatever version there is.
type careless struct{ table.Store }

func (s careless) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	if e.ETag != "" {
		e.ETag = table.Any
	}
	return s.Store.Update(ctx, e)
}

// early compares versions by reading first.
type early struct{ table.Store }

func (s early) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	now, err := s.Get(ctx, e.Key)
	if err != nil || now.ETag != e.ETag {
		return s.Store.Update(ctx, e)
	}
	time.Sleep(time.Millisecond) // others come in between
	e.ETag = table.Any
	return s.Store.Update(ctx, e)
}

// deletes replaces Delete.
type deletes struct {
	table.Store
	remove func(ctx context.Context, k table.Key, etag table.ETag) error
}

func (s deletes) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	return s.remove(ctx, k, etag)
}

type upserts struct{ table.Store }

func (s upserts) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	etag, err := s.Store.Insert(ctx, e)
	if errors.Is(err, table.ErrExists) {
		e.ETag = table.Any
		return s.Update(ctx, e)
	}
	return etag, err
}

type inserts struct{ table.Store }

func (s inserts) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	etag, err := s.Store.Update(ctx, e)
	if errors.Is(err, table.ErrMissing) {
		return s.Insert(ctx, e)
	}
	return etag, err
}

type merges struct{ table.Store }

func (s merges) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	if now, err := s.Get(ctx, e.Key); err == nil {
		maps.Copy(now.Properties, e.Properties)
		e.Properties = now.Properties
	}
	return s.Store.Update(ctx, e)
}

// saves writes only what changes something.
type saves struct{ table.Store }

func (s saves) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	if now, err := s.Get(ctx, e.Key); err == nil && reflect.DeepEqual(now.Properties, e.Clone().Properties) && (e.ETag == now.ETag || e.ETag == table.Any) {
		return now.ETag, nil
	}
	return s.Store.Update(ctx, e)
}

// recounts has versions of its own, which count the changes since the entity was inserted.
type recounts struct {
	table.Store
	versions map[table.Key]int
	real     map[string]table.ETag
}

// fake names the version that the store has made.
func (s *recounts) fake(k table.Key, etag table.ETag) table.ETag {
	s.versions[k]++
	version := table.ETag("v" + strconv.Itoa(s.versions[k]))
	s.real[k.String()+string(version)] = etag
	return version
}

// of returns the store's version.
func (s *recounts) of(k table.Key, version table.ETag) table.ETag {
	if etag, found := s.real[k.String()+string(version)]; found {
		return etag
	}
	return version
}

func (s *recounts) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	etag, err := s.Store.Insert(ctx, e)
	if err == nil {
		etag = s.fake(e.Key, etag)
	}
	return etag, err
}

func (s *recounts) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	e.ETag = s.of(e.Key, e.ETag)
	etag, err := s.Store.Update(ctx, e)
	if err == nil {
		etag = s.fake(e.Key, etag)
	}
	return etag, err
}

func (s *recounts) Delete(ctx context.Context, k table.Key, version table.ETag) error {
	err := s.Store.Delete(ctx, k, s.of(k, version))
	if err == nil {
		delete(s.versions, k)
	}
	return err
}

// literal compares Any with the version.
type literal struct{ table.Store }

func (s literal) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	if e.ETag == table.Any {
		e.ETag = "**"
	}
	return s.Store.Update(ctx, e)
}

// onceAny knows the version only once.
type onceAny struct {
	table.Store
	used bool
}

func (s *onceAny) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	if e.ETag == table.Any && s.used {
		e.ETag = "used"
	}
	s.used = s.used || e.ETag == table.Any
	return s.Store.Update(ctx, e)
}

// changed changes entities on their way out, and on their way in.
type changed struct {
	table.Store
	out, in func(e *table.Entity)
}

func entities(s table.Store, out func(e *table.Entity)) table.Store {
	return changed{s, out, func(*table.Entity) {}}
}

// values changes values on their way out.
func values(s table.Store, change func(any) any) table.Store { return entities(s, each(change)) }

// stored changes values on their way in.
func stored(s table.Store, change func(any) any) table.Store {
	return changed{s, func(*table.Entity) {}, func(e *table.Entity) {
		e.Properties = maps.Clone(e.Properties)
		each(change)(e)
	}}
}

func each(change func(any) any) func(*table.Entity) {
	return func(e *table.Entity) {
		for name, v := range e.Properties {
			e.Properties[name] = change(v)
		}
	}
}

func (s changed) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	e, err := s.Store.Get(ctx, k)
	s.out(&e)
	return e, err
}

func (s changed) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	s.in(&e)
	return s.Store.Insert(ctx, e)
}

func (s changed) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	s.in(&e)
	return s.Store.Update(ctx, e)
}

// few refuses what is allowed.
type few struct{ table.Store }

func (s few) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	if len(e.Properties) > 251 {
		return "", table.Explain("insert", "few", e.Key, table.ErrTooLarge)
	}
	return s.Store.Insert(ctx, e)
}

type nils struct{ table.Store }

func (s nils) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	e, err := s.Store.Get(ctx, k)
	if len(e.Properties) == 0 {
		e.Properties = nil
	}
	return e, err
}

// caches returns an entity that it has returned before.
type caches struct {
	table.Store
	last table.Entity
}

func (s *caches) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	e, err := s.Store.Get(ctx, k)
	if err == nil && e.Key == s.last.Key && e.ETag == s.last.ETag {
		return s.last, nil
	}
	s.last = e
	return e, err
}

// clings keeps the bytes that it was given.
type clings struct {
	table.Store
	image []byte
}

func (s *clings) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	s.image, _ = e.Properties["Image"].([]byte)
	return s.Store.Insert(ctx, e)
}

func (s *clings) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	e, err := s.Store.Get(ctx, k)
	if err == nil {
		e.Properties["Image"] = bytes.Clone(s.image)
	}
	return e, err
}

// renamed stores entities under other keys, and shows those of the arguments.
type renamed struct {
	table.Store
	key func(table.Key) table.Key
}

func (s renamed) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	e.Key = s.key(e.Key)
	return s.Store.Insert(ctx, e)
}

func (s renamed) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	e.Key = s.key(e.Key)
	return s.Store.Update(ctx, e)
}

func (s renamed) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	return s.Store.Delete(ctx, s.key(k), etag)
}

func (s renamed) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	e, err := s.Store.Get(ctx, s.key(k))
	e.Key = k
	return e, err
}

// queries replaces Query.
type queries struct {
	table.Store
	query func(ctx context.Context, q table.Query) (table.Page, error)
}

func (s queries) Query(ctx context.Context, q table.Query) (table.Page, error) {
	return s.query(ctx, q)
}

// pages changes the pages of a store.
func pages(s table.Store, change func(p *table.Page, q table.Query)) table.Store {
	return queries{s, func(ctx context.Context, q table.Query) (table.Page, error) {
		p, err := s.Query(ctx, q)
		change(&p, q)
		return p, err
	}}
}

// prefixes has the entities of all partitions that begin with the query's.
type prefixes struct{ table.Store }

func (s prefixes) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if q.Partition == "" || q.FromRow != "" || q.ToRow != "" || q.Check() != nil {
		return s.Store.Query(ctx, q)
	}
	prefix := q.Partition
	q.Partition = ""
	p, err := s.Store.Query(ctx, q)
	p.Entities = slices.DeleteFunc(p.Entities, func(e table.Entity) bool { return !strings.HasPrefix(e.Partition, prefix) })
	return p, err
}

// unequal takes an entity without the property for one that has another value.
type unequal struct{ table.Store }

func (s unequal) Query(ctx context.Context, q table.Query) (table.Page, error) {
	name, _, found := strings.Cut(strings.TrimPrefix(q.Filter.String(), "("), " ne ")
	if !found || q.Check() != nil {
		return s.Store.Query(ctx, q)
	}
	filter := q.Filter
	q.Filter = table.Filter{}
	p, err := s.Store.Query(ctx, q)
	p.Entities = slices.DeleteFunc(p.Entities, func(e table.Entity) bool { return e.Properties[name] != nil && !filter.Match(e) })
	return p, err
}

// joins makes one page of two.
type joins struct{ table.Store }

func (s joins) Query(ctx context.Context, q table.Query) (table.Page, error) {
	p, err := s.Store.Query(ctx, q)
	if err != nil || p.Next == "" {
		return p, err
	}
	q.Token = p.Next
	more, err := s.Store.Query(ctx, q)
	return table.Page{Entities: append(p.Entities, more.Entities...), Next: more.Next}, err
}

// counts has tokens that say how many entities there were so far.
type counts struct{ table.Store }

func (s counts) Query(ctx context.Context, q table.Query) (table.Page, error) {
	skip, err := strconv.Atoi(cmp.Or(string(q.Token), "0"))
	if err != nil {
		return s.Store.Query(ctx, q)
	}
	if err := q.Check(); err != nil {
		return s.Store.Query(ctx, q)
	}
	top := cmp.Or(q.Top, 1000)
	q.Token, q.Top = "", 0
	var p table.Page
	i := 0
	for e, err := range table.All(ctx, s.Store, q) {
		if err != nil {
			return table.Page{}, err
		}
		if i++; i <= skip {
			continue
		}
		if len(p.Entities) == top {
			p.Next = table.Token(strconv.Itoa(skip + top))
			break
		}
		p.Entities = append(p.Entities, e)
	}
	return p, nil
}

// exists needs the entity that a token names.
type exists struct{ table.Store }

func (s exists) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if k, err := q.Token.Key(); err == nil {
		if _, err := s.Get(ctx, k); err != nil {
			return table.Page{}, err
		}
	}
	return s.Store.Query(ctx, q)
}

// sized has tokens with the size of the page that they came from.
type sized struct{ table.Store }

func (s sized) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if token, size, found := strings.Cut(string(q.Token), "."); found {
		q.Token = table.Token(token)
		if n, _ := strconv.Atoi(size); n != q.Top {
			return table.Page{}, errors.New("the token is of another query")
		}
	}
	p, err := s.Store.Query(ctx, q)
	if p.Next != "" {
		p.Next += table.Token("." + strconv.Itoa(q.Top))
	}
	return p, err
}

// leaves forgets the partition of a query when it goes on.
type leaves struct{ table.Store }

func (s leaves) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if q.Token != "" {
		q.Partition, q.FromRow, q.ToRow = "", "", ""
	}
	return s.Store.Query(ctx, q)
}

// escapes has tokens that need escaping.
type escapes struct{ table.Store }

func (s escapes) Query(ctx context.Context, q table.Query) (table.Page, error) {
	q.Token = table.Token(strings.TrimSuffix(string(q.Token), "=="))
	p, err := s.Store.Query(ctx, q)
	if p.Next != "" {
		p.Next += "=="
	}
	return p, err
}

// piecemeal makes the changes of a group one by one.
type piecemeal struct{ table.Store }

func (s piecemeal) Apply(ctx context.Context, changes []table.Change) (etags []table.ETag, err error) {
	for _, c := range changes {
		var etag table.ETag
		switch e := c.Entity(); {
		case c.Inserts():
			etag, err = s.Insert(ctx, e)
		case c.Deletes():
			err = s.Delete(ctx, e.Key, e.ETag)
		default:
			etag, err = s.Update(ctx, e)
		}
		if known := (*table.Error)(nil); errors.As(err, &known) {
			known.Op = "apply"
			return nil, err
		}
		etags = append(etags, etag)
		time.Sleep(10 * time.Microsecond) // others come in between
	}
	return etags, nil
}

// groups changes the versions that a group returns.
type groups struct {
	table.Store
	change func([]table.ETag) []table.ETag
}

func (s groups) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	etags, err := s.Store.Apply(ctx, changes)
	return s.change(etags), err
}

// slight refuses large groups.
type slight struct{ table.Store }

func (s slight) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	size := 0
	for _, c := range changes {
		size += c.Entity().Size()
	}
	if size > 1<<20 && size < 4<<20 {
		return nil, table.Explain("apply", "slight", table.Key{}, table.ErrTooLarge)
	}
	return s.Store.Apply(ctx, changes)
}

// halves reads the page of a partition in two calls.
type halves struct{ table.Store }

func (s halves) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if q.Top != 0 || q.Check() != nil {
		return s.Store.Query(ctx, q)
	}
	q.Top = 5
	p, err := s.Store.Query(ctx, q)
	if err != nil || p.Next == "" {
		return p, err
	}
	time.Sleep(10 * time.Microsecond) // others come in between
	q.Top, q.Token = 0, p.Next
	rest, err := s.Store.Query(ctx, q)
	return table.Page{Entities: append(p.Entities, rest.Entities...), Next: rest.Next}, err
}

// frozen reads the second page together with the first.
type frozen struct {
	table.Store
	mu    sync.Mutex
	pages map[table.Token]table.Page // guarded by mu
}

func (s *frozen) Query(ctx context.Context, q table.Query) (table.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, found := s.pages[q.Token]; found {
		return p, nil
	}
	p, err := s.Store.Query(ctx, q)
	if err == nil && p.Next != "" {
		q.Token = p.Next
		s.pages[p.Next], err = s.Store.Query(ctx, q)
	}
	return p, err
}

// failures changes the errors of inserts.
type failures struct {
	table.Store
	change func(*table.Error) error
}

func (s failures) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	etag, err := s.Store.Insert(ctx, e)
	if known := (*table.Error)(nil); errors.As(err, &known) {
		err = s.change(known)
	}
	return etag, err
}

// deaf hears no end of a context.
type deaf struct{ table.Store }

func (s deaf) Query(ctx context.Context, q table.Query) (table.Page, error) {
	return s.Store.Query(context.WithoutCancel(ctx), q)
}

// causeless says how a context ended, and not why.
type causeless struct{ table.Store }

func (s causeless) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	if ctx.Err() != nil {
		return table.Explain("delete", "causeless", k, ctx.Err())
	}
	return s.Store.Delete(ctx, k, etag)
}

// hasty looks at the context before the arguments.
type hasty struct{ table.Store }

func (s hasty) early(ctx context.Context, op string, k table.Key) error {
	if ctx.Err() == nil {
		return nil
	}
	return table.Explain(op, "hasty", k, context.Cause(ctx))
}

func (s hasty) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	if err := s.early(ctx, "insert", e.Key); err != nil {
		return "", err
	}
	return s.Store.Insert(ctx, e)
}

func (s hasty) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	if err := s.early(ctx, "delete", k); err != nil {
		return err
	}
	return s.Store.Delete(ctx, k, etag)
}

func (s hasty) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	if err := s.early(ctx, "apply", table.Key{}); err != nil {
		return nil, err
	}
	return s.Store.Apply(ctx, changes)
}

func (s hasty) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if err := s.early(ctx, "query", table.Key{Partition: q.Partition}); err != nil {
		return table.Page{}, err
	}
	return s.Store.Query(ctx, q)
}

const chosen = "TABLETEST_DEFECT"

// TestDefective runs the suite against one defect. It fails, and so runs only inside TestSuiteFindsDefects.
func TestDefective(t *testing.T) {
	name := os.Getenv(chosen)
	if name == "" {
		t.Skip("run by TestSuiteFindsDefects")
	}
	for _, d := range defects {
		if d.name+d.found == name {
			tabletest.Run(t, harness(d.make))
		}
	}
}

func harness(wrap func(s table.Store) table.Store) tabletest.Harness {
	return tabletest.Harness{
		Bubble:  true,
		Secrets: []string{secret},
		Open:    func(_ *testing.T, name string) table.Store { return wrap(table.Memory(name)) },
	}
}

func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			suitetest.Defect{Variable: chosen, Name: d.name, Found: d.found}.MustBeFound(t)
		})
	}
}

// TestSuitePassesWithoutDefects: the suite passes the store that the defects wrap.
func TestSuitePassesWithoutDefects(t *testing.T) {
	tabletest.Run(t, harness(func(s table.Store) table.Store { return s }))
}
