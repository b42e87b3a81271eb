package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/bench/internal/installation"
)

// TestReceiver distinguishes requests of a ledger from others.
func TestReceiver(t *testing.T) {
	t.Parallel()
	r, err := startReceiver(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.stop()) })
	l := newLedger("l1", work{events: 3, endpoints: 2, fails: 1})
	r.open(l)
	good := string(appendPayload(nil, 2, newPadding()))
	caller := installation.NewHTTPClient()
	t.Cleanup(caller.CloseIdleConnections)
	post := func(path, body string) int {
		response, err := caller.Post(r.base+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, r.base+"/l1/1", r.url(l, 1))
	require.Equal(t, http.StatusServiceUnavailable, post("/l1/1", good))
	require.Equal(t, http.StatusOK, post("/l1/1", good))
	require.EqualValues(t, 2, l.slots[2*2+1].tries.Load())
	require.Zero(t, r.unexpected.Load())
	r.open(newLedger("l2", work{events: 2, endpoints: 1}))
	unexpected := [][2]string{
		{"/l1/1", ""}, {"/l1/1", good + "x"}, {"/l1/1", good[:1000]}, {"/l1/2", good}, {"/l1/x", good}, {"/l1", good},
		{"/", good}, {"/l3/0", good}, {"/l2/0", good},
	}
	for i, c := range unexpected {
		require.Equal(t, http.StatusGone, post(c[0], c[1]), "%s %d bytes", c[0], len(c[1]))
		require.EqualValues(t, i+1, r.unexpected.Load())
	}
	r.close(l)
	require.Equal(t, http.StatusGone, post("/l1/1", good))
}
