package azurequeue

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/queue"
)

const (
	someKey = "c2VjcmV0IGtleSBvZiB0aGUgYWNjb3VudA=="
	someSAS = "sv=2024-11-04&ss=q&srt=sco&sp=raup&se=2099-01-01&sig=S3cret%2Fsign%3D"
)

func TestParseLocations(t *testing.T) {
	for _, c := range []struct {
		text string
		want location
	}{
		{
			"https://acct.queue.core.windows.net",
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/"},
		},
		{
			"https://acct.queue.core.windows.net/",
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/"},
		},
		{
			"HTTPS://acct.queue.core.chinacloudapi.cn",
			location{account: "acct", endpoint: "https://acct.queue.core.chinacloudapi.cn/"},
		},
		{
			"https://acct.privatelink.queue.core.windows.net",
			location{account: "acct", endpoint: "https://acct.privatelink.queue.core.windows.net/"},
		},
		{
			"https://queues.example.com",
			location{account: "queues", endpoint: "https://queues.example.com/"},
		},
		{
			"https://127.0.0.1:10001/devstoreaccount1",
			location{account: "devstoreaccount1", endpoint: "https://127.0.0.1:10001/devstoreaccount1/"},
		},
		{
			"https://acct.queue.core.windows.net/?" + someSAS,
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: sasAuth, signature: someSAS},
		},
		{
			"https://acct.queue.core.windows.net?" + someSAS,
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: sasAuth, signature: someSAS},
		},
		{
			"https://acct.queue.core.windows.net/orders?" + someSAS,
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: sasAuth, signature: someSAS},
		},
		{
			"http://127.0.0.1:10001/devstoreaccount1?" + someSAS,
			location{account: "devstoreaccount1", endpoint: "http://127.0.0.1:10001/devstoreaccount1/", auth: sasAuth, signature: someSAS},
		},
		{
			"http://127.0.0.1:10001/devstoreaccount1/orders?" + someSAS,
			location{account: "devstoreaccount1", endpoint: "http://127.0.0.1:10001/devstoreaccount1/", auth: sasAuth, signature: someSAS},
		},
		{
			"http://azurite:10001/devstoreaccount1/?" + someSAS,
			location{account: "devstoreaccount1", endpoint: "http://azurite:10001/devstoreaccount1/", auth: sasAuth, signature: someSAS},
		},
		{
			"UseDevelopmentStorage=true",
			location{account: "devstoreaccount1", endpoint: "http://127.0.0.1:10001/devstoreaccount1/", auth: keyAuth, key: developmentKey},
		},
		{
			"usedevelopmentstorage=TRUE;",
			location{account: "devstoreaccount1", endpoint: "http://127.0.0.1:10001/devstoreaccount1/", auth: keyAuth, key: developmentKey},
		},
		{
			"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://proxy",
			location{account: "devstoreaccount1", endpoint: "http://proxy:10001/devstoreaccount1/", auth: keyAuth, key: developmentKey},
		},
		{
			"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://[::1]/",
			location{account: "devstoreaccount1", endpoint: "http://[::1]:10001/devstoreaccount1/", auth: keyAuth, key: developmentKey},
		},
		{
			"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" + someKey + ";EndpointSuffix=core.windows.net",
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: keyAuth, key: someKey},
		},
		{
			"AccountName=acct;AccountKey=" + someKey,
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: keyAuth, key: someKey},
		},
		{
			"accountname = acct ; accountkey = " + someKey + " ; ",
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: keyAuth, key: someKey},
		},
		{
			"AccountName=acct;AccountKey=" + someKey + ";QueueEndpoint=http://127.0.0.1:20001/acct",
			location{account: "acct", endpoint: "http://127.0.0.1:20001/acct/", auth: keyAuth, key: someKey},
		},
		{
			"AccountName=acct;AccountKey=" + someKey + ";EndpointSuffix=core.usgovcloudapi.net;BlobEndpoint=https://x",
			location{account: "acct", endpoint: "https://acct.queue.core.usgovcloudapi.net/", auth: keyAuth, key: someKey},
		},
		{
			"QueueEndpoint=https://acct.queue.core.windows.net/;SharedAccessSignature=" + someSAS,
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: sasAuth, signature: someSAS},
		},
		{
			"AccountName=acct;SharedAccessSignature=?" + someSAS,
			location{account: "acct", endpoint: "https://acct.queue.core.windows.net/", auth: sasAuth, signature: someSAS},
		},
	} {
		text, want := c.text, c.want
		got, err := parse(text)
		if err != nil {
			t.Errorf("%q: got the error %v, want none", text, err)
			continue
		}
		if got.account != want.account || got.endpoint != want.endpoint || got.auth != want.auth || got.key != want.key || got.signature != want.signature {
			t.Errorf("parse(%q): got %+v\nwant %+v", text, got, want)
		}
		if want.auth != tokenAuth && len(got.secrets) == 0 {
			t.Errorf("parse(%q): got no secrets, want some", text)
		}
	}
}

func TestLocationQueueAndHint(t *testing.T) {
	for text, want := range map[string]struct{ queue, hint string }{
		"UseDevelopmentStorage=true":                                       {"", localHint},
		"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://a":   {"", localHint},
		"http://127.0.0.1:20001/acct/orders?" + someSAS:                    {"orders", localHint},
		"https://localhost:20001/acct":                                     {"", localHint},
		"AccountName=a;AccountKey=AAAA;QueueEndpoint=http://[::1]:20001/a": {"", localHint},
		"https://acct.queue.core.windows.net/orders/?" + someSAS:           {"orders", ""},
		"https://queues.example.com/acct/orders?" + someSAS:                {"orders", ""},
		"AccountName=acct;AccountKey=" + someKey:                           {"", ""},
	} {
		if at, err := parse(text); err != nil || at.queue != want.queue || at.hint != want.hint {
			t.Errorf("parse(%q): got %+v, %v; want queue %q and hint %q", text, at, err, want.queue, want.hint)
		}
	}
}

// A location read from a file ends in a newline.
func TestLocationIsTrimmed(t *testing.T) {
	if at, err := parse(" https://acct.queue.core.windows.net/orders\r\n"); err != nil || at.endpoint != "https://acct.queue.core.windows.net/" {
		t.Errorf("location with white space: got %+v, %v; want it trimmed", at, err)
	}
	if _, err := parse(" \n"); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("blank: got %v, want ErrInvalid", err)
	}
}

func TestBadLocationsAreExplainedWithoutSecrets(t *testing.T) {
	for text, why := range map[string]string{
		"":                                   "empty",
		"acct":                               "neither",
		"acct.queue.core.windows.net":        "neither",
		"https://":                           "well-formed",
		"https://%zz.queue.core.windows.net": "well-formed",
		"https://user:S3cret@acct.queue.core.windows.net/":                     "password",
		"http://acct.queue.core.windows.net":                                   "tokens must not be sent",
		"https://acct.blob.core.windows.net":                                   "blob address",
		"https://acct.queue.core.windows.net/other":                            "path",
		"https://acct.queue.core.windows.net/orders/messages":                  "path",
		"http://127.0.0.1:10001/?" + someSAS:                                   "without an account",
		"https://acct.queue.core.windows.net/?sv=S3cret":                       "no sig",
		"AccountName=acct":                                                     "neither AccountKey nor",
		"AccountKey=" + someKey:                                                "neither AccountName nor",
		"QueueEndpoint=https://a.queue.core.windows.net;AccountKey=" + someKey: "no AccountName",
		"AccountName=acct;AccountKey=S3cret!":                                  "not Base64",
		"AccountName=acct;AccountKey=" + someKey + ";S3cret":                   "no value",
		"AccountName=acct;AccountName=S3cret;AccountKey=" + someKey:            "two values",
		"AccountName=acct;SharedAccessSignature=sv=S3cret":                     "no sig",
		"QueueEndpoint=ftp://S3cret;AccountName=a;AccountKey=" + someKey:       "neither http nor https",
		"QueueEndpoint=%zzS3cret;AccountName=a;AccountKey=" + someKey:          "not a plain address",
		"AccountName=a#;AccountKey=" + someKey:                                 "not a plain address",
		"AccountName=a_b;AccountKey=" + someKey:                                "has no account name",
		"https://.":                                                            "has no account name",
		"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=S3cret":         "not an http address",
	} {
		q, err := Open(text, "orders", nil)
		if !errors.Is(err, queue.ErrInvalid) || q != nil {
			t.Errorf("Open(%q): got %v, want %v", text, err, queue.ErrInvalid)
			continue
		}
		if !strings.Contains(err.Error(), why) {
			t.Errorf("Open(%q): got the error %q, want %q in it", text, err, why)
		}
		for _, secret := range []string{someKey, "S3cret", "sign%3D"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("Open(%q): the error contains a secret: %v", text, err)
			}
		}
	}
}

func TestBadNamesAndOptions(t *testing.T) {
	const good = "UseDevelopmentStorage=true"
	for _, name := range []string{"", "ab", "Orders", "or--ders", "-orders", "or/ders", "$logs", strings.Repeat("x", 64)} {
		if _, err := Open(good, name, nil); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("name %q: got %v, want ErrInvalid", name, err)
		}
	}
	for _, o := range []Options{{TryTimeout: -1}, {TryTimeout: 30}, {Connections: -1}, {Credential: fakeCredential{}}} {
		if _, err := Open(good, "orders", &o); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("options %+v: got %v, want ErrInvalid", o, err)
		}
	}
}

func FuzzLocation(f *testing.F) {
	f.Add("https://acct.queue.core.windows.net/?" + someSAS)
	f.Add("AccountName=acct;AccountKey=" + someKey + ";QueueEndpoint=http://[::1]:1/acct")
	f.Add("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://[::1]/")
	f.Fuzz(func(t *testing.T, text string) {
		at, err := parse(text)
		if err != nil {
			if !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("%q: got %v, want ErrInvalid", text, err)
			}
			return
		}
		if at.account == "" || !strings.HasSuffix(at.endpoint, "/") || !strings.HasPrefix(at.endpoint, "http") || strings.ContainsAny(at.endpoint, "?#") {
			t.Errorf("parse(%q): got %+v, want an account and an endpoint without query", text, at)
		}
	})
}
