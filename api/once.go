package api

import (
	"github.com/everpost/everpost/internal/webhook"
)

// handle carries a request out, or answers it as an earlier one with the same Idempotency-Key.
func (k *requestKeys) handle(c call, handle func(call) error) error {
	key, err := idempotencyKey(c.Request().Header)
	if err != nil {
		return err
	}
	kind := c.route.keying()
	if key == "" || kind == keyOfEvent {
		return handle(c)
	}
	if kind == keyRefused {
		return webhook.Invalid(idempotencyHeader, "is not supported here: "+c.route.whyKeyRefused()+"; leave the header out")
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	c.read = &text
	c.once = webhook.NewRequestKey(c.tenant, c.callerID(), c.route.method, c.Request().URL.Path, key, text)
	if !k.enter(c.once.ID) {
		return errUnderWay()
	}
	defer k.leave(c.once.ID)
	return k.handleOnce(c, handle)
}

// handleOnce carries a request with a key out, unless an earlier one has it.
func (k *requestKeys) handleOnce(c call, handle func(call) error) error {
	ctx := c.Request().Context()
	earlier, err := k.store.Request(ctx, c.once)
	if err != nil {
		return err
	}
	if earlier != nil {
		return c.repeat(earlier)
	}
	refusal := handle(c)
	if refusal == nil || c.Response().Committed {
		return refusal
	}
	// The refusal may be due to a request with the same key in another process, which has made the change meanwhile.
	if earlier, err = k.store.Request(ctx, c.once); err == nil && earlier != nil {
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

// callerID identifies the key or the link to the console.
func (c call) callerID() [16]byte {
	if !c.from.Link.IsZero() {
		return c.from.Link
	}
	return c.key.ID
}
