package temporalconn

import "log/slog"

const KeyFresh = keyFresh

// KeyFile returns what reads an API key from a file.
func KeyFile(path string, logger *slog.Logger) func() (string, error) {
	return (&keyFileReader{path: path, log: logger}).read
}
