package aztable_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

// azurite returns Azurite's location and address, and the name of a new table.
func azurite(t *testing.T) (location, endpoint, name string) {
	t.Helper()
	location = azuritetest.TableConnectionString(t)
	_, endpoint, _ = strings.Cut(location, "TableEndpoint=")
	return location, strings.TrimSuffix(endpoint, ";"), "test" + rand.Text()
}

func openTable(t *testing.T, location, name string, o *aztable.Options) *aztable.Table {
	t.Helper()
	s, err := aztable.Open(location, name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// sign returns a signature for one table, or for the whole account when its name is empty.
func sign(t *testing.T, name, permissions string, expiry time.Time) string {
	t.Helper()
	c, err := aztables.NewSharedKeyCredential(azuritetest.Account, azuritetest.Key)
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		p, err := aztables.AccountSASSignatureValues{Protocol: aztables.SASProtocolHTTPSandHTTP, ExpiryTime: expiry, Permissions: permissions, Services: "t", ResourceTypes: "sco"}.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		return p.Encode()
	}
	signed, err := aztables.SASSignatureValues{Protocol: aztables.SASProtocolHTTPSandHTTP, ExpiryTime: expiry, Permissions: permissions, TableName: name}.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestSharedAccessSignature(t *testing.T) {
	location, endpoint, name := azurite(t)
	later := time.Now().Add(time.Hour)
	if _, err := openTable(t, location, name, nil).Insert(t.Context(), table.Entity{Key: table.Key{Partition: "p"}}); err != nil {
		t.Fatal(err)
	}
	whole, one := sign(t, "", "rwdlacu", later), sign(t, name, "raud", later)
	for what, location := range map[string]string{
		"address with the account's": endpoint + "?" + whole,
		"address with the table's":   endpoint + "/?" + one,
		"address of the table":       endpoint + "/" + name + "?" + one,
		"connection string":          "TableEndpoint=" + endpoint + ";SharedAccessSignature=" + one,
	} {
		s := openTable(t, location, name, &once)
		k := table.Key{Partition: "it's", Row: what}
		etag, err := s.Insert(t.Context(), table.Entity{Key: k})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if _, err := s.Get(t.Context(), k); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if page, err := s.Query(t.Context(), table.Query{Partition: "it's"}); err != nil || len(page.Entities) != 1 {
			t.Errorf("%s: %v, %v", what, page, err)
		}
		if etag, err = s.Update(t.Context(), table.Entity{Key: k, ETag: etag}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		// Azurite looks for the name of the table in the address, and that of a group has none.
		etags, err := s.Apply(t.Context(), []table.Change{table.Updating(table.Entity{Key: k, ETag: etag})})
		if ofAccount := strings.HasSuffix(what, "account's"); ofAccount {
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			etag = etags[0]
		}
		if err := s.Delete(t.Context(), k, etag); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, signature := range map[string]string{
		"expired":           sign(t, name, "raud", time.Now().Add(-time.Hour)),
		"for reading":       sign(t, name, "r", later),
		"for another table": sign(t, "others", "raud", later),
		"forged":            strings.Replace(one, "sig=", "sig=AAAA", 1),
	} {
		_, err := openTable(t, endpoint+"?"+signature, name, nil).Insert(t.Context(), table.Entity{Key: table.Key{Partition: "p", Row: what}})
		known := (*table.Error)(nil)
		if !errors.As(err, &known) || !errors.Is(err, table.ErrUnauthorized) || known.Status != 403 || known.Hint == "" || strings.Contains(err.Error(), signature) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wrong := strings.Replace(location, azuritetest.Key, "d3Jvbmc=", 1)
	for _, op := range operations {
		if err := op.call(t.Context(), openTable(t, wrong, name, nil)); !errors.Is(err, table.ErrUnauthorized) {
			t.Errorf("%s with a wrong key: %v", op.name, err)
		}
	}
}

// TestManyInsertAtOnceIntoANewTable: all find that it does not exist, and one creates it.
func TestManyInsertAtOnceIntoANewTable(t *testing.T) {
	location, _, name := azurite(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s := openTable(t, location, name, nil)
			if _, err := s.Insert(t.Context(), table.Entity{Key: table.Key{Partition: "p", Row: string(rune('a' + i))}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	page, err := openTable(t, location, name, nil).Query(t.Context(), table.Query{})
	if err != nil || len(page.Entities) != 8 {
		t.Errorf("there are %d entities: %v", len(page.Entities), err)
	}
}
