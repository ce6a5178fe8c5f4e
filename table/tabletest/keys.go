package tabletest

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/table"
)

var keyTests = []test{
	{"EveryRowIsItsOwnEntity", everyRowIsItsOwn},
	{"EveryPartitionIsItsOwn", everyPartitionIsItsOwn},
	{"TheLongestKeysWork", longestKeysWork},
}

// texts are those that a store could take for something else in a key.
var texts = []string{
	"a", "A", " ", " a", "a ", "a  b", "'", "''", "a'b", `"`, `a"b`, "%", "%20", "%2F", "%25", "+", "a+b", "=", "a=b&c=d", "&", ";", ",", "(", ")",
	"('a')", ".", "..", "...", "a.b", "~", "-", "_", "!", "*", "$filter", "@", ":", "|", "<b>", "{}", "[]", "`", "^", "ä", "é", "e\u0301", "ß",
	"中文", "🙂", "null", "0", "00", "1", "10", "9", "a" + strings.Repeat("b", 300),
}

func everyRowIsItsOwn(e *env) {
	rows := append(slices.Clone(texts), "")
	etags := map[string]table.ETag{}
	for _, row := range rows {
		etags[row] = e.insert(key("rows", row), properties{"Row": row})
	}
	var want []string
	slices.Sort(rows)
	for _, row := range rows {
		k := key("rows", row)
		want = append(want, k.String())
		etags[row] = e.update(k, etags[row], properties{"Row": row + "!"})
		_, err := e.s.Insert(e.Context(), table.Entity{Key: k})
		e.is(err, table.ErrExists, "insert", k)
	}
	e.selects(table.Query{Partition: "rows"}, want...)
	e.selects(table.Query{Partition: "rows", Top: 7}, want...)
	for i, row := range rows {
		k := key("rows", row)
		e.has(k, etags[row], properties{"Row": row + "!"})
		e.ok(e.s.Delete(e.Context(), k, etags[row]))
		e.hasNot(k)
		if row != "" && i%5 == 0 {
			e.selects(table.Query{Partition: "rows"}, want[i+1:]...)
			e.selects(table.Query{Partition: "rows", FromRow: row}, want[i+1:]...)
			e.selects(table.Query{Partition: "rows", ToRow: row})
		}
	}
}

func everyPartitionIsItsOwn(e *env) {
	partitions := slices.Clone(texts)
	for _, partition := range partitions {
		_, err := e.s.Apply(e.Context(), []table.Change{
			table.Inserting(table.Entity{Key: key(partition, "r"), Properties: properties{"Partition": partition}}),
			table.Inserting(table.Entity{Key: key(partition, partition+"s"), Properties: properties{"Partition": partition}}),
		})
		e.ok(err)
	}
	slices.Sort(partitions)
	var want []string
	for _, partition := range partitions {
		both := []string{partition + "/r", partition + "/" + partition + "s"}
		slices.Sort(both)
		e.selects(table.Query{Partition: partition}, both...)
		e.selects(table.Query{Partition: partition, Top: 1}, both...)
		want = append(want, both...)
	}
	e.selects(table.Query{}, want...)
	e.selects(table.Query{Top: 3}, want...)
	for i, partition := range partitions {
		e.ok(e.s.Delete(e.Context(), key(partition, "r"), table.Any))
		e.ok(e.s.Delete(e.Context(), key(partition, partition+"s"), table.Any))
		if i%10 == 0 {
			e.selects(table.Query{}, want[2*i+2:]...)
		}
	}
}

func longestKeysWork(e *env) {
	for _, long := range []string{strings.Repeat("k", 512), strings.Repeat("€", 512), strings.Repeat("🙂", 256), strings.Repeat("%", 512)} {
		p := properties{"Name": "long"}
		etag := e.insert(key(long, long), p)
		e.has(key(long, long), etag, p)
		etag = e.update(key(long, long), etag, p)
		e.insert(key(long, ""), nil)
		e.selects(table.Query{Partition: long, Top: 1}, long+"/", long+"/"+long) // with a token of 2 KiB
		e.ok(e.s.Delete(e.Context(), key(long, long), etag))
		e.hasNot(key(long, long))
	}
}
