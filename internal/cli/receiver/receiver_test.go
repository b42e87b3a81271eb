package receiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A receiver drops the oldest ids and none of the newest.
func TestTrackedIDsAreBounded(t *testing.T) {
	t.Parallel()
	r := New(Config{Status: 503, First: 1})
	id := func(i int) string { return time.Unix(int64(i), 0).UTC().Format(time.RFC3339) }
	for i := range maxTrackedIDs + 10 {
		status, _ := r.answer(id(i))
		require.Equal(t, 503, status)
	}
	require.Len(t, r.requests, maxTrackedIDs)
	require.Len(t, r.order, maxTrackedIDs)
	status, _ := r.answer(id(maxTrackedIDs + 9))
	require.Equal(t, 200, status)
	status, _ = r.answer(id(0))
	require.Equal(t, 503, status, "forgotten")
}
