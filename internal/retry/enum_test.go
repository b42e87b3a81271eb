package retry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
)

// TestEnumNames: the names are part of the API, the console and the metrics.
func TestEnumNames(t *testing.T) {
	t.Parallel()

	for want, values := range map[string][]fmt.Stringer{
		"delivered retry permanent ": {retry.Delivered, retry.Retry, retry.Permanent, retry.Decision(0)},
		"deliver wait give_up ":      {retry.Deliver, retry.Wait, retry.GiveUp, retry.Action(0)},
		"backoff retry_after deadline ambiguous ": {
			retry.SourceBackoff, retry.SourceRetryAfter, retry.SourceDeadline, retry.SourceAmbiguous, retry.DelaySource(0),
		},
		"none unknown unknown": {retry.FaultNone, retry.FaultUnknown, retry.Fault(99)}, //nolint:dupword // two values of that name
	} {
		var names []string
		for _, value := range values {
			names = append(names, value.String())
		}
		require.Equal(t, want, strings.Join(names, " "))
	}

	for _, source := range []retry.DelaySource{
		0, retry.SourceBackoff, retry.SourceRetryAfter, retry.SourceDeadline, retry.SourceAmbiguous,
	} {
		text, err := json.Marshal(source)
		require.NoError(t, err)
		var got retry.DelaySource
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, source, got)
	}
	var source retry.DelaySource
	require.ErrorContains(t, json.Unmarshal([]byte(`"`+strings.Repeat("x", 1000)+`"`), &source), "backoff, retry_after, deadline or ambiguous")
}
