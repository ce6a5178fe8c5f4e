package account

import (
	"context"
	"net/url"
	"strings"
)

// service returns the location of another service of the account, such as blob, or "" if the account has none.
func (a *Account) service(ctx context.Context, name string) (string, error) {
	lower := strings.ToLower(a.location)
	switch {
	case strings.Contains(lower, name+"endpoint="):
		return a.location, nil
	case strings.HasPrefix(strings.TrimSpace(lower), "http"): // of the queue service
		u, err := url.Parse(a.at.Endpoint)
		if err != nil {
			return "", err
		}
		if !strings.Contains(u.Host, ".queue.") {
			return "", nil
		}
		u.Host = strings.Replace(u.Host, ".queue.", "."+name+".", 1)
		u.RawQuery = a.at.Signature
		return u.String(), nil
	case strings.Contains(lower, "queueendpoint="): // and no endpoint of that service
		return "", nil
	case !strings.Contains(lower, "usedevelopmentstorage="):
		return a.location, nil // a connection string of Azure
	}
	// Azurite and millrace serve have the same location. Only Azurite has other services too.
	server, err := a.Server(ctx)
	if err != nil || !strings.HasPrefix(server, "Azurite") {
		return "", err
	}
	return a.location, nil
}
