package internal_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
)

const (
	someKey = "c2VjcmV0IGtleSBvZiB0aGUgYWNjb3VudA=="
	someSAS = "sv=2024-11-04&ss=q&srt=sco&sp=raup&se=2099-01-01&sig=S3cret%2Fsign%3D"
)

func TestParseLocations(t *testing.T) {
	for _, c := range []struct {
		text string
		want azurestorage.Location
	}{
		{
			"https://acct.queue.core.windows.net",
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/"},
		},
		{
			"https://acct.queue.core.windows.net/",
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/"},
		},
		{
			"HTTPS://acct.queue.core.chinacloudapi.cn",
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.chinacloudapi.cn/"},
		},
		{
			"https://acct.privatelink.queue.core.windows.net",
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.privatelink.queue.core.windows.net/"},
		},
		{
			"https://queues.example.com",
			azurestorage.Location{Account: "queues", Endpoint: "https://queues.example.com/"},
		},
		{
			"https://127.0.0.1:10001/devstoreaccount1",
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "https://127.0.0.1:10001/devstoreaccount1/"},
		},
		{
			"https://acct.queue.core.windows.net/?" + someSAS,
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
		{
			"https://acct.queue.core.windows.net?" + someSAS,
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
		{
			"https://acct.queue.core.windows.net/orders?" + someSAS,
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
		{
			"http://127.0.0.1:10001/devstoreaccount1?" + someSAS,
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "http://127.0.0.1:10001/devstoreaccount1/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
		{
			"http://127.0.0.1:10001/devstoreaccount1/orders?" + someSAS,
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "http://127.0.0.1:10001/devstoreaccount1/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
		{
			"http://azurite:10001/devstoreaccount1/?" + someSAS,
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "http://azurite:10001/devstoreaccount1/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
		{
			"UseDevelopmentStorage=true",
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "http://127.0.0.1:10001/devstoreaccount1/", Auth: azurestorage.KeyAuth, Key: azurestorage.DevelopmentKey},
		},
		{
			"usedevelopmentstorage=TRUE;",
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "http://127.0.0.1:10001/devstoreaccount1/", Auth: azurestorage.KeyAuth, Key: azurestorage.DevelopmentKey},
		},
		{
			"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://proxy",
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "http://proxy:10001/devstoreaccount1/", Auth: azurestorage.KeyAuth, Key: azurestorage.DevelopmentKey},
		},
		{
			"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://[::1]/",
			azurestorage.Location{Account: "devstoreaccount1", Endpoint: "http://[::1]:10001/devstoreaccount1/", Auth: azurestorage.KeyAuth, Key: azurestorage.DevelopmentKey},
		},
		{
			"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" + someKey + ";EndpointSuffix=core.windows.net",
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.KeyAuth, Key: someKey},
		},
		{
			"AccountName=acct;AccountKey=" + someKey,
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.KeyAuth, Key: someKey},
		},
		{
			"accountname = acct ; accountkey = " + someKey + " ; ",
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.KeyAuth, Key: someKey},
		},
		{
			"AccountName=acct;AccountKey=" + someKey + ";QueueEndpoint=http://127.0.0.1:20001/acct",
			azurestorage.Location{Account: "acct", Endpoint: "http://127.0.0.1:20001/acct/", Auth: azurestorage.KeyAuth, Key: someKey},
		},
		{
			"AccountName=acct;AccountKey=" + someKey + ";EndpointSuffix=core.usgovcloudapi.net;BlobEndpoint=https://x",
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.usgovcloudapi.net/", Auth: azurestorage.KeyAuth, Key: someKey},
		},
		{
			"QueueEndpoint=https://acct.queue.core.windows.net/;SharedAccessSignature=" + someSAS,
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
		{
			"AccountName=acct;SharedAccessSignature=?" + someSAS,
			azurestorage.Location{Account: "acct", Endpoint: "https://acct.queue.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
		},
	} {
		text, want := c.text, c.want
		got, err := azurestorage.Queue.Parse(text)
		if err != nil {
			t.Errorf("%q: got the error %v, want none", text, err)
			continue
		}
		if got.Account != want.Account || got.Endpoint != want.Endpoint || got.Auth != want.Auth || got.Key != want.Key || got.Signature != want.Signature {
			t.Errorf("parse(%q): got %+v\nwant %+v", text, got, want)
		}
		for _, secret := range []string{want.Key, signatureOf(want)} { // alone, nothing tells that it is one
			if said := got.Redact("denied: " + secret); secret != "" && said != "denied: REDACTED" {
				t.Errorf("parse(%q): got the text %q, want the secret redacted", text, said)
			}
		}
	}
}

// signatureOf returns the signature in a shared access signature, as it is in the address.
func signatureOf(at azurestorage.Location) string {
	_, signature, _ := strings.Cut(at.Signature, "&sig=")
	return signature
}

// sameLocation compares all but the secrets to redact, and whether the location is of the development account.
func sameLocation(a, b azurestorage.Location) bool {
	return a.Account == b.Account && a.Resource == b.Resource && a.Endpoint == b.Endpoint && a.Auth == b.Auth &&
		a.Key == b.Key && a.Signature == b.Signature && a.Hint == b.Hint
}

func TestLocationQueueAndHint(t *testing.T) {
	for text, want := range map[string]struct{ Resource, Hint string }{
		"UseDevelopmentStorage=true":                                       {"", azurestorage.Queue.Hint},
		"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://a":   {"", azurestorage.Queue.Hint},
		"http://127.0.0.1:20001/acct/orders?" + someSAS:                    {"orders", azurestorage.Queue.Hint},
		"https://localhost:20001/acct":                                     {"", azurestorage.Queue.Hint},
		"AccountName=a;AccountKey=AAAA;QueueEndpoint=http://[::1]:20001/a": {"", azurestorage.Queue.Hint},
		"https://acct.queue.core.windows.net/orders/?" + someSAS:           {"orders", ""},
		"https://queues.example.com/acct/orders?" + someSAS:                {"orders", ""},
		"AccountName=acct;AccountKey=" + someKey:                           {"", ""},
	} {
		if at, err := azurestorage.Queue.Parse(text); err != nil || at.Resource != want.Resource || at.Hint != want.Hint {
			t.Errorf("parse(%q): got %+v, %v; want queue %q and hint %q", text, at, err, want.Resource, want.Hint)
		}
	}
}

// A location read from a file ends in a newline.
func TestLocationIsTrimmed(t *testing.T) {
	if at, err := azurestorage.Queue.Parse(" https://acct.queue.core.windows.net/orders\r\n"); err != nil || at.Endpoint != "https://acct.queue.core.windows.net/" {
		t.Errorf("location with white space: got %+v, %v; want it trimmed", at, err)
	}
	if _, err := azurestorage.Queue.Parse(" \n"); !invalidLocation(err) {
		t.Errorf("blank: got %v, want a ParseError", err)
	}
}

func invalidLocation(err error) bool {
	wrong := (*azurestorage.ParseError)(nil)
	return errors.As(err, &wrong) && wrong.Detail != "" && wrong.Hint != ""
}

// TestLocationsOfTheBlobService has what differs from those of queues.
func TestLocationsOfTheBlobService(t *testing.T) {
	for text, want := range map[string]azurestorage.Location{
		"https://acct.blob.core.windows.net":                                                          {Account: "acct", Endpoint: "https://acct.blob.core.windows.net/"},
		"https://acct.blob.core.windows.net/pictures?" + someSAS:                                      {Account: "acct", Resource: "pictures", Endpoint: "https://acct.blob.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
		"http://127.0.0.1:10000/devstoreaccount1/pictures?" + someSAS:                                 {Account: "devstoreaccount1", Resource: "pictures", Endpoint: "http://127.0.0.1:10000/devstoreaccount1/", Auth: azurestorage.SASAuth, Signature: someSAS, Hint: azurestorage.Blob.Hint},
		"UseDevelopmentStorage=true":                                                                  {Account: "devstoreaccount1", Endpoint: "http://127.0.0.1:10000/devstoreaccount1/", Auth: azurestorage.KeyAuth, Key: azurestorage.DevelopmentKey, Hint: azurestorage.Blob.Hint},
		"AccountName=acct;AccountKey=" + someKey:                                                      {Account: "acct", Endpoint: "https://acct.blob.core.windows.net/", Auth: azurestorage.KeyAuth, Key: someKey},
		"AccountName=a;AccountKey=" + someKey + ";QueueEndpoint=http://q/a;BlobEndpoint=http://b:1/a": {Account: "a", Endpoint: "http://b:1/a/", Auth: azurestorage.KeyAuth, Key: someKey},
		"BlobEndpoint=https://acct.blob.core.windows.net/;SharedAccessSignature=" + someSAS:           {Account: "acct", Endpoint: "https://acct.blob.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
	} {
		got, err := azurestorage.Blob.Parse(text)
		if err != nil || !sameLocation(got, want) {
			t.Errorf("%q:\n got %+v, %v\nwant %+v", text, got, err, want)
		}
	}
	for text, why := range map[string]string{
		"https://acct.queue.core.windows.net":                  "queue address; use its blob address",
		"https://acct.blob.core.windows.net/pictures/a":        "not a container name",
		"QueueEndpoint=https://x;AccountKey=" + someKey:        "neither AccountName nor BlobEndpoint",
		"BlobEndpoint=%zz;AccountName=a;AccountKey=" + someKey: "BlobEndpoint, or the one made of its parts",
		"acct": "https://ACCOUNT.blob.core.windows.net",
	} {
		if _, err := azurestorage.Blob.Parse(text); !invalidLocation(err) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestLocationsOfTheTableService likewise.
func TestLocationsOfTheTableService(t *testing.T) {
	for text, want := range map[string]azurestorage.Location{
		"https://acct.table.core.windows.net":                                 {Account: "acct", Endpoint: "https://acct.table.core.windows.net/"},
		"https://acct.table.core.windows.net/Channels?" + someSAS:             {Account: "acct", Resource: "Channels", Endpoint: "https://acct.table.core.windows.net/", Auth: azurestorage.SASAuth, Signature: someSAS},
		"UseDevelopmentStorage=true":                                          {Account: "devstoreaccount1", Endpoint: "http://127.0.0.1:10002/devstoreaccount1/", Auth: azurestorage.KeyAuth, Key: azurestorage.DevelopmentKey, Hint: azurestorage.Table.Hint},
		"AccountName=acct;AccountKey=" + someKey:                              {Account: "acct", Endpoint: "https://acct.table.core.windows.net/", Auth: azurestorage.KeyAuth, Key: someKey},
		"AccountName=a;AccountKey=" + someKey + ";TableEndpoint=http://b:1/a": {Account: "a", Endpoint: "http://b:1/a/", Auth: azurestorage.KeyAuth, Key: someKey},
	} {
		got, err := azurestorage.Table.Parse(text)
		if err != nil || !sameLocation(got, want) {
			t.Errorf("%s:\ngot  %+v, %v\nwant %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"https://acct.queue.core.windows.net", "http://acct.table.core.windows.net", "https://acct.table.core.windows.net/a/b?" + someSAS} {
		if _, err := azurestorage.Table.Parse(text); err == nil {
			t.Errorf("%s is no location of tables", text)
		}
	}
}

// No request is made for these: the name of such an account does not resolve, which can take 30 s.
func TestAnEmulatorsConnectionStringNeedsTheServicesAddress(t *testing.T) {
	const key = "AccountKey=" + someKey
	for text, services := range map[string][]azurestorage.Service{
		"AccountName=devstoreaccount1;" + key + ";QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1":         {azurestorage.Blob, azurestorage.Table},
		"AccountName=a;" + key + ";QueueEndpoint=http://localhost:10001":                                         {azurestorage.Blob, azurestorage.Table},
		"AccountName=a;" + key + ";QueueEndpoint=http://a.queue.localhost:10001":                                 {azurestorage.Blob, azurestorage.Table},
		"AccountName=a;" + key + ";QueueEndpoint=http://emulator:10001/a":                                        {azurestorage.Blob, azurestorage.Table},
		"QueueEndpoint=https://[::1]:10001/a;SharedAccessSignature=" + someSAS:                                   {azurestorage.Blob, azurestorage.Table},
		"AccountName=a;" + key + ";BlobEndpoint=http://127.0.0.1:10000/a":                                        {azurestorage.Queue, azurestorage.Table},
		"AccountName=a;" + key + ";BlobEndpoint=http://127.0.0.1:10000/a;QueueEndpoint=http://127.0.0.1:1/a":     {azurestorage.Table},
		"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" + azurestorage.DevelopmentKey:   {azurestorage.Queue, azurestorage.Blob, azurestorage.Table},
		"AccountName=a;" + key + ";QueueEndpoint=https://queues.example.com;TableEndpoint=https://t.example.com": {},
	} {
		for _, s := range []azurestorage.Service{azurestorage.Queue, azurestorage.Blob, azurestorage.Table} {
			_, err := s.Parse(text)
			if !slices.ContainsFunc(services, func(one azurestorage.Service) bool { return one == s }) {
				if err != nil {
					t.Errorf("%s service, %q: got %v, want a location", s.Name, text, err)
				}
				continue
			}
			endpoint := map[string]string{"queue": "QueueEndpoint", "blob": "BlobEndpoint", "table": "TableEndpoint"}[s.Name]
			want := "no " + endpoint + "; add " + endpoint + "=http://127.0.0.1:" + s.Port + "/ACCOUNT and start"
			if !invalidLocation(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s service, %q: got %v, want %q", s.Name, text, err, want)
			}
		}
	}
}

func TestTheAddressOfAnotherServiceLeadsToTheSameAccount(t *testing.T) {
	for text, want := range map[string]string{
		"https://acct.queue.core.windows.net":                    "https://acct.blob.core.windows.net",
		"https://acct.table.core.chinacloudapi.cn/":              "https://acct.blob.core.chinacloudapi.cn/",
		"https://acct.privatelink.queue.core.windows.net":        "https://acct.privatelink.blob.core.windows.net",
		"https://acct.queue.core.windows.net/?" + someSAS:        "https://acct.blob.core.windows.net/?" + someSAS,
		"https://acct.blob.core.windows.net/pictures?" + someSAS: "",
		"https://acct.queue.core.windows.net/orders?" + someSAS:  "",
		"https://queues.example.com":                             "",
		"UseDevelopmentStorage=true":                             "",
		"AccountName=acct;AccountKey=" + someKey:                 "",
		"AccountName=a;QueueEndpoint=https://a.queue.core.x.net": "",
		"http://127.0.0.1:10001/devstoreaccount1?" + someSAS:     "",
	} {
		if want == "" {
			want = text
		}
		if got := azurestorage.Blob.Of(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestLocationsAreToldFromPaths(t *testing.T) {
	for _, text := range []string{
		"UseDevelopmentStorage=true", "https://acct.queue.core.windows.net", "htps://acct",
		"acct.blob.core.windows.net", "AccountName=a;AccountKey=b", "BlobEndpoint=https://a.example;SharedAccessSignature=sig",
		"AccountName = a; AccountKey = b", "sv=2024-11-04&sig=c2VjcmV0", "acct.queue.core.chinacloudapi.cn",
		"acct.blob.core.usgovcloudapi.net", "acct.z01.blob.storage.azure.net",
	} {
		if !azurestorage.IsLocation(text) {
			t.Errorf("%q: got a path, want a location", text)
		}
	}
	for _, text := range []string{"", ".", "data", "./data", "/var/lib/data", `C:\data`, "a=b", "core", "@file"} {
		if azurestorage.IsLocation(text) {
			t.Errorf("%q: got a location, want a path", text)
		}
	}
}

// TestOnlyAnEmulatorOnThisMachineIsNotWaitedFor: another machine may be a container that starts
// at the same time.
func TestOnlyAnEmulatorOnThisMachineIsNotWaitedFor(t *testing.T) {
	unsent := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for text, waits := range map[string]bool{
		"": false, ";DevelopmentStorageProxyUri=http://localhost": false, ";DevelopmentStorageProxyUri=http://[::1]": false,
		";DevelopmentStorageProxyUri=http://azurite": true,
	} {
		for _, s := range []azurestorage.Service{azurestorage.Queue, azurestorage.Blob, azurestorage.Table} {
			synctest.Test(t, func(t *testing.T) {
				at, err := s.Parse("UseDevelopmentStorage=true" + text)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				_, err = azurestorage.Limits{}.WithDefaults(at).Repeat(t.Context(), "key",
					func(error) bool { return true }, func(context.Context) error { return unsent })
				took := time.Since(begin)
				if !errors.Is(err, unsent) || waits != (took > time.Minute) || !waits && took > 10*time.Second {
					t.Errorf("%s service, %q: got %v after %v; want that it waits: %v", s.Name, text, err, took, waits)
				}
			})
		}
	}
}

func FuzzLocation(f *testing.F) {
	f.Add("https://acct.queue.core.windows.net/?" + someSAS)
	f.Add("AccountName=acct;AccountKey=" + someKey + ";QueueEndpoint=http://[::1]:1/acct")
	f.Add("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://[::1]/")
	f.Fuzz(func(t *testing.T, text string) {
		at, err := azurestorage.Queue.Parse(text)
		if err != nil {
			if !invalidLocation(err) {
				t.Errorf("%q: got %v, want a ParseError", text, err)
			}
			return
		}
		if at.Account == "" || !strings.HasSuffix(at.Endpoint, "/") || !strings.HasPrefix(at.Endpoint, "http") || strings.ContainsAny(at.Endpoint, "?#") {
			t.Errorf("parse(%q): got %+v, want an account and an endpoint without query", text, at)
		}
	})
}
