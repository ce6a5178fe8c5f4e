package emulator

import (
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
)

// getStatistics answers Get Queue Service Stats, which only the secondary
// location has. Both locations are the same here, so that it is always live and
// never behind.
func (c *call) getStatistics() *failure {
	if !c.secondary {
		return invalidComp("stats")
	}
	return c.document(http.StatusOK, queuexml.AppendStatistics(c.responseBuffer(), "live", time.Now()))
}
