package client

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// The error of a request without a response does not contain the URL's path and query.
func TestErrorsWithoutResponse(t *testing.T) {
	t.Parallel()
	c := New("http://everpost.example/", "", "")
	for want, err := range map[string]error{
		"the host of http://everpost.example is not known; check --url": &net.DNSError{Err: "no such host", Name: "everpost.example", IsNotFound: true},
		"no answer from http://everpost.example within 45s":             &net.DNSError{Err: "i/o timeout", IsTimeout: true},
		"no answer from http://everpost.example: unexpected EOF":        io.ErrUnexpectedEOF,
	} {
		got := c.unreachable(t.Context(), &url.Error{Op: "Get", URL: "http://everpost.example/?canary", Err: err})
		require.EqualError(t, got, want)
		require.ErrorAs(t, got, new(*NoResponseError))
	}
}

// Clients that share connections keep their keys apart, and a path is escaped.
func TestKeysAndPaths(t *testing.T) {
	t.Parallel()
	var keys, paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys, paths = append(keys, r.Header.Get("Authorization")), append(paths, r.RequestURI)
		_, _ = io.WriteString(w, `{}`)
	}))
	defer server.Close()
	first := New(server.URL, "one", "test")
	defer first.Close()
	for _, c := range []*Client{first, first.WithKey("two"), first.WithKey(""), first} {
		_, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: []string{"tenants", "../a?b", "events"}, Query: url.Values{"q": {"x y"}}})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"Bearer one", "Bearer two", "", "Bearer one"}, keys)
	require.Equal(t, "/v1/tenants/..%2Fa%3Fb/events?q=x+y", paths[0])
}

// The operator's key of the data directory is only read for this machine.
func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.10": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true, "10.0.0.1": false, "0.0.0.0": false,
		"everpost.example": false, "localhost.example": false, "127.0.0.1.example": false, "::2": false, "": false,
	} {
		require.Equal(t, want, onThisMachine(host), host)
	}
}
