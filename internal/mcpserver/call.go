package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/everpost/everpost/internal/client"
	"github.com/everpost/everpost/internal/webhook"
)

// call is one call of a tool: the API as the key of its caller sees it.
type call struct {
	api    *client.Client
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
	select {
	case s.slots <- struct{}{}:
		return c, func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, nil, errors.New("the server is busy; try again")
	}
}

// get reads an object of the tenant.
func get[T any](ctx context.Context, c *call, query url.Values, path ...string) (T, error) {
	return request[T](ctx, c, client.Request{Method: http.MethodGet, Query: query, Path: append([]string{"tenants", c.tenant}, path...)})
}

// post sends a command about an object of the tenant. A nil body is none.
func post[T any](ctx context.Context, c *call, body map[string]any, path ...string) (T, error) {
	r := client.Request{Method: http.MethodPost, Path: append([]string{"tenants", c.tenant}, path...)}
	if len(body) > 0 {
		var err error
		if r.Body, err = json.Marshal(body); err != nil {
			var none T
			return none, fmt.Errorf("encode the request: %w", err)
		}
	}
	return request[T](ctx, c, r)
}

func request[T any](ctx context.Context, c *call, r client.Request) (T, error) {
	a, err := c.api.Do(ctx, r)
	if err != nil {
		var none T
		return none, err
	}
	return client.Decode[T](a)
}

// list reads a page of at most n entries.
func list[T any](ctx context.Context, c *call, query url.Values, cursor string, n int, path ...string) (client.Page[T], error) {
	all := url.Values{"limit": {strconv.Itoa(n)}}
	maps.Copy(all, query)
	if cursor != "" {
		all.Set("cursor", cursor)
	}
	return get[client.Page[T]](ctx, c, all, path...)
}

// listPage reads a page of at most n entries, and describes it: text has a line for each, which show returns with the entry as the
// tool shows it.
func listPage[T, V any](
	ctx context.Context, c *call, query url.Values, cursor string, n int, path, none string, show func(T) (line string, v V),
) (text string, shown []V, next string, err error) {
	page, err := list[T](ctx, c, query, cursor, n, path)
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
	refused, isRefused := errors.AsType[*client.APIError](err)
	switch {
	case isRefused:
		lines, remedy = c.refusal(refused)
	case errors.Is(err, client.ErrInterrupted) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		lines, remedy = []string{"no answer within " + callTimeout.String()}, "Narrow the filters, or try again."
	default:
		lines = []string{err.Error()}
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

// refusal says what the API answered, and what can be done about it.
func (c *call) refusal(e *client.APIError) (lines []string, remedy string) {
	if e.Foreign {
		return []string{e.Error()}, "Check the address of the API that the MCP server was started with."
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
		if e.RetryAfter != "" {
			remedy = "Try again in " + e.RetryAfter + " s."
		}
	case http.StatusInternalServerError:
		remedy = "Look for the request " + e.RequestID + " in Everpost's log."
	}
	return lines, remedy
}

// instant reads a time: RFC 3339, or a duration ago such as 90m. "" is none.
func instant(field, text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC().Format(time.RFC3339Nano), nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return "", badArgument(field, "is neither a time such as 2026-01-31T09:30:00Z nor a duration such as 90m")
	}
	return now.Add(-ago).UTC().Format(time.RFC3339Nano), nil
}
