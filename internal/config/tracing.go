package config

import (
	"errors"
	"os"
	"strings"
)

// Tracing reports whether the environment asks for traces, by the variables of OpenTelemetry: an
// address of a collector, and nothing that switches traces off. The SDK reads the other OTEL_ variables
// itself. An error names a variable that asks for what Everpost does not have.
func Tracing() (bool, error) { return tracing(os.Getenv) }

func tracing(variable func(string) string) (bool, error) {
	given := func(names ...string) string {
		for _, name := range names {
			if value := strings.TrimSpace(variable(name)); value != "" {
				return value
			}
		}
		return ""
	}
	off := strings.EqualFold(given("OTEL_SDK_DISABLED"), "true") || given("OTEL_TRACES_EXPORTER") == "none"
	if off || given("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return false, nil
	}
	switch given("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL") {
	case "", "http/protobuf":
		return true, nil
	}
	return false, errors.New("OTEL_EXPORTER_OTLP_PROTOCOL: traces are sent as http/protobuf only, usually to port 4318 of the collector")
}
