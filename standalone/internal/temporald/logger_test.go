package temporald

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/log/tag"
)

func TestLoggerLevels(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), slog.LevelWarn)
	l.Info("not this")
	l.SLog().Info("nor this")
	l.With(tag.String("shard", "7")).Warn("this", tag.Error(errors.New("boom")))
	require.NotContains(t, out.String(), "not this")
	require.NotContains(t, out.String(), "nor this")
	require.Contains(t, out.String(), "level=WARN msg=this component=temporal shard=7 error=boom")

	out.Reset()
	l = newLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})), slog.LevelInfo)
	l.Warn("GetHistory page size is larger than threshold", tag.WorkflowID("delivery/x"))
	l.Error("unable to add metrics baggage to gRPC trailer", tag.Error(errors.New("transport: SendHeader called multiple times")))
	require.Empty(t, out.String(), "neither a look at a workflow in the Web UI nor a caller that has gone is worth a warning")

	l.quieten()
	l.With(tag.String("shard", "7")).Error("of a stop")
	require.Empty(t, out.String())
}

// TestFatalEndsOnlyItsGoroutine: were it the process, its PostgreSQL would lose its Everpost.
func TestFatalEndsOnlyItsGoroutine(t *testing.T) {
	t.Parallel()
	l := newLogger(slog.New(slog.DiscardHandler), slog.LevelWarn)
	require.NoError(t, l.failure())
	cause := errors.New("boom")
	ended, wentOn := make(chan struct{}), false
	go func() {
		defer close(ended)
		l.With(tag.String("k", "v")).Fatal("cannot go on", tag.Error(cause))
		wentOn = true
	}()
	<-ended
	<-l.failed()
	require.False(t, wentOn)
	require.ErrorContains(t, l.failure(), "cannot go on: boom")
}
