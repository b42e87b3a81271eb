package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

// serve returns a client of a server.
func serve(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := must(client.New(client.Config{URL: server.URL + "/", Key: "one"}))
	t.Cleanup(c.Close)
	return c
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "everpost.example", "127.0.0.1:8080", "ftp://x", "http://", "http://u:canary@x", "http://x/?canary", "http://x/#canary"} {
		_, err := client.New(client.Config{URL: bad})
		require.ErrorContains(t, err, "must be an address", bad)
		require.NotContains(t, err.Error(), "canary")
	}
}

// Clients that share connections keep their keys apart, and a path is escaped.
func TestKeysAndPaths(t *testing.T) {
	t.Parallel()
	var keys, paths []string
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys, paths = append(keys, r.Header.Get("Authorization")), append(paths, r.RequestURI)
		_, _ = io.WriteString(w, `{}`)
	})
	for _, c := range []*client.Client{first, first.WithKey("two"), first.WithKey(""), first} {
		_, err := c.Do(t.Context(), client.Request{
			Method: http.MethodGet, Path: []string{"tenants", "../a?b", "events"}, Query: url.Values{"q": {"x y"}},
		})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"Bearer one", "Bearer two", "", "Bearer one"}, keys)
	require.Equal(t, "/v1/tenants/..%2Fa%3Fb/events?q=x+y", paths[0])
	for _, id := range []string{"", ".", ".."} { // they would lead to another path
		_, err := first.Tenant("acme").Events.Get(t.Context(), id)
		require.ErrorContains(t, err, "is not an id")
	}
	require.Len(t, paths, 4)
}

// A refusal has a code, the mistakes, and when to try again.
func TestProblems(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>")
			return
		case http.MethodDelete:
			w.Header().Set("Location", "http://elsewhere.example")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"type":"https://everpost.dev/errors/rate-limited","title":"T","status":429,"detail":"too many","request_id":"R",`+
			`"errors":[{"field":"a","message":"b"}],"until":"2026-01-31T09:30:00.000000Z","new":1}`)
	})
	acme := c.Tenant("acme")
	_, err := acme.Endpoints.Pause(t.Context(), "ep_1", client.PauseInput{})
	refused := &client.Error{}
	require.ErrorAs(t, fmt.Errorf("pause: %w", err), &refused)
	require.EqualError(t, refused, "too many")
	require.Equal(t, client.CodeRateLimited, refused.Code())
	require.Equal(t, []client.FieldError{{Field: "a", Message: "b"}}, refused.Errors)
	require.Equal(t, 7*time.Second, refused.RetryAfter)
	require.Equal(t, time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC), refused.Until.Time)
	require.True(t, refused.Temporary())
	require.Equal(t, "/v1/tenants/acme/endpoints/ep_1/pause", refused.Path)

	_, err = acme.Get(t.Context())
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.Foreign)
	require.Equal(t, http.StatusBadGateway, refused.Status)
	require.Empty(t, refused.Code())
	require.ErrorContains(t, err, "answered 502 Bad Gateway, and not as Everpost does")

	require.ErrorAs(t, acme.Delete(t.Context()), &refused, "a redirect is not followed: the key is for one address")
	require.Equal(t, http.StatusTemporaryRedirect, refused.Status)
}

// The error of a request without an answer does not contain the URL's path and query.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("tenant") == "slow" {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	})
	_, err := c.Audit(client.AuditFilter{Tenant: "canary"}).Page(t.Context(), client.PageOptions{})
	silent := &client.NoResponseError{}
	require.ErrorAs(t, err, &silent)
	require.False(t, silent.NotSent)
	require.ErrorIs(t, err, io.EOF)
	require.NotContains(t, err.Error(), "canary")

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Audit(client.AuditFilter{Tenant: "slow"}).Page(ctx, client.PageOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	closed := httptest.NewServer(nil)
	closed.Close()
	_, err = must(client.New(client.Config{URL: closed.URL})).RetryPolicies(t.Context())
	require.ErrorAs(t, err, &silent)
	require.True(t, silent.NotSent)

	elsewhere := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
	_, err = elsewhere.RetryPolicies(t.Context())
	require.ErrorIs(t, err, client.ErrNotEverpost)
}

// All follows the cursors with the filters, and ends after an error or when the caller has enough.
func TestAllPages(t *testing.T) {
	t.Parallel()
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch r.URL.Query().Get("cursor") {
		case "":
			_, _ = io.WriteString(w, `{"data":[{"id":"a"},{"id":"b"}],"next_cursor":"x"}`)
		case "x":
			_, _ = io.WriteString(w, `{"data":[],"next_cursor":"y"}`)
		case "y":
			_, _ = io.WriteString(w, `{"data":[{"id":"c"}],"next_cursor":null}`)
		}
	})
	list := c.Tenant("acme").Events.List(client.EventFilter{Type: "order.*"})
	for range 2 { // a list may be read again
		var ids []string
		for e, err := range list.All(t.Context()) {
			require.NoError(t, err)
			ids = append(ids, e.ID)
		}
		require.Equal(t, []string{"a", "b", "c"}, ids)
	}
	require.Equal(t, []string{"limit=250&type=order.%2A", "cursor=x&limit=250&type=order.%2A", "cursor=y&limit=250&type=order.%2A"}, asked[:3])
	asked = nil
	for range list.All(t.Context()) {
		break
	}
	require.Len(t, asked, 1)

	broken := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	n := 0
	for _, err := range broken.Tenants("").All(t.Context()) {
		n++
		require.Error(t, err)
	}
	require.Equal(t, 1, n)
}

// A payload that is a json.RawMessage is posted byte for byte, and nothing else can come in with it.
func TestPayloads(t *testing.T) {
	t.Parallel()
	var bodies, keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		bodies, keys = append(bodies, string(must(io.ReadAll(r.Body)))), append(keys, r.Header.Get("Idempotency-Key"))
		_, _ = io.WriteString(w, `{"events":[]}`)
	})
	events := c.Tenant("acme").Events
	raw := client.EventInput{Type: "a<b", Payload: json.RawMessage("{ \"n\": 1.0 }")}
	_, err := events.Post(t.Context(), raw, client.IdempotencyKey("once"))
	require.NoError(t, err)
	_, err = events.PostBatch(t.Context(), []client.EventInput{raw, {Type: "b", Payload: []string{"<"}}})
	require.NoError(t, err)
	require.Equal(t, []string{
		`{"type":"a<b","payload":{ "n": 1.0 }}`,
		`{"events":[{"type":"a<b","payload":{ "n": 1.0 }},{"type":"b","payload":["<"]}]}`,
	}, bodies)
	require.Equal(t, []string{"once", ""}, keys)
	for _, bad := range []any{json.RawMessage(`1,"endpoint_ids":[]`), json.RawMessage(""), func() {}} {
		_, err := events.PostBatch(t.Context(), []client.EventInput{raw, {Type: "b", Payload: bad}})
		require.ErrorContains(t, err, "event 1: ")
	}
	require.Len(t, bodies, 2)
}

// A change can set fields back to their defaults.
func TestReset(t *testing.T) {
	t.Parallel()
	body := ""
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body = string(must(io.ReadAll(r.Body)))
		_, _ = io.WriteString(w, `{"auto_disable":false,"new":[1]}`)
	})
	e, err := c.Tenant("acme").Endpoints.Reset(t.Context(), "ep_1", "timeout", "headers")
	require.NoError(t, err)
	require.False(t, e.AutoDisable.Enabled)
	require.JSONEq(t, `{"timeout":null,"headers":null}`, body)
}

func TestFromEnvironment(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"name":"`+r.Header.Get("Authorization")+`"}]}`)
	}))
	defer server.Close()
	t.Setenv("EVERPOST_URL", server.URL)
	t.Setenv("EVERPOST_KEY", "evk_x")
	all, err := must(client.FromEnvironment()).RetryPolicies(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Bearer evk_x", all[0].Name)
}

// What a caller's own transport says is the cause.
func TestTransport(t *testing.T) {
	t.Parallel()
	reason := errors.New("closed")
	c := must(client.New(client.Config{URL: "http://everpost.example", Transport: roundTrip(func() error { return reason })}))
	_, err := c.RetryPolicies(t.Context())
	require.ErrorIs(t, err, reason)
	require.EqualError(t, err, "no answer from http://everpost.example: closed")
}

type roundTrip func() error

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return nil, f() }
