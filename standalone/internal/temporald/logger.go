package temporald

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// logger passes the server's messages on to slog.
type logger struct {
	out   *slog.Logger
	level slog.Leveler
	state *loggerState // shared by all that came from one newLogger
}

type loggerState struct {
	building atomic.Bool
	stopping atomic.Bool

	once sync.Once
	done chan struct{}
	err  error // read after done
}

var (
	_ log.Logger      = (*logger)(nil)
	_ log.WithLogger  = (*logger)(nil)
	_ log.SLogWrapper = (*logger)(nil)
)

func newLogger(out *slog.Logger, level slog.Leveler) *logger {
	return &logger{
		out:   out.With(slog.String("component", "temporal")),
		level: level,
		state: &loggerState{done: make(chan struct{})},
	}
}

// With implements log.WithLogger.
func (l *logger) With(tags ...tag.Tag) log.Logger {
	attrs := make([]any, 0, len(tags))
	for _, attr := range attributes(tags) {
		attrs = append(attrs, attr)
	}
	return &logger{out: l.out.With(attrs...), level: l.level, state: l.state}
}

// SLog implements log.SLogWrapper, which the server asks for the logger of its own SDK clients.
func (l *logger) SLog() *slog.Logger { return slog.New(levelHandler{l.out.Handler(), l.level}) }

func (l *logger) Debug(msg string, tags ...tag.Tag) { l.log(slog.LevelDebug, msg, tags) }
func (l *logger) Info(msg string, tags ...tag.Tag)  { l.log(slog.LevelInfo, msg, tags) }
func (l *logger) Warn(msg string, tags ...tag.Tag)  { l.log(slog.LevelWarn, msg, tags) }
func (l *logger) Error(msg string, tags ...tag.Tag) { l.log(slog.LevelError, msg, tags) }

// DPanic is for what should not happen and can be lived with.
func (l *logger) DPanic(msg string, tags ...tag.Tag) { l.log(slog.LevelError, msg, tags) }

// Panic ends the process, like the server's own logger: its state can no longer be trusted.
func (l *logger) Panic(msg string, tags ...tag.Tag) {
	l.log(slog.LevelError, msg, tags)
	panic(fatalError(msg, tags))
}

// Fatal is where the server would end the process. This process has more in it than Temporal, and a
// database to stop: so the failure is kept for Server.Err, and only the goroutine that cannot go on
// is ended. While the server is built, that one is startServices's own, which recovers from a panic;
// ending it would not do, as the server builds its parts inside sync.OnceValue, which cannot tell
// that from a panic without a value.
func (l *logger) Fatal(msg string, tags ...tag.Tag) {
	l.log(slog.LevelError, msg, tags)
	l.state.once.Do(func() {
		l.state.err = fatalError(msg, tags)
		close(l.state.done)
	})
	if l.state.building.Load() {
		panic(l.state.err)
	}
	runtime.Goexit()
}

func (l *logger) failed() <-chan struct{} { return l.state.done }

func (l *logger) failure() error {
	select {
	case <-l.state.done:
		return l.state.err
	default:
		return nil
	}
}

// quieten lowers what is said from now on: services that stop one after the other complain about
// each other.
func (l *logger) quieten() { l.state.stopping.Store(true) }

func (l *logger) log(level slog.Level, msg string, tags []tag.Tag) {
	if l.state.stopping.Load() || isNotice(msg, tags) {
		level = min(level, slog.LevelDebug)
	}
	ctx := context.Background()
	if level < l.level.Level() || !l.out.Enabled(ctx, level) {
		return
	}
	l.out.LogAttrs(ctx, level, msg, attributes(tags)...) //nolint:sloglint // the server's message
}

func attributes(tags []tag.Tag) []slog.Attr {
	attrs := make([]slog.Attr, len(tags))
	for i, t := range tags {
		attrs[i] = slog.Any(t.Key(), t.Value())
	}
	return attrs
}

// fatalError turns a message into an error, with the error among its tags as the cause.
func fatalError(msg string, tags []tag.Tag) error {
	errs := []error{errors.New(msg)}
	for _, t := range tags {
		switch value := t.Value().(type) {
		case error:
			errs = append(errs, value)
		case string:
			if t.Key() == "error" || t.Key() == "address" {
				errs = append(errs, errors.New(value))
			}
		}
	}
	err := errs[0]
	for _, cause := range errs[1:] {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// levelHandler raises the least level of another handler.
type levelHandler struct {
	slog.Handler
	level slog.Leveler
}

func (h levelHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level.Level() && h.Handler.Enabled(ctx, level)
}

func (h levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelHandler{h.Handler.WithAttrs(attrs), h.level}
}

func (h levelHandler) WithGroup(name string) slog.Handler {
	return levelHandler{h.Handler.WithGroup(name), h.level}
}

// isNotice tells what the server warns of although it is as intended: at every start, that it has no
// HTTP port and that it is early for a shard which it is about to take over; at every look at a workflow
// in the Web UI, that the UI asks for larger pages than there are; when a caller has gone, as pollers do when a worker
// stops, that it cannot send that caller figures of its own.
func isNotice(msg string, tags []tag.Tag) bool {
	for _, known := range []string{
		"HTTP API port has not been set.",
		"GetHistory page size is larger than threshold",
		"unable to add metrics baggage to gRPC trailer",
	} {
		if strings.HasPrefix(msg, known) {
			return true
		}
	}
	return slices.ContainsFunc(tags, func(t tag.Tag) bool {
		return t.Key() == "error" && fmt.Sprint(t.Value()) == "shard status unknown"
	})
}
