package client_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/openapitest"
)

// document is the API's document.
var document = sync.OnceValue(func() *openapitest.Document {
	text, err := os.ReadFile(filepath.Join("..", "api", "openapi.yaml"))
	if err != nil {
		panic(err)
	}
	d, err := openapitest.Parse(text)
	if err != nil {
		panic(err)
	}
	return d
})

// contractServer answers each request with the example of its operation. It records the operation and what is wrong with the request.
type contractServer struct {
	called string
	wrong  error
}

func (s *contractServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := document()
	o, found := d.Find(r.Method, r.URL.Path)
	if !found {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	s.called = o.ID
	if body, _ := io.ReadAll(r.Body); len(body) > 0 {
		value := any(nil)
		if s.wrong = json.Unmarshal(body, &value); s.wrong == nil {
			s.wrong = d.CheckValue(value, "paths", o.Path, strings.ToLower(o.Method), "requestBody", "content", "application/json", "schema")
		}
	}
	status, answer := exampleOf(o)
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// exampleOf returns the status and the example of the operation's answer, if all goes well.
func exampleOf(o openapitest.Operation) (status int, text []byte) {
	d := document()
	for status = http.StatusOK; status < http.StatusMultipleChoices; status++ {
		answer := d.In(o, "responses", strconv.Itoa(status))
		if answer == nil {
			continue
		}
		media := d.Of(answer, "content", "application/json")
		example := d.Of(media, "example")
		if several, ok := d.Of(media, "examples").(map[string]any); ok {
			for _, one := range several {
				example = d.Of(one, "value")
			}
		}
		if example != nil {
			text, _ = json.Marshal(example)
		}
		return status, text
	}
	panic("no answer of " + o.ID)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// page is a page as the API encodes it.
func page[T any](ctx context.Context, l client.List[T]) (any, error) {
	p, err := l.Page(ctx, client.PageOptions{Limit: 10})
	shown := map[string]any{"data": p.Data, "next_cursor": nil}
	if p.NextCursor != "" {
		shown["next_cursor"] = p.NextCursor
	}
	return shown, err
}

func some[T any](v T, err error) (any, error) { return v, err }
func none(err error) (any, error)             { return nil, err }

// calls are a call of each operation of the API.
func calls(ctx context.Context, c *client.Client) map[string]func() (any, error) {
	const id = "dlv_06f4q2m0hhf5dd6cs7m9k2q8xw"
	acme, at := c.Tenant("acme"), time.Date(2026, 1, 31, 9, 30, 0, 5e8, time.UTC)
	event := client.EventInput{Type: "order.paid", Payload: map[string]any{"order": 17}, ExternalID: "order-17", DeliverAt: at, EndpointIDs: []string{
		"ep_06f4q2m0hhf5dd6cs7m9k2q8xw",
	}, Version: 1, Headers: map[string]string{"X-Region": "eu-west"}, Tags: []string{"order:17"}}
	replay := client.ReplayInput{
		Source: client.ReplayEvents, EndpointID: event.EndpointIDs[0], EventType: "order.*", Since: at, Until: at, Unmatched: true, RatePerMinute: 60,
		Ramp: new(false),
	}
	fields := client.EndpointFields{
		URL: "https://example.com", EventTypes: []string{"order.*"}, Filter: json.RawMessage(`{"type":"order.paid"}`), Ordering: &client.Ordering{By: "number"},
		Description: new(""), Headers: map[string]string{},
		Timeout: "auto", MaxInFlight: 1, RateLimit: 0.5, RetryPolicy: &client.RetryPolicy{Preset: "fast", AmbiguousDelays: []string{}},
		AutoDisable:    &client.AutoDisable{},
		CircuitBreaker: &client.CircuitBreakerInput{Enabled: new(false)}, SuccessStatuses: []int{302}, AutoReplay: new(true), Signature: "v1",
		Auth: &client.AuthInput{Type: "bearer", Token: "x"}, Certificate: &client.CertificateInput{MaxTLS: "1.2"}, PayloadFormat: "raw",
		TraceContext: new(false), Metadata: map[string]string{"a": "b"},
	}
	tenant := client.TenantInput{
		Name: new("Acme"), Contact: new("ops"), Metadata: map[string]string{}, Limits: &client.LimitsInput{Burst: 5},
		Retention: &client.RetentionInput{Payloads: "72h"}, RetryPolicy: &client.RetryPolicy{Preset: "fast"},
	}
	notifications := client.NotificationsInput{PortalURL: "https://example.com", Channels: []client.NotificationChannelInput{
		{ID: "nch_06f4q2m0hhf5dd6cs7m9k2q8xw", Kind: "email", Target: "ops@example.com", On: []string{"failing"}, EndpointIDs: event.EndpointIDs},
	}}
	eventType := client.EventTypeInput{
		Description: new("Paid"), Group: new("Orders"), State: new("deprecated"), ReplacedBy: new("order.settled"), Validation: new("warn"),
		OrderingKey: new("/order"), Versions: []client.EventTypeVersionInput{
			{Version: 1, Schema: json.RawMessage(`{}`), Examples: []json.RawMessage{json.RawMessage(`1`)}},
		},
	}
	secret := client.SecretInput{Secret: "whsec_x", SecretEncoding: "text"}
	key := client.IdempotencyKey("once")
	return map[string]func() (any, error){
		"listAudit":                    func() (any, error) { return page(ctx, c.Audit(client.AuditFilter{Tenant: "acme", Since: at})) },
		"getAttention":                 func() (any, error) { return some(c.Attention(ctx)) },
		"getTenantAttention":           func() (any, error) { return some(acme.Attention(ctx)) },
		"getStats":                     func() (any, error) { return some(c.Stats(ctx, client.StatsQuery{Step: "1h"})) },
		"listTenants":                  func() (any, error) { return page(ctx, c.Tenants("ac")) },
		"putTenant":                    func() (any, error) { return some(acme.Put(ctx, tenant)) },
		"updateTenant":                 func() (any, error) { return some(acme.Update(ctx, tenant)) },
		"getTenant":                    func() (any, error) { return some(acme.Get(ctx)) },
		"deleteTenant":                 func() (any, error) { return none(acme.Delete(ctx)) },
		"getTenantStats":               func() (any, error) { return some(acme.Stats(ctx, client.StatsQuery{EndpointID: "ep_1"})) },
		"createConsoleLink":            func() (any, error) { return some(acme.ConsoleLink(ctx, client.ConsoleLinkInput{Scope: "view"}, key)) },
		"createLogInLink":              func() (any, error) { return some(c.LogInLink(ctx, key)) },
		"getNotifications":             func() (any, error) { return some(acme.Notifications(ctx)) },
		"putNotifications":             func() (any, error) { return some(acme.PutNotifications(ctx, notifications)) },
		"getInstallationNotifications": func() (any, error) { return some(c.Notifications(ctx)) },
		"putInstallationNotifications": func() (any, error) { return some(c.PutNotifications(ctx, notifications)) },
		"listEventTypes": func() (any, error) {
			return page(ctx, c.EventTypes().List(client.EventTypeFilter{Group: "Orders", State: "active", Prefix: "order."}))
		},
		"getEventType": func() (any, error) { return some(c.EventTypes().Get(ctx, "order.paid")) },
		"putEventType": func() (any, error) { return some(c.EventTypes().Put(ctx, "order.paid", eventType, client.IfAbsent())) },
		"updateEventType": func() (any, error) {
			return some(c.EventTypes().Update(ctx, "order.paid", eventType, client.IfMatch(`"1"`)))
		},
		"deleteEventType": func() (any, error) { return none(c.EventTypes().Delete(ctx, "order.paid", client.IfMatch(`"1"`))) },
		"importEventTypes": func() (any, error) {
			in := client.EventTypeImportInput{Schemas: map[string]json.RawMessage{"order.paid": json.RawMessage(`{}`)}, DryRun: true, ReplaceAll: true}
			return some(c.EventTypes().Import(ctx, in, key))
		},
		"exportEventTypes": func() (any, error) { return some(c.EventTypes().Export(ctx)) },
		"createKey": func() (any, error) {
			return some(acme.Keys.Create(ctx, client.KeyInput{Scope: client.ScopeAdmin, ExpiresAt: at}, key))
		},
		"listKeys":  func() (any, error) { return page(ctx, acme.Keys.List()) },
		"revokeKey": func() (any, error) { return none(acme.Keys.Revoke(ctx, "key_1")) },
		"createEndpoint": func() (any, error) {
			return some(acme.Endpoints.Create(ctx, client.EndpointInput{EndpointFields: fields, SecretInput: secret}, key))
		},
		"listEndpoints": func() (any, error) { return page(ctx, acme.Endpoints.List()) },
		"listEndpointConditions": func() (any, error) {
			return page(ctx, acme.Endpoints.Conditions(client.ConditionFilter{Trouble: new(true)}))
		},
		"getEndpoint":    func() (any, error) { return some(acme.Endpoints.Get(ctx, "ep_1")) },
		"updateEndpoint": func() (any, error) { return some(acme.Endpoints.Update(ctx, "ep_1", fields)) },
		"deleteEndpoint": func() (any, error) { return none(acme.Endpoints.Delete(ctx, "ep_1")) },
		"pauseEndpoint": func() (any, error) {
			return some(acme.Endpoints.Pause(ctx, "ep_1", client.PauseInput{Reason: "planned maintenance"}, key))
		},
		"resumeEndpoint": func() (any, error) {
			return some(acme.Endpoints.Resume(ctx, "ep_1", client.ResumeInput{RatePerMinute: 60}, key))
		},
		"getRelease": func() (any, error) { return some(acme.Endpoints.Release(ctx, "ep_1")) },
		"updateRelease": func() (any, error) {
			return some(acme.Endpoints.ChangeRelease(ctx, "ep_1", client.ReleaseChange{State: client.ReleaseStopped, RatePerMinute: 60}))
		},
		"closeEndpointCircuit": func() (any, error) { return some(acme.Endpoints.CloseCircuit(ctx, "ep_1", key)) },
		"getEndpointHealth":    func() (any, error) { return some(acme.Endpoints.Health(ctx, "ep_1")) },
		"testEndpoint": func() (any, error) {
			return some(acme.Endpoints.Test(ctx, "ep_1", client.TestInput{Payload: json.RawMessage("[1.0]")}))
		},
		"getEndpointSecret": func() (any, error) { return some(acme.Endpoints.Secret(ctx, "ep_1")) },
		"rotateEndpointSecret": func() (any, error) {
			return some(acme.Endpoints.RotateSecret(ctx, "ep_1", client.RotateInput{Grace: "0s", SecretInput: secret}, key))
		},
		"postEvent": func() (any, error) { return some(acme.Events.Post(ctx, event, key)) },
		"postEventBatch": func() (any, error) {
			return some(acme.Events.PostBatch(ctx, []client.EventInput{event, {Type: "a", Payload: 1}}, key))
		},
		"listEvents": func() (any, error) {
			return page(ctx, acme.Events.List(client.EventFilter{Type: "order.*", Tag: "order:17", Until: at}))
		},
		"getEvent": func() (any, error) { return some(acme.Events.Get(ctx, "evt_1")) },
		"getEventPayload": func() (any, error) {
			text, err := acme.Events.Payload(ctx, "evt_1")
			return json.RawMessage(text), err
		},
		"listEventAttempts":    func() (any, error) { return page(ctx, acme.Events.Attempts("evt_1")) },
		"listEndpointAttempts": func() (any, error) { return page(ctx, acme.Endpoints.Attempts("ep_1")) },
		"cancelEvent":          func() (any, error) { return some(acme.Events.Cancel(ctx, "evt_1", "by hand", key)) },
		"eraseEventPayload":    func() (any, error) { return none(acme.Events.ErasePayload(ctx, "evt_1", true)) },
		"eraseEventPayloads":   func() (any, error) { return some(acme.Events.ErasePayloads(ctx, []string{"a"}, true, key)) },
		"listDeliveries": func() (any, error) {
			return page(ctx, acme.Deliveries.List(client.DeliveryFilter{States: []client.DeliveryState{client.DeliveryHeld}}))
		},
		"getDelivery":        func() (any, error) { return some(acme.Deliveries.Get(ctx, id)) },
		"listAttempts":       func() (any, error) { return page(ctx, acme.Deliveries.Attempts(id)) },
		"cancelDelivery":     func() (any, error) { return some(acme.Deliveries.Cancel(ctx, id, "by hand", key)) },
		"retryDelivery":      func() (any, error) { return some(acme.Deliveries.Retry(ctx, id, key)) },
		"rescheduleDelivery": func() (any, error) { return some(acme.Deliveries.Reschedule(ctx, id, at, key)) },
		"replayDelivery":     func() (any, error) { return some(acme.Deliveries.Replay(ctx, id, "", key)) },
		"listDeadLetters":    func() (any, error) { return page(ctx, acme.DeadLetters.List(client.DeadLetterFilter{Status: 503})) },
		"groupDeadLetters":   func() (any, error) { return some(acme.DeadLetters.Groups(ctx, client.DeadLetterFilter{})) },
		"replayDeadLetter":   func() (any, error) { return some(acme.DeadLetters.Replay(ctx, id, "", key)) },
		"discardDeadLetter":  func() (any, error) { return some(acme.DeadLetters.Discard(ctx, id, "", key)) },
		"createReplay":       func() (any, error) { return some(acme.Replays.Create(ctx, replay, key)) },
		"listReplays":        func() (any, error) { return page(ctx, acme.Replays.List()) },
		"listEventMatches":   func() (any, error) { return page(ctx, acme.Events.Matches("evt_1")) },
		"testFilter": func() (any, error) {
			return some(acme.TestFilter(ctx, client.FilterTest{
				Filter: fields.Filter, EventID: "evt_06f4q2m0hhf5dd6cs7m9k2q8xw",
				Event: &client.FilterTestEvent{Type: "order.paid", Payload: json.RawMessage("1.0"), ExternalID: "x", Tags: []string{"a"}},
			}))
		},
		"previewReplay": func() (any, error) { return some(acme.Replays.Preview(ctx, replay)) },
		"getReplay":     func() (any, error) { return some(acme.Replays.Get(ctx, "rpl_1")) },
		"updateReplay":  func() (any, error) { return some(acme.Replays.SetRate(ctx, "rpl_1", 60)) },
		"pauseReplay":   func() (any, error) { return some(acme.Replays.Pause(ctx, "rpl_1", key)) },
		"resumeReplay":  func() (any, error) { return some(acme.Replays.Resume(ctx, "rpl_1", key)) },
		"cancelReplay":  func() (any, error) { return some(acme.Replays.Cancel(ctx, "rpl_1", key)) },
		"listRetryPolicies": func() (any, error) {
			all, err := c.RetryPolicies(ctx)
			return map[string]any{"data": all, "next_cursor": nil}, err
		},
		"previewRetryPolicy": func() (any, error) { return some(c.PreviewRetryPolicy(ctx, &client.RetryPolicy{Preset: "fast"})) },
	}
}

// There is a call for each operation. It sends what the document describes, and what it returns is all that the example of the answer has.
func TestEveryOperationHasACall(t *testing.T) {
	t.Parallel()
	served := &contractServer{}
	server := httptest.NewServer(served)
	defer server.Close()
	c := must(client.New(client.Config{URL: server.URL, Key: "key"}))
	defer c.Close()
	all := calls(t.Context(), c)
	for _, o := range document().Operations() {
		if slices.Contains([]string{"getOpenAPI", "getDocs", "getDocsPage", "exportTenant"}, o.ID) { // the last one is tested with its lines
			continue
		}
		require.Contains(t, all, o.ID)
		*served = contractServer{}
		got, err := all[o.ID]()
		require.NoError(t, err, o.ID)
		require.Equal(t, o.ID, served.called)
		require.NoError(t, served.wrong, o.ID)
		if _, example := exampleOf(o); len(example) > 0 && got != nil {
			text, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, string(example), string(text), o.ID)
		}
		delete(all, o.ID)
	}
	require.Empty(t, all, "calls of no operation")
}
