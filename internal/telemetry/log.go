// Package telemetry has the log and the Prometheus metrics of a process.
package telemetry

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// NewLogger returns a logger that writes text to a terminal and JSON to anything else. level is debug,
// info, warn or error; any other value means info.
func NewLogger(w io.Writer, level string) *slog.Logger {
	var least slog.Level
	if err := least.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
		least = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: least}
	if IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// IsTerminal reports whether what is written to w is shown to a person, and kept nowhere.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
