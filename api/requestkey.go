package api

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

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

// requestKeys sees to it that a request with an Idempotency-Key is carried out once.
type requestKeys struct {
	store RequestKeys
	log   *slog.Logger

	mu       sync.Mutex
	underWay map[[32]byte]struct{} // the keys of the requests that this process is carrying out
}

func newRequestKeys(store RequestKeys, log *slog.Logger) *requestKeys {
	return &requestKeys{store: store, log: log, underWay: map[[32]byte]struct{}{}}
}

// enter returns false if a request with the key is under way.
func (k *requestKeys) enter(id [32]byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.underWay[id]; there {
		return false
	}
	k.underWay[id] = struct{}{}
	return true
}

func (k *requestKeys) leave(id [32]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.underWay, id)
}

// keep stores the answer to a request with a key, before it is sent. If that fails, a repetition is refused.
// CodeConflict: another request has the key.
func (k *requestKeys) keep(c echo.Context, key *webhook.RequestKey, a webhook.KeptAnswer) error {
	if key == nil || a.Status >= http.StatusMultipleChoices || len(a.Text) > maxKeptAnswer {
		return nil
	}
	ctx := context.WithoutCancel(c.Request().Context())
	kept, err := k.store.KeepAnswer(ctx, key, a)
	switch {
	case err != nil:
		k.log.LogAttrs(ctx, slog.LevelWarn, "the answer to a request with an Idempotency-Key was not kept",
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
