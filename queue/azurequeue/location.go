package azurequeue

import (
	"encoding/base64"
	"net"
	"net/url"
	"strings"

	"github.com/millrace/millrace/queue"
)

// auth is how requests are authorized.
type auth string

const (
	tokenAuth auth = "" // with Options.Credential
	keyAuth   auth = "key"
	sasAuth   auth = "signature"
)

// location is a parsed location: an account's address and credentials.
type location struct {
	account   string
	queue     string // the queue in the address; "" if it is the account's
	endpoint  string // ends with a slash, has no query
	auth      auth
	key       string // Base64
	signature string // a query without the question mark
	secrets   []string
	hint      string // what to do if no server responds
}

// The development account of the emulators. Its key is public.
const (
	developmentAccount = "devstoreaccount1"
	developmentKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const locationHint = `use a connection string, "UseDevelopmentStorage=true", or https://ACCOUNT.queue.core.windows.net with or without a signature`

// parse parses a location. Its errors never contain the location: any part of it may be a
// misplaced secret.
func parse(text string) (location, error) {
	text = strings.TrimSpace(text) // a line from a file ends in one
	lower := strings.ToLower(text)
	var at location
	var err error
	switch {
	case text == "":
		return location{}, invalid(locationHint, "the location is empty")
	case strings.HasPrefix(lower, "http://"), strings.HasPrefix(lower, "https://"):
		at, err = parseURL(text)
	case strings.Contains(text, "="):
		at, err = parseConnectionString(text)
	default:
		return location{}, invalid(locationHint, "the location is neither a connection string nor an http address")
	}
	if err != nil {
		return location{}, err
	}
	if !validAccount(at.account) {
		return location{}, invalid(locationHint, "the location has no account name, or one with characters other than letters, digits and hyphens")
	}
	if at.key != "" {
		at.secrets = append(at.secrets, at.key)
	}
	if at.hint == "" && onLoopback(at.endpoint) {
		at.hint = localHint
	}
	if query, err := url.ParseQuery(at.signature); err == nil && query.Get("sig") != "" {
		at.secrets = append(at.secrets, query.Get("sig"), url.QueryEscape(query.Get("sig")))
	}
	return at, nil
}

func parseURL(text string) (location, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return location{}, invalid(locationHint, "the location is not a well-formed address")
	}
	if u.User != nil {
		return location{}, invalid(locationHint, "the location has a user name or password in it")
	}
	// The portal and the SDK also produce queue addresses. The path without
	// the queue is the account, or empty if the host names it.
	account, name := "", strings.Trim(u.Path, "/")
	if !strings.Contains(u.Host, ".queue.") {
		account, name, _ = strings.Cut(name, "/")
	}
	if strings.Contains(name, "/") {
		return location{}, invalid("leave out what follows the account", "the location has a path that is not a queue name")
	}
	u.Path = account
	at := location{queue: name, signature: u.RawQuery}
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if at.account, at.endpoint, err = endpoint(u); err != nil {
		return location{}, err
	}
	if at.signature != "" {
		at.auth = sasAuth
		return at, checkSignature(at.signature)
	}
	if u.Scheme != "https" {
		return location{}, invalid("use https, or a connection string with the account's key", "tokens must not be sent to an http address")
	}
	return at, nil
}

// endpoint returns the account's name and address. The account is the host's first label or, if
// the host is shared as an emulator's is, the first path segment.
func endpoint(u *url.URL) (account, address string, _ error) {
	if u.Scheme = strings.ToLower(u.Scheme); u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", "", invalid(locationHint, "the address of the queue service is neither http nor https")
	}
	for _, other := range []string{"blob", "table", "file", "dfs"} {
		if strings.Contains(u.Host, "."+other+".core.") {
			return "", "", invalid("use its queue address, https://ACCOUNT.queue.core.windows.net", "the location is the account's %s address", other)
		}
	}
	u.Path = strings.Trim(u.Path, "/") + "/"
	if path, _, _ := strings.Cut(u.Path, "/"); path != "" {
		account = path
	} else if net.ParseIP(u.Hostname()) != nil {
		return "", "", invalid("append the account, such as /devstoreaccount1", "the address of the queue service is an IP address without an account")
	} else {
		account, _, _ = strings.Cut(u.Hostname(), ".")
	}
	if u.Path != "/" {
		u.Path = "/" + u.Path
	}
	return account, u.String(), nil
}

func parseConnectionString(text string) (location, error) {
	const hint = `copy it from the account's page "Access keys": AccountName=…;AccountKey=…;EndpointSuffix=core.windows.net`
	values := make(map[string]string)
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return location{}, invalid(hint, "a part of the connection string has no value")
		}
		// Names are case-insensitive in every SDK but azqueue.
		name = strings.ToLower(strings.TrimSpace(name))
		if _, twice := values[name]; twice {
			return location{}, invalid(hint, "the connection string has two values for the same name")
		}
		values[name] = strings.TrimSpace(value)
	}
	if strings.EqualFold(values["usedevelopmentstorage"], "true") {
		return development(values["developmentstorageproxyuri"])
	}
	at := location{key: values["accountkey"], signature: strings.TrimPrefix(values["sharedaccesssignature"], "?")}
	address := values["queueendpoint"]
	if address == "" {
		if values["accountname"] == "" {
			return location{}, invalid(hint, "the connection string has neither AccountName nor QueueEndpoint")
		}
		address = or(values["defaultendpointsprotocol"], "https") + "://" + values["accountname"] + ".queue." + or(values["endpointsuffix"], "core.windows.net")
	}
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery || u.User != nil {
		return location{}, invalid(hint, "the connection string's QueueEndpoint, or the one made of its parts, is not a plain address")
	}
	if at.account, at.endpoint, err = endpoint(u); err != nil {
		return location{}, err
	}
	at.account = or(values["accountname"], at.account)
	switch {
	case at.key != "":
		at.auth = keyAuth
		if values["accountname"] == "" {
			return location{}, invalid(hint, "the connection string has an AccountKey, but no AccountName")
		}
		if _, err := base64.StdEncoding.DecodeString(at.key); err != nil {
			return location{}, invalid("copy the whole key, with the = at its end", "the AccountKey is not Base64")
		}
	case at.signature != "":
		at.auth = sasAuth
		return at, checkSignature(at.signature)
	default:
		return location{}, invalid(hint, "the connection string has neither AccountKey nor SharedAccessSignature")
	}
	return at, nil
}

// development returns the emulators' account, which azqueue does not know. A proxy address
// replaces scheme and host and keeps the port, as in the other SDKs.
func development(proxy string) (location, error) {
	at := location{account: developmentAccount, auth: keyAuth, key: developmentKey}
	host := "http://127.0.0.1"
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return location{}, invalid("use one like http://host", "the DevelopmentStorageProxyUri is not an http address")
		}
		host = u.Scheme + "://" + u.Hostname()
		if strings.Contains(u.Hostname(), ":") {
			host = u.Scheme + "://[" + u.Hostname() + "]"
		}
	}
	at.endpoint = host + ":10001/" + developmentAccount + "/"
	at.hint = localHint
	return at, nil
}

// localHint says what to do if no server responds on this machine.
const localHint = "start a server there with millrace serve"

// onLoopback reports whether an address is on this machine.
func onLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// check refuses a name that the service would refuse, and any other name if the location is a
// queue's address.
func (at location) check(name string) error {
	if at.queue != "" && at.queue != name {
		return invalid("leave out what follows the account", "the location has a path that is not the queue name")
	}
	return queue.CheckName(name)
}

// validAccount reports whether an account can have this name. Azure accounts have 3 to 24
// lower-case letters and digits; emulators and custom domains allow more.
func validAccount(name string) bool {
	return name != "" && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func checkSignature(query string) error {
	if values, err := url.ParseQuery(query); err != nil || values.Get("sig") == "" {
		return invalid("copy the whole of it, with sv=… and sig=…", "the shared access signature has no sig")
	}
	return nil
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
