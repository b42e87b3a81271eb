package client_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
)

// answers are the types of the answers, by their schemas.
func answers() map[string]any {
	return map[string]any{
		"CatalogueType": client.EventType{}, "EventTypeVersion": client.EventTypeVersion{}, "ListedEventType": client.ListedEventType{},
		"ChangedEventType": client.ChangedEventType{}, "SchemaChange": client.SchemaChange{},
		"EventTypeImport": client.EventTypeImport{}, "ImportedEventType": client.ImportedEventType{}, "FieldError": client.FieldError{},
		"Notifications": client.Notifications{}, "NotificationChannel": client.NotificationChannel{},
		"AuditEntry": client.AuditEntry{}, "Tenant": client.Tenant{}, "Limits": client.Limits{}, "Retention": client.Retention{},
		"ExportedEvent": client.ExportedEvent{}, "DeliveryAttempt": client.DeliveryAttempt{}, "NewKey": client.Key{}, "Auth": client.Auth{},
		"ClientCertificate": client.Certificate{}, "NewEndpoint": client.Endpoint{}, "ProbedEndpoint": client.ProbedEndpoint{},
		"ResumedEndpoint": client.ResumedEndpoint{}, "ShortCondition": client.ShortCondition{}, "StatsCounts": client.StatsCounts{},
		"StatsPoint": client.StatsPoint{}, "Stats": client.Stats{}, "StatsLatency": client.StatsLatency{}, "ConsoleLink": client.ConsoleLink{},
		"Attention": client.Attention{}, "TenantAttention": client.TenantAttention{}, "TroubledTenant": client.TroubledTenant{},
		"TroubledEndpoint":  client.TroubledEndpoint{},
		"EndpointCondition": client.EndpointCondition{}, "EndpointHealth": client.EndpointHealth{}, "Secret": client.Secret{}, "Rotated": client.Rotated{},
		"CircuitBreaker": client.CircuitBreaker{}, "AutoDisable": client.AutoDisable{},
		"PreviewAttempt": client.PreviewAttempt{}, "PreviewAmbiguous": client.PreviewAmbiguous{}, "Preview": client.Preview{}, "Preset": client.Preset{},
		"AcceptedBatch": client.AcceptedBatch{}, "PayloadRemoval": client.PayloadRemoval{}, "ErasedPayloads": client.ErasedPayloads{},
		"CancelledEvent": client.CancelledEvent{}, "ListedEvent": client.ListedEvent{}, "EventOutcomes": client.EventOutcomes{},
		"Explanation": client.Explanation{}, "Action": client.Action{}, "Event": client.Event{}, "AcceptedEvent": client.AcceptedEvent{},
		"DeliveryStub": client.DeliveryStub{}, "Ordering": client.Ordering{},
		"Outcome": client.Outcome{}, "Delivery": client.Delivery{}, "AttemptShape": client.Attempt{},
		"AttemptTimes": client.AttemptTimes{}, "ReplayPreview": client.ReplayPreview{}, "Release": client.Release{},
		"DeadLetterGroups": client.DeadLetterGroups{}, "DeadLetterGroup": client.DeadLetterGroup{}, "Replay": client.Replay{}, "Problem": client.Problem{},
		"FilterResult": client.FilterResult{}, "FilterFailure": client.FilterFailure{}, "EventMatch": client.EventMatch{},
	}
}

// others are schemas without a type of their own, and why.
func others() map[string]string {
	return map[string]string{
		"Key": "NewKey without its text", "Endpoint": "NewEndpoint without its secret", "EndpointShape": "a part", "EventShape": "a part",
		"EndpointConditionShape": "a part",
		"EventTypeShape":         "a part",
		"Attempt":                "AttemptShape of a delivery", "TestAttempt": "AttemptShape of none", "RetryPolicyFields": "a request, too",
		"RetryPolicy": "a request, too", "ExportLine": "a generic type", "StatsAttempts": "a map: there may be more",
		"StatsEnded": "a map", "Metadata": "a map", "Headers": "a map",
		"Filter": "a request, too, of any JSON",
	}
}

// requests are the types of the bodies of requests, by their schemas.
func requests() map[string]any {
	return map[string]any{
		"TenantInput": client.TenantInput{}, "TenantChange": client.TenantInput{}, "LimitsInput": client.LimitsInput{},
		"RetentionInput": client.RetentionInput{},
		"KeyInput":       client.KeyInput{}, "EndpointFields": client.EndpointFields{}, "EndpointInput": client.EndpointInput{},
		"EndpointChange": client.EndpointFields{}, "ClientCertificateInput": client.CertificateInput{}, "ConsoleLinkInput": client.ConsoleLinkInput{},
		"TestInput": client.TestInput{}, "RotateInput": client.RotateInput{}, "CircuitBreakerInput": client.CircuitBreakerInput{},
		"AutoDisableInput": client.AutoDisable{}, "RetryPolicyFields": client.RetryPolicy{}, "EventInput": client.EventInput{},
		"ReplayInput": client.ReplayInput{}, "FilterTest": client.FilterTest{},
	}
}

// enums are the values of the types that list theirs.
func enums() map[string]any {
	return map[string]any{
		"DeliveryState": []client.DeliveryState{
			client.DeliveryPending, client.DeliveryRetrying, client.DeliveryHeld, client.DeliveryDelivered, client.DeliveryDeadLettered,
			client.DeliveryCancelled, client.DeliveryDiscarded,
		},
		"ReplayState":  []client.ReplayState{client.ReplayQueued, client.ReplayRunning, client.ReplayPaused, client.ReplayCompleted, client.ReplayCancelled},
		"ReplaySource": []client.ReplaySource{client.ReplayDeadLetters, client.ReplayEvents},
		"Decision":     []client.Decision{client.DecisionDelivered, client.DecisionRetry, client.DecisionPermanent},

		"KeyInput.properties.scope":                          []client.Scope{client.ScopeIngest, client.ScopeAdmin},
		"EndpointShape.properties.state":                     []client.EndpointState{client.EndpointActive, client.EndpointPaused, client.EndpointDisabled},
		"EndpointHealth.properties.circuit.properties.state": []client.CircuitState{client.CircuitClosed, client.CircuitHalfOpen, client.CircuitOpen},
	}
}

// schema is an object's schema with all of its parts.
type schema struct {
	properties map[string]any
	required   []any
}

func schemaOf(node any) schema {
	d := document()
	s := schema{properties: map[string]any{}}
	parts, _ := d.Of(node, "allOf").([]any)
	for _, part := range parts {
		of := schemaOf(part)
		maps.Copy(s.properties, of.properties)
		s.required = append(s.required, of.required...)
	}
	own, _ := d.Of(node, "properties").(map[string]any)
	maps.Copy(s.properties, own)
	required, _ := d.Of(node, "required").([]any)
	s.required = append(s.required, required...)
	return s
}

// field is a field of a type in JSON.
type field struct {
	of       reflect.Type
	optional bool // it may be absent
}

func fieldsOf(of reflect.Type) map[string]field {
	fields := map[string]field{}
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(fields, fieldsOf(f.Type))
		case name != "-":
			fields[name] = field{f.Type, strings.Contains(options, "omit")}
		}
	}
	return fields
}

// Each field of an answer in the document is a field of its type, and the other way round. They agree on its kind, on whether it may be null,
// and on whether it may be absent.
func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	schemas := document().At("components", "schemas").(map[string]any)
	for name, of := range answers() {
		require.Contains(t, schemas, name)
		compare(t, name, schemas[name], reflect.TypeOf(of))
	}
	for name, node := range schemas {
		input := strings.HasSuffix(name, "Input") || strings.HasSuffix(name, "Change") || requests()[name] != nil || name == "PayloadErasure"
		if len(schemaOf(node).properties) > 0 && !input && !strings.HasSuffix(name, "Page") && others()[name] == "" {
			require.Contains(t, answers(), name, "an answer without a type")
		}
	}
}

// compare compares the fields of a type with an object's schema.
func compare(t *testing.T, place string, node any, of reflect.Type) {
	t.Helper()
	s, fields := schemaOf(node), fieldsOf(of)
	for _, name := range []string{"secret", "secret_read", "secret_warning"} { // of a new endpoint, in the type of all
		if s.properties[name] == nil {
			delete(fields, name)
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(s.properties)), slices.Sorted(maps.Keys(fields)), place)
	for name, f := range fields {
		if of != reflect.TypeFor[client.AutoDisable]() { // requests have it, too
			secret := place == "NewEndpoint" && name == "secret" || place == "NewKey" && name == "key" // only these answers have it
			require.Equal(t, slices.Contains(s.required, any(name)), !f.optional || secret, "%s.%s: absent", place, name)
		}
		compareValue(t, place+"."+name, s.properties[name], f)
	}
}

// compareValue compares a value's type with its schema.
func compareValue(t *testing.T, place string, node any, f field) {
	t.Helper()
	of, kinds := f.of, kindsOf(node)
	null := slices.Contains(kinds, "null")
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "null" })
	switch {
	case of == reflect.TypeFor[json.RawMessage]():
		return
	case of == reflect.TypeFor[client.Time]():
		require.Equal(t, []string{"string"}, kinds, place)
		return
	case of == reflect.TypeFor[client.AutoDisable]():
		require.Equal(t, []string{"boolean", "object"}, kinds, place)
		return
	case of.Kind() == reflect.Map:
		require.Equal(t, []string{"object"}, kinds, place)
		return
	}
	pointer := of.Kind() == reflect.Pointer
	require.Equal(t, null || pointer && f.optional, pointer, "%s: null", place)
	if pointer {
		of = of.Elem()
	}
	require.Equal(t, []string{kindOf(of)}, kinds, place)
	switch d := document(); of.Kind() { //nolint:exhaustive // what has parts
	case reflect.Struct:
		if of == reflect.TypeFor[client.RetryPolicy]() { // checked as a request
			return
		}
		compare(t, place, notNull(node), of)
	case reflect.Slice:
		compareValue(t, place, d.Of(notNull(node), "items"), field{of: of.Elem()})
	}
}

// kindOf is the kind of a type in JSON.
func kindOf(of reflect.Type) string {
	switch of.Kind() { //nolint:exhaustive // the kinds in use
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	}
	return "object"
}

// choices are the schemas of which a value has one.
func choices(node any) []any {
	d := document()
	some, _ := d.Of(node, "anyOf").([]any)
	one, _ := d.Of(node, "oneOf").([]any)
	return append(some, one...)
}

// notNull is the schema of a value that is not null.
func notNull(node any) any {
	for _, choice := range choices(node) {
		if !slices.Equal(kindsOf(choice), []string{"null"}) {
			return choice
		}
	}
	return document().Of(node)
}

// kindsOf returns the kinds that a schema allows, in order.
func kindsOf(node any) []string {
	d, found := document(), map[string]bool{}
	for _, choice := range choices(node) {
		for _, kind := range kindsOf(choice) {
			found[kind] = true
		}
	}
	kinds, several := d.Of(node, "type").([]any)
	if !several {
		kinds = []any{d.Of(node, "type")}
	}
	for _, kind := range kinds {
		if text, ok := kind.(string); ok {
			found[text] = true
		}
	}
	values, _ := d.Of(node, "enum").([]any)
	schema, _ := d.Of(node).(map[string]any)
	if value, ok := schema["const"]; ok {
		values = append(values, value)
	}
	for _, value := range values {
		found[kindOfValue(value)] = true
	}
	if schema["allOf"] != nil || schema["properties"] != nil {
		found["object"] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func kindOfValue(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	}
	return "integer"
}

// Each field of a request in the document is a field of its type, and the other way round.
func TestRequestsAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	schemas := document().At("components", "schemas").(map[string]any)
	for name, of := range requests() {
		want, got := schemaOf(schemas[name]).properties, fieldsOf(reflect.TypeOf(of))
		if want["payload"] != nil {
			got["payload"] = field{} // its bytes are put in as they are
		}
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), name)
	}
	auth := map[string]bool{}
	for _, one := range choices(schemas["AuthInput"]) {
		for name := range schemaOf(one).properties {
			auth[name] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(auth)), slices.Sorted(maps.Keys(fieldsOf(reflect.TypeFor[client.AuthInput]()))))
}

// The named values are those of the document.
func TestNamedValues(t *testing.T) {
	t.Parallel()
	for place, values := range enums() {
		node := document().At(append([]string{"components", "schemas"}, strings.Split(place, ".")...)...)
		text, err := json.Marshal(values)
		require.NoError(t, err)
		want, err := json.Marshal(document().Of(node, "enum"))
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(text), place)
	}
}
