package paired_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/suitetest"
)

func TestMain(m *testing.M) {
	suitetest.OneProcessor()
	goleak.VerifyTestMain(m)
}
