package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
)

// A form that is sent twice, by a double click or by going back, makes one thing: its field "once", which is new on each page, is the
// Idempotency-Key, together with what was typed. What was typed is part of it, so that a form can be sent again with other values.

const (
	// sentTwiceWait is how long the second of two requests waits for the first one's answer, which it repeats.
	sentTwiceWait  = 2 * time.Second
	sentTwicePause = 100 * time.Millisecond
)

// createPlain is create with a body in which texts are as they are: see plainJSON.
func (p *page) createPlain(into, body any, parts ...string) error {
	text, err := plainJSON(body)
	if err != nil {
		return err
	}
	return p.create(into, text, parts...)
}

// create makes something through the API, below /v1/tenants/{tenant} of the page's tenant: once for each page with the form.
func (p *page) create(into, body any, parts ...string) error {
	api, path := p.api, p.path(parts...)
	once := p.typed.Get("once")
	if once == "" {
		return api.send(p.r.Context(), into, http.MethodPost, path, body)
	}
	typed := sha256.Sum256([]byte(p.typed.Encode()))
	api.once = "console " + base64.RawURLEncoding.EncodeToString(typed[:])
	ctx, cancel := context.WithTimeout(p.r.Context(), sentTwiceWait)
	defer cancel()
	for {
		err := api.send(p.r.Context(), into, http.MethodPost, path, body)
		known, isProblem := errors.AsType[*problem](err)
		switch {
		case !isProblem || known.Status != http.StatusConflict:
			return err
		case known.Code() == client.CodeAlreadyCreated:
			known.Detail = "this form was sent before, and what it asked for was done; a secret that it made is not shown again"
			return known
		case !known.later:
			return err
		}
		select {
		case <-ctx.Done():
			known.Detail = "this form was sent before, and that request is still under way: send it again in a moment"
			return known
		case <-time.After(sentTwicePause):
		}
	}
}
