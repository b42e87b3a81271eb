package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Traces are off unless a collector is named.
func TestTracing(t *testing.T) {
	t.Parallel()
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{endpoint: " "}, false},
		{map[string]string{endpoint: "http://collector:4318"}, true},
		{map[string]string{traces: "http://collector:4318/v1/traces"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"}, false},
		{map[string]string{endpoint: "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{endpoint: "http://collector:4318", "OTEL_SDK_DISABLED": "false"}, true},
		{map[string]string{endpoint: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, false},
		{map[string]string{endpoint: "http://collector:4318", "OTEL_TRACES_EXPORTER": "otlp"}, true},
		{map[string]string{endpoint: "http://collector:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true},
		{map[string]string{endpoint: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, true},
	} {
		got, err := tracing(func(name string) string { return c.env[name] })
		require.NoError(t, err, c.env)
		require.Equal(t, c.want, got, c.env)
	}
	_, err := tracing(func(name string) string {
		return map[string]string{endpoint: "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}[name]
	})
	require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_PROTOCOL")
}
