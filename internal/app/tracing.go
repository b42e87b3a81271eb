package app

import (
	"context"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/tracing"
)

// startTracer makes the tracer if the environment names a collector. No fault of it keeps a process
// from starting: it then runs without traces.
func (a *App) startTracer(ctx context.Context) {
	wanted, err := config.Tracing()
	if wanted {
		a.tracer, err = tracing.New(ctx, tracing.Config{Version: a.options.Version, Logger: a.log})
	}
	switch {
	case err != nil:
		a.log.WarnContext(ctx, "there will be no traces", "error", err)
	case wanted:
		a.push(phaseTraces, a.tracer.Stop)
	}
}
