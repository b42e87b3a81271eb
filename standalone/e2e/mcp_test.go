package e2e_test

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// An agent on call: it starts the binary, finds the delivery that is stuck, and after its user has agreed, has
// it sent at once.
func TestMCP(t *testing.T) {
	t.Parallel()
	b, r, d := waiting(t)
	command := exec.Command(binary, "mcp", "--write")
	command.Env = settings{"EVERPOST_URL": b.in.addr["api"], "EVERPOST_KEY": b.in.key, "EVERPOST_TENANT": b.tenant}.Environ()
	agent := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil) // one that cannot ask its user
	session, err := agent.Connect(contextFor(t, patience), &mcp.CommandTransport{Command: command}, nil)
	require.NoError(t, err)
	use := func(tool string, arguments map[string]any) (text string, isError bool) {
		got, err := session.CallTool(contextFor(t, patience), &mcp.CallToolParams{Name: tool, Arguments: arguments})
		require.NoError(t, err)
		return got.Content[0].(*mcp.TextContent).Text, got.IsError
	}

	text, isError := use("list_deliveries", map[string]any{"state": []string{"retrying"}})
	require.False(t, isError, text)
	require.Contains(t, text, d.ID)
	text, isError = use("explain", map[string]any{"id": d.ID})
	require.False(t, isError, text)
	require.Contains(t, text, "got 500 Internal Server Error; attempt 2 follows at ")
	text, isError = use("retry_delivery", map[string]any{"id": d.ID})
	require.True(t, isError)
	expect := regexp.MustCompile(`confirm: true and expect: "(order\.paid-[^"]+)"`).FindStringSubmatch(text)
	require.NotNil(t, expect, text)
	require.Equal(t, 1, r.Count(), "nothing was sent")
	text, isError = use("retry_delivery", map[string]any{"id": d.ID, "confirm": true, "expect": expect[1]})
	require.False(t, isError, text)
	b.waitState(d.ID, "delivered")
	text, _ = use("get_delivery", map[string]any{"id": d.ID})
	require.Contains(t, text, ": delivered\n")
	require.Regexp(t, `Attempt 2 at .* \(names \d+, connecting \d+, TLS \d+, waiting \d+\)`, text)

	require.NoError(t, session.Close())
	require.Zero(t, command.ProcessState.ExitCode(), "it ends when its input does")
}
