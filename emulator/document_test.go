package emulator

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var writeDocument = flag.Bool("write", false, "write the tables of docs/protocol.md")

// protocolDocument is the page with the emulator's responses.
const protocolDocument = "../docs/protocol.md"

// The tables stand between these two lines.
const (
	tablesBegin = "<!-- The tables below are written by go test ./emulator -run TestProtocolDocument -write -->"
	tablesEnd   = "<!-- The tables end here -->"
)

// tables returns all exchanges as docs/protocol.md shows them.
func tables() string {
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "\n### %s\n\n| exchange | request | status | code | Azurite |\n|---|---|---|---|---|\n", s.name)
		for _, x := range s.exchanges {
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", x.name, x.line(), x.statusCell(), x.code, x.azuriteCell())
		}
	}
	return b.String() + "\n"
}

// statusCell returns the status, and the one in process if it differs.
func (x exchange) statusCell() string {
	if x.inside == 0 {
		return strconv.Itoa(x.status)
	}
	return fmt.Sprintf("%d, in process %d", x.status, x.inside)
}

// line returns the request in short.
func (x exchange) line() string {
	path := x.path
	if decoded, err := url.PathUnescape(path); err == nil && !strings.ContainsAny(decoded, "\x00\r\n|`<") {
		path = decoded
	}
	const enough = 90
	if len(path) > enough {
		path = path[:enough] + "…"
	}
	prefix := ""
	switch {
	case x.host != "":
		prefix = "//" + x.host
	case x.account != "":
		prefix = "/" + x.account
	}
	if x.secure {
		prefix = "https:" + cmp.Or(prefix, "/")
	}
	return strings.TrimSpace(x.verb + " " + cmp.Or(prefix+path, "/"))
}

// TestProtocolDocument compares the tables of docs/protocol.md with the exchanges of
// TestProtocol. It fails for a row without an exchange, an exchange without a row, and a row
// that differs.
func TestProtocolDocument(t *testing.T) {
	page, err := os.ReadFile(protocolDocument)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), tablesBegin+"\n")
	written, after, ok2 := strings.Cut(rest, tablesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines around its tables", protocolDocument)
	}
	if *writeDocument {
		if err := os.WriteFile(protocolDocument, []byte(before+tablesBegin+"\n"+tables()+tablesEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, want := rows(written), rows(tables())
	for _, row := range have {
		if !slices.Contains(want, row) {
			t.Errorf("row in %s that no exchange has: %s", protocolDocument, row)
		}
	}
	for _, row := range want {
		if !slices.Contains(have, row) {
			t.Errorf("missing in %s: %s", protocolDocument, row)
		}
	}
	if !t.Failed() && written != tables() {
		t.Errorf("%s has its rows in another order: go test ./emulator -run TestProtocolDocument -write", protocolDocument)
	}
}

// rows returns the lines of the tables, each after its heading.
func rows(tables string) []string {
	var rows []string
	heading := ""
	for line := range strings.Lines(tables) {
		switch {
		case strings.HasPrefix(line, "### "):
			heading = strings.TrimSpace(line[4:])
		case strings.HasPrefix(line, "|"):
			rows = append(rows, heading+": "+strings.TrimSpace(line))
		}
	}
	return rows
}

// TestExchangeNamesAreUnique: azuriteResponses finds an exchange by its name.
func TestExchangeNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for x := range all {
		if seen[x.name] || x.name == "" || strings.Contains(x.name, "|") {
			t.Errorf("exchange %q: its name is empty, not unique, or contains a |", x.name)
		}
		seen[x.name] = true
	}
	for name := range azuriteResponses {
		if !seen[name] {
			t.Errorf("azuriteResponses has %q, which is no exchange", name)
		}
	}
}

// TestPermissionsAreDocumented compares the table of docs/protocol.md that says which permission
// an operation needs with the code.
func TestPermissionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(protocolDocument)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| operation | account SAS | service SAS |\n|---|---|---|\n")
	if !ok {
		t.Fatalf("%s has no table of permissions", protocolDocument)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	needs := map[Operation]permission{}
	for _, verbs := range slices.Concat(slices.Collect(maps.Values(accountVerbs)), slices.Collect(maps.Values(queueVerbs)), [][]verb{messagesVerbs, peekVerbs, messageVerbs}) {
		for _, one := range verbs {
			needs[one.operation] = one.needs
		}
	}
	seen := map[Operation]bool{Preflight: true, Unknown: true} // these need no permission
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for name := range strings.SplitSeq(strings.Replace(cells[1], "Get and Set Queue ACL", "Get Queue Acl, Set Queue Acl", 1), ",") {
			op := Operation(strings.ReplaceAll(strings.TrimSpace(name), " ", ""))
			seen[op] = true
			need := needs[op]
			account := "–"
			if need.account != "" {
				account = need.resource + ", " + strings.Join(strings.Split(need.account, ""), " or ")
			}
			if got, want := strings.TrimSpace(cells[2])+" | "+strings.TrimSpace(cells[3]), account+" | "+cmp.Or(strings.Join(strings.Split(need.queue, ""), " or "), "–"); got != want {
				t.Errorf("%s: got %s in the table, want %s as in the code", op, got, want)
			}
		}
	}
	for op := range newCounters().operations {
		if !seen[op] {
			t.Errorf("%s is not in the table", op)
		}
	}
	if len(seen) != len(newCounters().operations) {
		t.Errorf("the table has an unknown operation: %v", seen)
	}
}
