package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// TenantCalls are the calls about one tenant.
type TenantCalls struct {
	Keys        Keys
	Endpoints   Endpoints
	Events      Events
	Deliveries  Deliveries
	DeadLetters DeadLetters
	Replays     Replays

	scope
}

// Tenant returns the calls about a tenant, by its id.
func (c *Client) Tenant(id string) TenantCalls {
	s := scope{c, []string{"tenants", id}}
	return TenantCalls{
		Keys{s.at("keys")}, Endpoints{s.at("endpoints")}, Events{s.at("events")}, Deliveries{s.at("deliveries")},
		DeadLetters{s.at("dead-letters")}, Replays{s.at("replays")}, s,
	}
}

// Option is an option of one call.
type Option func(*Request)

// IdempotencyKey makes a call that may be repeated: with the same key and the same input, a repetition within 24 hours changes nothing and gets
// the first answer again. With another input it is refused as CodeMismatch, and as CodeAlreadyCreated if the answer, which holds a secret, is
// not kept any more. At most 255 printable ASCII characters.
func IdempotencyKey(key string) Option {
	return func(r *Request) { r.Header["Idempotency-Key"] = key }
}

// scope is where calls lead: a path below /v1.
type scope struct {
	c    *Client
	path []string
}

func (s scope) at(parts ...string) scope { return scope{s.c, append(slices.Clip(s.path), parts...)} }

// get reads an object.
func get[T any](ctx context.Context, s scope, query url.Values) (T, error) {
	return decoded[T](s.c.Do(ctx, Request{Method: http.MethodGet, Path: s.path, Query: query}))
}

// send sends an object, or nothing if it is nil, and returns the answer.
func send[T any](ctx context.Context, s scope, method string, body any, options ...Option) (T, error) {
	a, err := s.do(ctx, method, body, options)
	return decoded[T](a, err)
}

func (s scope) do(ctx context.Context, method string, body any, options []Option) (Answer, error) {
	r := Request{Method: method, Path: s.path, Header: map[string]string{}}
	var err error
	switch body := body.(type) {
	case nil:
	case rawBody:
		r.Body = body
	default:
		if r.Body, err = marshal(body); err != nil {
			return Answer{}, err
		}
	}
	for _, option := range options {
		option(&r)
	}
	return s.c.Do(ctx, r)
}

// remove deletes an object.
func (s scope) remove(ctx context.Context, query url.Values) error {
	_, err := s.c.Do(ctx, Request{Method: http.MethodDelete, Path: s.path, Query: query})
	return err
}

func decoded[T any](a Answer, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return Decode[T](a)
}

// rawBody is a body that is encoded.
type rawBody []byte

// withPayload encodes an object and adds a payload to it: the bytes of a json.RawMessage, or the JSON of another value. nil adds nothing.
func withPayload(object, payload any) (rawBody, error) {
	text, err := marshal(object)
	if err != nil || payload == nil {
		return text, err
	}
	raw, isRaw := payload.(json.RawMessage)
	if !isRaw {
		if raw, err = marshal(payload); err != nil {
			return nil, err
		}
	}
	if !json.Valid(raw) { // it would change the object around it
		return nil, errors.New("the payload is not JSON")
	}
	text = bytes.TrimSuffix(text, []byte("}"))
	if len(text) > 1 {
		text = append(text, ',')
	}
	return append(append(append(text, `"payload":`...), raw...), '}'), nil
}

// marshal encodes a value. It does not escape <, > and &, as the API does not.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func unmarshal(text []byte, v any) error {
	return json.Unmarshal(text, v) //nolint:wrapcheck // Decode has a word for it
}

// parameters returns a query of names and values, without those that are empty.
func parameters(pairs ...string) url.Values {
	query := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if name, value := pair[0], pair[1]; value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// instant is a time as a parameter; "" for zero.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// number is a parameter that is left out if it is 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// flag is a parameter that is left out if it is false.
func flag(set bool) string {
	if set {
		return "true"
	}
	return ""
}
