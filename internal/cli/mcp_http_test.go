package cli_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/cli"
	"github.com/everpost/everpost/internal/webhook"
)

// serveMCP runs the command over HTTP and returns its address.
func serveMCP(t *testing.T, c cli.MCPCommand) string {
	t.Helper()
	address, stop := startMCP(t, c)
	t.Cleanup(stop)
	return address
}

// startMCP is serveMCP for a test that stops it by itself.
func startMCP(t *testing.T, c cli.MCPCommand) (address string, stop func()) {
	t.Helper()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	c.Listen = "127.0.0.1:0"
	go func() {
		err := c.Run(ctx, cli.Process{Version: "1.2.3", Stdout: writer, Stderr: stderr})
		_ = writer.Close()
		ended <- err
	}()
	line, err := bufio.NewReader(reader).ReadString('\n')
	require.NoError(t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "ready mcp=")
	require.True(t, ok, line)
	return address, func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, stderr.Close())
	}
}

// withKey sends a key with each request.
type withKey struct {
	key  string
	next *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (w withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.key)
	return w.next.RoundTrip(r)
}

// connectHTTP connects to the command with a key.
func connectHTTP(t *testing.T, address, key string, p person) (agent, error) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, p.options())
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: address, HTTPClient: &http.Client{Transport: withKey{key, transport}}, MaxRetries: -1,
	}, nil)
	if err == nil {
		t.Cleanup(func() { _ = session.Close() })
	}
	return agent{t, session}, err
}

// Over HTTP each client uses a key of its own, also for changes, which its user confirms.
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint()
	c := b.mcpCommand(operatorKey)
	c.Tenant, c.Write = "", true
	address := serveMCP(t, c)

	answer := "decline"
	a, err := connectHTTP(t, address, b.key("acme", webhook.ScopeAdmin), func(string) string { return answer })
	require.NoError(t, err)
	arguments := map[string]any{"tenant": "acme", "id": ep}
	require.Contains(t, a.fails("pause_endpoint", arguments), "Not done: the user did not agree.")
	answer = "accept"
	a.ok("pause_endpoint", arguments)
	require.Equal(t, "paused", b.stateOfEndpoint(ep))
	require.Contains(t, a.fails("list_deliveries", map[string]any{"tenant": "other"}), "no such tenant (status 404)")

	reader, err := connectHTTP(t, address, b.key("acme", webhook.ScopeIngest), nil)
	require.NoError(t, err)
	text, _ := reader.ok("list_deliveries", map[string]any{"tenant": "acme"})
	require.Equal(t, "No deliveries match.", text)
	require.Contains(t, reader.fails("list_endpoints", map[string]any{"tenant": "acme"}), "(status 403)")

	for _, key := range []string{"evk_wrong", "x"} {
		_, err = connectHTTP(t, address, key, nil)
		require.ErrorContains(t, err, "Unauthorized", "the key of the command is not used")
	}
}

// raw makes a request by hand and returns the status.
func raw(t *testing.T, method, address, host string, header map[string]string) (status int, answer http.Header) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(begin))
	require.NoError(t, err)
	request.Host = host
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, response.Header
}

// What is refused before any tool is called.
func TestMCPOverHTTPRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := serveMCP(t, b.mcpCommand(operatorKey))
	key, other := "Bearer "+b.key("acme", webhook.ScopeAdmin), "Bearer "+b.key("acme", webhook.ScopeAdmin)

	status, header := raw(t, http.MethodPost, address, "", map[string]string{"Authorization": key})
	require.Equal(t, http.StatusOK, status)
	session := header.Get("Mcp-Session-Id")
	require.NotEmpty(t, session)
	for name, c := range map[string]struct {
		status int
		host   string
		header map[string]string
	}{
		"no key":                     {status: http.StatusUnauthorized},
		"no key in a session":        {http.StatusUnauthorized, "", map[string]string{"Mcp-Session-Id": session}},
		"another key in a session":   {http.StatusForbidden, "", map[string]string{"Mcp-Session-Id": session, "Authorization": other}},
		"a wrong key":                {http.StatusUnauthorized, "", map[string]string{"Authorization": "Bearer evk_wrong"}},
		"a foreign name":             {http.StatusForbidden, "evil.example", map[string]string{"Authorization": key}},
		"a page of another origin":   {http.StatusForbidden, "", map[string]string{"Authorization": key, "Origin": "https://evil.example"}},
		"a session that is not ours": {http.StatusNotFound, "", map[string]string{"Mcp-Session-Id": "x", "Authorization": key}},
	} {
		status, _ = raw(t, http.MethodPost, address, c.host, c.header)
		require.Equal(t, c.status, status, name)
	}
	status, _ = raw(t, http.MethodPost, strings.TrimSuffix(address, "/mcp"), "", map[string]string{"Authorization": key})
	require.Equal(t, http.StatusNotFound, status)
	status, _ = raw(t, http.MethodDelete, address, "", map[string]string{"Mcp-Session-Id": session, "Authorization": key})
	require.Equal(t, http.StatusNoContent, status)

	away := b.mcpCommand("")
	away.URL = "http://" + closedPort(t)
	status, header = raw(t, http.MethodPost, serveMCP(t, away), "", map[string]string{"Authorization": key})
	require.Equal(t, http.StatusServiceUnavailable, status, "a key that cannot be checked begins no session")
	require.Equal(t, "10", header.Get("Retry-After"))
}

// A stop does not wait for a person who has not answered, and nothing is changed.
func TestMCPStopsWhileAPersonThinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ep := b.endpoint()
	c := b.mcpCommand("")
	c.Write = true
	address, stop := startMCP(t, c)
	asked, answer, called := make(chan string, 1), make(chan string), make(chan error, 1)
	a, err := connectHTTP(t, address, b.key("acme", webhook.ScopeAdmin), func(question string) string {
		asked <- question
		return <-answer
	})
	require.NoError(t, err)
	go func() {
		_, err := a.session.CallTool(context.Background(), &mcp.CallToolParams{Name: "pause_endpoint", Arguments: map[string]any{"id": ep}})
		called <- err
	}()
	require.Contains(t, <-asked, "Pause the endpoint "+ep)
	stop()
	answer <- "accept"
	require.Error(t, <-called)
	require.Equal(t, "active", b.stateOfEndpoint(ep))
}
