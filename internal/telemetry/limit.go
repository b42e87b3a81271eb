package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// limitEvery is how often a kind of line is written.
	limitEvery = time.Minute
	// maxKinds bounds the kinds that are told apart. All others are one kind for each level.
	maxKinds = 500
)

// Limit returns a logger that writes a line of each kind, which is a level and a message whatever numbers are in it, once a minute. The
// next line of that kind says in "unwritten" how many were left out since. It is for messages of programs that log each failure of
// many: when the machine starves, Temporal's would hide our own.
//
// What was left out last is written, as the newest line with its count, when any line comes after its minute.
func Limit(logger *slog.Logger) *slog.Logger {
	return slog.New(&limited{Handler: logger.Handler(), kinds: &kinds{seen: map[kind]*seen{}, now: time.Now}})
}

// limited is a handler of Limit. Those that With makes share the kinds.
type limited struct {
	slog.Handler

	kinds *kinds
}

// kind is what is written once a minute.
type kind struct {
	level   slog.Level
	message string
}

// seen is what is known of a kind in its minute.
type seen struct {
	until     time.Time
	unwritten int
	last      slog.Record // the newest that was not written, by the handler
	handler   slog.Handler
}

type kinds struct {
	mu    sync.Mutex
	seen  map[kind]*seen
	sweep time.Time // when kinds are looked through again
	now   func() time.Time
}

// Handle implements slog.Handler.
func (l *limited) Handle(ctx context.Context, r slog.Record) error {
	write, left := l.kinds.pass(&r, l.Handler)
	for _, s := range left {
		s.last.AddAttrs(slog.Int("unwritten", s.unwritten-1))
		_ = s.handler.Handle(ctx, s.last)
	}
	if !write {
		return nil
	}
	return l.Handler.Handle(ctx, r) //nolint:wrapcheck // a handler passes on what the next one says
}

// pass decides about a record. left are kinds whose minute is over with lines that were not written.
func (k *kinds) pass(r *slog.Record, handler slog.Handler) (write bool, left []*seen) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	of := kind{r.Level, withoutNumbers(r.Message)}
	s := k.seen[of]
	if s == nil && len(k.seen) >= maxKinds {
		of = kind{level: r.Level}
		s = k.seen[of]
	}
	switch {
	case s == nil:
		k.seen[of] = &seen{until: now.Add(limitEvery)}
		write = true
	case now.Before(s.until):
		s.unwritten++
		s.last, s.handler = r.Clone(), handler
	default:
		if s.unwritten > 0 {
			r.AddAttrs(slog.Int("unwritten", s.unwritten))
		}
		*s = seen{until: now.Add(limitEvery)}
		write = true
	}
	if now.Before(k.sweep) {
		return write, nil
	}
	k.sweep = now.Add(limitEvery)
	for of, s := range k.seen {
		if now.Before(s.until) {
			continue
		}
		if s.unwritten > 0 {
			left = append(left, s)
		}
		delete(k.seen, of)
	}
	return write, left
}

// withoutNumbers replaces each number by one character.
func withoutNumbers(message string) string {
	if !strings.ContainsAny(message, digits) {
		return message
	}
	parts := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(digits, r) })
	return strings.Join(parts, "0")
}

const digits = "0123456789"

// WithAttrs implements slog.Handler.
func (l *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limited{l.Handler.WithAttrs(attrs), l.kinds}
}

// WithGroup implements slog.Handler.
func (l *limited) WithGroup(name string) slog.Handler {
	return &limited{l.Handler.WithGroup(name), l.kinds}
}
