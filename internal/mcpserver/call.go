package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// call is one call of a tool: the API as the key of its caller sees it.
type call struct {
	api    *client.Client
	of     client.TenantCalls // those about the tenant
	tenant string
	caller string // fingerprint of the key that the caller sent, "" over standard input
}

// scope says whose objects a call means.
type scope struct {
	Tenant string `json:"tenant,omitempty" jsonschema:"The tenant's id."`
}

func (s scope) tenantID() string { return s.Tenant }

// scoped is the arguments of a tool.
type scoped interface{ tenantID() string }

// begin waits for a slot and returns the call. end gives the slot back.
func (s *Server) begin(ctx context.Context, req *mcp.CallToolRequest, tenant string) (c *call, end func(), err error) {
	if s.tenant != "" {
		tenant = s.tenant
	}
	if !webhook.ValidTenantID(tenant) {
		return nil, nil, badArgument("tenant", "is not the id of a tenant")
	}
	c = &call{api: s.api, tenant: tenant}
	if req.Extra != nil && req.Extra.TokenInfo != nil {
		key, ok := req.Extra.TokenInfo.Extra[keyOfToken].(string)
		if !ok {
			return nil, nil, errors.New("no API key")
		}
		c.api, c.caller = s.api.WithKey(key), req.Extra.TokenInfo.UserID
	}
	c.of = c.api.Tenant(tenant)
	select {
	case s.slots <- struct{}{}:
		return c, func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, nil, errors.New("the server is busy; try again")
	}
}

// listPage reads a page of at most n entries, and describes it: text has a line for each, which show returns with the entry as the
// tool shows it.
func listPage[T, V any](
	ctx context.Context, l client.List[T], cursor string, n int, none string, show func(T) (line string, v V),
) (text string, shown []V, next string, err error) {
	page, err := l.Page(ctx, client.PageOptions{Limit: n, Cursor: cursor})
	if err != nil {
		return "", nil, "", err
	}
	lines := make([]string, len(page.Data))
	shown = make([]V, len(page.Data))
	for i, entry := range page.Data {
		lines[i], shown[i] = show(entry)
	}
	return listText(lines, none, page.NextCursor), shown, page.NextCursor, nil
}

// argumentError is a mistake in an argument of a call.
type argumentError struct{ field, message string }

// Error implements error.
func (e *argumentError) Error() string { return e.field + ": " + e.message }

// badArgument returns an argumentError.
func badArgument(field, message string) error { return &argumentError{field, message} }

// toolError is the error of a call, for an agent: what is wrong, in which field, and what can be done.
func (c *call) toolError(ctx context.Context, err error) error {
	var lines []string
	remedy := ""
	refused, isRefused := errors.AsType[*client.Error](err)
	switch {
	case isRefused:
		lines, remedy = c.refusal(refused)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		lines, remedy = []string{"no answer within " + callTimeout.String()}, "Narrow the filters, or try again."
	default:
		lines = []string{err.Error()}
		if silent, isSilent := errors.AsType[*client.NoResponseError](err); isSilent && silent.NotSent {
			remedy = wrongAddress
		}
		if _, isArgument := errors.AsType[*argumentError](err); isArgument {
			remedy = "Fix the argument and call the tool again."
		}
	}
	if remedy != "" {
		lines = append(lines, "Remedy: "+remedy)
	}
	for i := range lines {
		lines[i] = clip(lines[i], maxSentence)
	}
	return errors.New(strings.Join(lines, "\n"))
}

const wrongAddress = "Check the address of the API that the MCP server was started with."

// refusal says what the API answered, and what can be done about it.
func (c *call) refusal(e *client.Error) (lines []string, remedy string) {
	if e.Foreign {
		return []string{e.Error()}, wrongAddress
	}
	lines = []string{fmt.Sprintf("%s (status %d)", e.Detail, e.Status)}
	if len(e.Errors) > 0 {
		lines = nil
		for _, bad := range e.Errors[:min(len(e.Errors), maxFieldErrors)] {
			lines = append(lines, bad.Field+": "+bad.Message)
		}
	}
	switch e.Status {
	case http.StatusBadRequest:
		remedy = "Fix the fields that are named and call the tool again."
	case http.StatusUnauthorized:
		remedy = "Start the MCP server with a valid key: --key or $EVERPOST_KEY."
		if c.caller != "" {
			remedy = "Send a valid API key as bearer token, and connect again."
		}
	case http.StatusForbidden:
		remedy = "Use a key of the tenant with the scope admin."
	case http.StatusNotFound:
		remedy = fmt.Sprintf("Check the id and the tenant (%s): what is another tenant's is not shown.", c.tenant)
	case http.StatusConflict:
		remedy = "Its state does not allow this now; explain shows the state."
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		remedy = "Try again later."
		if e.RetryAfter > 0 {
			remedy = "Try again in " + strconv.Itoa(int(e.RetryAfter.Seconds())) + " s."
		}
	case http.StatusInternalServerError:
		remedy = "Look for the request " + e.RequestID + " in Everpost's log."
	}
	return lines, remedy
}

// instant reads a time: RFC 3339, or a duration ago such as 90m. "" is none, the zero time.
func instant(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, ok := webhook.ParseAge(text)
	if !ok {
		return time.Time{}, badArgument(field, "is neither a time such as 2026-01-31T09:30:00Z nor a duration such as 90m or 7d")
	}
	return now.Add(-ago), nil
}
