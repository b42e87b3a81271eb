package engine

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup makes an engine that logs nothing.
func setup(t *testing.T, c Config) *Engine {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	return New(c)
}
