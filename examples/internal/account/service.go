package account

import (
	"context"
	"strings"

	"github.com/millrace/millrace/internal/azurestorage"
)

// service returns the location of another service of the account, or "" if the account does not have it.
func (a *Account) service(ctx context.Context, s azurestorage.Service) (string, error) {
	lower := strings.ToLower(strings.TrimSpace(a.location))
	switch {
	case strings.Contains(lower, s.Name+"endpoint="):
		return a.location, nil
	case strings.HasPrefix(lower, "http"): // of the queue service
		if location := s.Of(a.location); location != a.location {
			return location, nil
		}
		return "", nil
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
