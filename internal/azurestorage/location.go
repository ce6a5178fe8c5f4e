package azurestorage

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// Service is a service of a storage account.
type Service struct {
	Name     string // in host names, such as "queue"
	Resource string // what a path names after the account, such as "queue"
	Port     string // of the emulators
	Hint     string // what to do if nothing responds on this machine
}

// The services.
var (
	Queue = Service{Name: "queue", Resource: "queue", Port: "10001", Hint: "start a server there with millrace serve"}
	Blob  = Service{Name: "blob", Resource: "container", Port: "10000", Hint: "start Azurite's blob service there (azurite-blob), or use a directory, as stores.OpenBlobs does"}
	Table = Service{Name: "table", Resource: "table", Port: "10002", Hint: "start Azurite's table service there (azurite-table), or use a directory, as stores.OpenTables does"}
)

// Auth is how requests are authorized.
type Auth string

// The ways of authorization.
const (
	TokenAuth Auth = "" // with a credential that is not in the location
	KeyAuth   Auth = "key"
	SASAuth   Auth = "signature"
)

// Location is a parsed location: an account's address and credentials.
type Location struct {
	Account   string
	Resource  string // the queue, container or table in the address; "" if it is the account's
	Endpoint  string // ends with a slash, has no query
	Auth      Auth
	Key       string // Base64
	Signature string // a query without the question mark
	Hint      string // what to do if nothing responds
	secrets   []string

	development bool // of UseDevelopmentStorage=true, on this machine
}

// ParseError says what is wrong with a location. It never contains the location: any part of it
// may be a misplaced secret.
type ParseError struct {
	Detail string
	Hint   string // what to do about it; "" if there is nothing to say
}

func (e *ParseError) Error() string { return strings.TrimSuffix(e.Detail+"; "+e.Hint, "; ") }

func invalid(hint, format string, args ...any) error {
	return &ParseError{Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// The development account of the emulators. Its key is public.
const (
	DevelopmentAccount = "devstoreaccount1"
	DevelopmentKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

func (s Service) hint() string {
	return `use a connection string, "UseDevelopmentStorage=true", or https://ACCOUNT.` + s.Name + `.core.windows.net with or without a signature`
}

// IsLocation reports whether a text looks like the location of an account rather than a path or a
// name. A text that it accepts may contain a secret.
func IsLocation(text string) bool {
	lower := strings.ToLower(strings.Join(strings.Fields(text), "")) // "AccountKey = …" is a key too
	for _, part := range []string{
		"://", "accountkey=", "accountname=", "sharedaccesssignature=", "usedevelopmentstorage=", "&sig=",
		".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net", ".storage.azure.net",
	} {
		if strings.Contains(lower, part) {
			return true
		}
	}
	return false
}

// Of returns the service's address if the text is the address of another service of the same account
// in Azure, and otherwise the text itself.
func (s Service) Of(text string) string {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || strings.Trim(u.Path, "/") != "" { // a path names a queue, a container or a table
		return text
	}
	for _, other := range []Service{Queue, Blob, Table} {
		if host := strings.Replace(u.Host, "."+other.Name+".core.", "."+s.Name+".core.", 1); host != u.Host {
			u.Host = host
			return u.String()
		}
	}
	return text
}

// Parse parses a location of the service. The error is a [*ParseError].
func (s Service) Parse(text string) (Location, error) {
	text = strings.TrimSpace(text) // a line from a file ends in one
	lower := strings.ToLower(text)
	var at Location
	var err error
	switch {
	case text == "":
		return Location{}, invalid(s.hint(), "the location is empty")
	case strings.HasPrefix(lower, "http://"), strings.HasPrefix(lower, "https://"):
		at, err = s.parseURL(text)
	case strings.Contains(text, "="):
		at, err = s.parseConnectionString(text)
	default:
		return Location{}, invalid(s.hint(), "the location is neither a connection string nor an http address")
	}
	if err != nil {
		return Location{}, err
	}
	// Azure allows only lower-case letters and digits in an account. Emulators and custom domains
	// allow more.
	if at.Account == "" || strings.Trim(strings.ToLower(at.Account), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return Location{}, invalid(s.hint(), "the location has no account name, or one with characters other than letters, digits and hyphens")
	}
	if at.Key != "" {
		at.secrets = append(at.secrets, at.Key)
	}
	if at.Hint == "" && onLoopback(at.Endpoint) {
		at.Hint = s.Hint
	}
	if query, err := url.ParseQuery(at.Signature); err == nil && query.Get("sig") != "" {
		at.secrets = append(at.secrets, query.Get("sig"))
	}
	return at, nil
}

func (s Service) parseURL(text string) (Location, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return Location{}, invalid(s.hint(), "the location is not a well-formed address")
	}
	if u.User != nil {
		return Location{}, invalid(s.hint(), "the location has a user name or password in it")
	}
	// The portal and the SDK also produce addresses of queues and containers. The path
	// without them is the account, or empty if the host names it.
	account, name := "", strings.Trim(u.Path, "/")
	if !strings.Contains(u.Host, "."+s.Name+".") {
		account, name, _ = strings.Cut(name, "/")
	}
	if strings.Contains(name, "/") {
		return Location{}, invalid("leave out what follows the account", "the location has a path that is not a %s name", s.Resource)
	}
	u.Path = account
	at := Location{Resource: name, Signature: u.RawQuery}
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if at.Account, at.Endpoint, err = s.endpoint(u); err != nil {
		return Location{}, err
	}
	if at.Signature != "" {
		at.Auth = SASAuth
		return at, checkSignature(at.Signature)
	}
	if u.Scheme != "https" {
		return Location{}, invalid("use https, or a connection string with the account's key", "tokens must not be sent to an http address")
	}
	return at, nil
}

// endpoint returns the account's name and address. The account is the host's first label or, if
// the host is shared as an emulator's is, the first path segment.
func (s Service) endpoint(u *url.URL) (account, address string, _ error) {
	if u.Scheme = strings.ToLower(u.Scheme); u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", "", invalid(s.hint(), "the address of the %s service is neither http nor https", s.Name)
	}
	for _, other := range []string{"blob", "queue", "table", "file", "dfs"} {
		if other != s.Name && strings.Contains(u.Host, "."+other+".core.") {
			return "", "", invalid("use its "+s.Name+" address, https://ACCOUNT."+s.Name+".core.windows.net", "the location is the account's %s address", other)
		}
	}
	u.Path = strings.Trim(u.Path, "/") + "/"
	if path, _, _ := strings.Cut(u.Path, "/"); path != "" {
		account = path
	} else if net.ParseIP(u.Hostname()) != nil {
		return "", "", invalid("append the account, such as /devstoreaccount1", "the address of the %s service is an IP address without an account", s.Name)
	} else {
		account, _, _ = strings.Cut(u.Hostname(), ".")
	}
	if u.Path != "/" {
		u.Path = "/" + u.Path
	}
	return account, u.String(), nil
}

func (s Service) parseConnectionString(text string) (Location, error) {
	const hint = `copy it from the account's page "Access keys": AccountName=…;AccountKey=…;EndpointSuffix=core.windows.net`
	values := make(map[string]string)
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return Location{}, invalid(hint, "a part of the connection string has no value")
		}
		// Names are case-insensitive in every SDK but the one for Go.
		name = strings.ToLower(strings.TrimSpace(name))
		if _, twice := values[name]; twice {
			return Location{}, invalid(hint, "the connection string has two values for the same name")
		}
		values[name] = strings.TrimSpace(value)
	}
	if strings.EqualFold(values["usedevelopmentstorage"], "true") {
		return s.development(values["developmentstorageproxyuri"])
	}
	at := Location{Key: values["accountkey"], Signature: strings.TrimPrefix(values["sharedaccesssignature"], "?")}
	address := values[s.Name+"endpoint"]
	if address == "" {
		if emulated(values) {
			return Location{}, invalid("add "+s.endpointName()+"=http://127.0.0.1:"+s.Port+"/ACCOUNT and "+s.Hint,
				"the connection string is of an emulator's account, and has no %s", s.endpointName())
		}
		if values["accountname"] == "" {
			return Location{}, invalid(hint, "the connection string has neither AccountName nor %s", s.endpointName())
		}
		address = cmp.Or(values["defaultendpointsprotocol"], "https") + "://" + values["accountname"] + "." + s.Name + "." + cmp.Or(values["endpointsuffix"], "core.windows.net")
	}
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery || u.User != nil {
		return Location{}, invalid(hint, "the connection string's %s, or the one made of its parts, is not a plain address", s.endpointName())
	}
	if at.Account, at.Endpoint, err = s.endpoint(u); err != nil {
		return Location{}, err
	}
	at.Account = cmp.Or(values["accountname"], at.Account)
	switch {
	case at.Key != "":
		at.Auth = KeyAuth
		if values["accountname"] == "" {
			return Location{}, invalid(hint, "the connection string has an AccountKey, but no AccountName")
		}
		if _, err := base64.StdEncoding.DecodeString(at.Key); err != nil {
			return Location{}, invalid("copy the whole key, with the = at its end", "the AccountKey is not Base64")
		}
	case at.Signature != "":
		at.Auth = SASAuth
		return at, checkSignature(at.Signature)
	default:
		return Location{}, invalid(hint, "the connection string has neither AccountKey nor SharedAccessSignature")
	}
	return at, nil
}

// emulated reports whether a connection string is of an account of an emulator. Azure does not have
// that account: requests to an address made of its name would wait for a name that does not resolve.
func emulated(values map[string]string) bool {
	for _, s := range []Service{Queue, Blob, Table} {
		u, err := url.Parse(values[strings.ToLower(s.endpointName())])
		if err == nil && (onLoopback(u.String()) || strings.Trim(u.Path, "/") != "") { // Azure's have no path
			return true
		}
	}
	return values["accountname"] == DevelopmentAccount
}

func (s Service) endpointName() string {
	return strings.ToUpper(s.Name[:1]) + s.Name[1:] + "Endpoint"
}

// development returns the emulators' account, which the SDK does not know. A proxy address
// replaces scheme and host and keeps the port, as in the other SDKs.
func (s Service) development(proxy string) (Location, error) {
	at := Location{Account: DevelopmentAccount, Auth: KeyAuth, Key: DevelopmentKey}
	host := "http://127.0.0.1"
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return Location{}, invalid("use one like http://host", "the DevelopmentStorageProxyUri is not an http address")
		}
		host = u.Scheme + "://" + u.Hostname()
		if strings.Contains(u.Hostname(), ":") {
			host = u.Scheme + "://[" + u.Hostname() + "]"
		}
	}
	at.Endpoint = host + ":" + s.Port + "/" + DevelopmentAccount + "/"
	at.Hint, at.development = s.Hint, onLoopback(at.Endpoint)
	return at, nil
}

// onLoopback reports whether an address is on this machine.
func onLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") || ip != nil && ip.IsLoopback()
}

func checkSignature(query string) error {
	if values, err := url.ParseQuery(query); err != nil || values.Get("sig") == "" {
		return invalid("copy the whole of it, with sv=… and sig=…", "the shared access signature has no sig")
	}
	return nil
}

// maxSecretFile limits the size of such a file in bytes.
const maxSecretFile = 64 << 10

// ReadSecret reads the only line of a file. Errors do not repeat its content.
func ReadSecret(path string) (string, error) {
	if path == "" {
		return "", errors.New("no file follows the @")
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxSecretFile {
		return "", fmt.Errorf("%s has %d bytes; it must be one line", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(text))
	switch {
	case line == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsAny(line, "\r\n"):
		return "", fmt.Errorf("%s has more than one line", path)
	}
	return line, nil
}
