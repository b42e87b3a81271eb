package workflows

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// Whatever a person sends as a signal's input, its reason can be stored.
func FuzzSignalInput(f *testing.F) {
	for _, seed := range [][2]string{
		{"json/plain", `{"command_id":1,"reason":"why","at":"2026-02-01T00:00:00Z"}`}, {"json/plain", `"why"`}, {"json/plain", `{"run":-1,"delivery_id":"x"}`},
		{"json/plain", `"` + strings.Repeat("é", 600) + `"`}, {"json/plain", "\"\\u0000\xff\""}, {"binary/null", ""},
		{"binary/plain", "\x00"}, {"", "{"}, {"json/protobuf", "{}"},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, encoding string, data []byte) {
		payload := &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding)}, Data: data}
		signal := decode(converter.NewRawValue(payload))
		require.True(t, utf8.ValidString(signal.Reason))
		require.NotContains(t, signal.Reason, "\x00")
		require.LessOrEqual(t, len(signal.Reason), longestReason)
		_, _ = signal.when()
	})
}
