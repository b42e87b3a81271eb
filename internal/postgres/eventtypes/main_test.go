package eventtypes_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/everpost/everpost/internal/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main(m)) }
