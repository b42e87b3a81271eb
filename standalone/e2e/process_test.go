package e2e_test

import (
	"context"
	"io"

	"github.com/everpost/everpost/internal/processtest"
)

const startPatience = processtest.StartPatience

type (
	process  = processtest.Process
	settings = processtest.Settings
	finished = processtest.Finished
)

// launch starts the binary. Its log is appended to the writer.
func launch(env settings, log io.Writer, args ...string) (*process, error) {
	return processtest.Launch(binary, env, log, args...)
}

// runToEnd runs the binary until it ends by itself.
func runToEnd(ctx context.Context, env settings, args ...string) (finished, error) {
	return processtest.Run(ctx, binary, env, args...)
}
