package main

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is also the Temporal of the shapes of several processes, as main is.
func TestMain(m *testing.M) {
	if args := os.Args[1:]; len(args) > 0 && args[0] == temporalCommand {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := runTemporal(ctx, args[1:], os.Stdout, os.Stderr)
		stop()
		if err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A few classes on two shapes; make faults runs all of them.
func TestFaults(t *testing.T) {
	t.Parallel()
	b, err := build(t.Context(), "../..", t.TempDir())
	require.NoError(t, err)
	for _, test := range []struct{ shape, classes string }{
		{"standalone", "kill-everpost,postgres-kill"},
		{"split", "kill-worker,worker-to-temporal-cut"},
	} {
		s, err := shapeNamed(test.shape)
		require.NoError(t, err)
		some, err := selected(test.classes)
		require.NoError(t, err)
		var said bytes.Buffer
		err = options{classes: some, shapes: []shape{s}, seeds: []uint64{1}, atOnce: 1, budget: 10 * time.Minute}.run(t.Context(), b, &said)
		t.Log(said.String())
		require.NoError(t, err)
	}
}
