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
