package filetable

import (
	"testing"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/tabletest"
)

func TestConformance(t *testing.T) {
	tabletest.Run(t, tabletest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) table.Store {
			return tableOf(t, opened(t, scratch(t)), name)
		},
	})
}
