package api

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// RequestKeys stores requests with an Idempotency-Key. Every method of the stores with an Actor writes the actor's key in the transaction
// of the change, and returns an error without a change if another request has written it.
type RequestKeys interface {
	// Request returns the earlier request with the key; nil if there is none.
	Request(ctx context.Context, k *webhook.RequestKey) (*webhook.KeptRequest, error)
	// KeepAnswer stores the answer to a request after its change. It returns false if another request has the key, which is only possible for
	// a request that has changed nothing.
	KeepAnswer(ctx context.Context, k *webhook.RequestKey, a webhook.KeptAnswer) (kept bool, err error)
}

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotent-Replayed"

	// maxKeptAnswer is the largest answer that is kept, in bytes. An endpoint's is the largest, at about half of it.
	maxKeptAnswer = 256 << 10
)

// keying is what an operation does with an Idempotency-Key.
type keying uint8

const (
	keyRefused keying = iota // it changes nothing, is the same when repeated, or is not to be repeated
	keyKept                  // the request is carried out once, and its answer kept
	keyOfEvent               // the same, as a part of storing the events
)

// keying returns what the operation does with an Idempotency-Key.
func (r route) keying() keying {
	switch {
	case r.method != http.MethodPost:
		return keyRefused
	case r.postsEvents():
		return keyOfEvent
	}
	switch r.id {
	case "testEndpoint", "previewReplay", "previewRetryPolicy":
		return keyRefused
	}
	return keyKept
}

// answersSecret reports whether an answer of the operation holds a secret.
func (r route) answersSecret() bool {
	switch r.id {
	case "createKey", "createEndpoint", "rotateEndpointSecret", "createConsoleLink", "createLogInLink":
		return true
	}
	return false
}

// handle carries the request out, or answers it as an earlier request with the same Idempotency-Key.
func (s *Server) handle(c call) error {
	key, err := idempotencyKey(c.Request().Header)
	if err != nil {
		return err
	}
	kind := c.route.keying()
	if key == "" || kind == keyOfEvent {
		return c.route.handle(s, c)
	}
	if kind == keyRefused {
		return webhook.Invalid(idempotencyHeader, "is not supported here: "+whyRefused(c.route)+"; leave the header out")
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	c.read = &text
	c.once = webhook.NewRequestKey(c.tenant, c.callerID(), c.route.method, c.Request().URL.Path, key, text)
	if !s.keys.enter(c.once.ID) {
		return errUnderWay()
	}
	defer s.keys.leave(c.once.ID)
	return s.handleOnce(c)
}

// whyRefused is why an operation takes no Idempotency-Key.
func whyRefused(r route) string {
	switch {
	case r.method == http.MethodGet || r.id == "previewReplay" || r.id == "previewRetryPolicy":
		return "the request changes nothing"
	case r.id == "testEndpoint":
		return "each test is a request to the endpoint"
	}
	return r.method + " has the same effect when it is repeated"
}

// callerID identifies the key or the link to the console.
func (c call) callerID() [16]byte {
	if !c.from.Link.IsZero() {
		return c.from.Link
	}
	return c.key.ID
}

// handleOnce carries a request with a key out, unless an earlier one has it.
func (s *Server) handleOnce(c call) error {
	ctx := c.Request().Context()
	earlier, err := s.config.RequestKeys.Request(ctx, c.once)
	if err != nil {
		return err
	}
	if earlier != nil {
		return c.repeat(earlier)
	}
	refusal := c.route.handle(s, c)
	if refusal == nil || c.Response().Committed {
		return refusal
	}
	// The refusal may be due to a request with the same key in another process, which has made the change meanwhile.
	if earlier, err = s.config.RequestKeys.Request(ctx, c.once); err == nil && earlier != nil {
		return c.repeat(earlier)
	}
	return refusal
}

// repeat answers as the earlier request.
func (c call) repeat(earlier *webhook.KeptRequest) error {
	switch {
	case earlier.Body != c.once.Body:
		return &webhook.Error{Code: webhook.CodeMismatch, Message: "an earlier request with this Idempotency-Key had another body"}
	case earlier.Answer.Status != 0:
		c.Response().Header().Set(replayedHeader, "true")
		return c.send(earlier.Answer.Status, earlier.Answer.Text)
	case earlier.Age < webhook.RequestUnderWay:
		return errUnderWay()
	}
	return &repeatError{id: earlier.Subject}
}

// keepAnswer stores the answer to a request with a key, before it is sent. If that fails, a repetition is refused.
// CodeConflict: another request has the key.
func (c call) keepAnswer(status int, text []byte) error {
	if c.once == nil || status >= http.StatusMultipleChoices || len(text) > maxKeptAnswer {
		return nil
	}
	ctx := context.WithoutCancel(c.Request().Context())
	kept, err := c.server.config.RequestKeys.KeepAnswer(ctx, c.once, webhook.KeptAnswer{Status: status, Text: text, Secret: c.route.answersSecret()})
	switch {
	case err != nil:
		c.server.config.Logger.LogAttrs(ctx, slog.LevelWarn, "the answer to a request with an Idempotency-Key was not kept",
			slog.String("request_id", requestID(c)), slog.String("route", c.Path()), slog.Any("error", err))
	case !kept:
		return errUnderWay()
	}
	return nil
}

func errUnderWay() error {
	return &webhook.Error{
		Code: webhook.CodeConflict, Message: "a request with this Idempotency-Key is under way: repeat this one when it has been answered",
		RetryAfter: time.Second,
	}
}

// repeatError refuses a repetition whose first answer is not kept, or no more.
type repeatError struct{ id string }

func (e *repeatError) Error() string {
	text := "a request with this Idempotency-Key was carried out, and its answer is not kept: those with a secret are for " +
		strconv.Itoa(int(webhook.SecretAnswersKept.Minutes())) + " minutes"
	if e.id != "" {
		text += "; it was about " + e.id
	}
	return text
}

// alreadyCreated is the class of repeatError.
func alreadyCreated() class {
	return class{http.StatusConflict, client.CodeAlreadyCreated, "The request was carried out before"}
}

// requestsUnderWay has the keys of the requests that this process is carrying out.
type requestsUnderWay struct {
	mu   sync.Mutex
	keys map[[32]byte]struct{}
}

// enter returns false if a request with the key is under way.
func (u *requestsUnderWay) enter(id [32]byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, there := u.keys[id]; there {
		return false
	}
	u.keys[id] = struct{}{}
	return true
}

func (u *requestsUnderWay) leave(id [32]byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.keys, id)
}

// idempotencyKey returns the header's value, or "" if it is absent.
func idempotencyKey(h http.Header) (string, error) {
	values, given := h[idempotencyHeader]
	if !given {
		return "", nil
	}
	key := values[0]
	if len(values) != 1 || key == "" || len(key) > webhook.MaxIdempotencyKey || !printableASCII(key) {
		return "", webhook.Invalid(idempotencyHeader,
			"must be given once and be 1 to "+strconv.Itoa(webhook.MaxIdempotencyKey)+" printable ASCII characters")
	}
	return key, nil
}

func printableASCII(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
