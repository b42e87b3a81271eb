package api

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/internal/webhook"
)

// Whether the body of a command may contain a reason.
const (
	withReason    = true
	withoutReason = false
)

// call is one request of an authenticated caller, or of any caller on a public route.
type call struct {
	echo.Context

	route  route
	key    webhook.Key
	from   Caller // who sends it; from outside with a key, only that
	tenant string // from the path; "" for routes without one

	proxies     trustedProxies
	bodies      *bodies
	reservation *bodyReservation // for the body; released after the response
	answer      *answerRoom      // for the response; released after it

	keys *requestKeys
	once *webhook.RequestKey // with an Idempotency-Key that is kept; nil without
	read *[]byte             // the body if it was read before the handler
}

// actor is the caller for the audit log.
func (c call) actor() webhook.Actor {
	by := webhook.Actor{
		KeyID: c.key.ID, KeyName: c.key.Name, RequestID: requestID(c), Source: c.proxies.SourceAddress(c.Request()), Request: c.once,
	}
	if c.key.Scope == webhook.ScopeOperator { // tenants see it
		by.KeyName = "an operator"
	}
	if !c.from.Link.IsZero() { // not the key that made the link: another person acts
		by.KeyID, by.KeyName, by.Name = webhook.KeyID{}, "", "console link "+c.from.Link.String()
	}
	return by
}

// pathID parses the id in the path. A malformed id is treated as one that does not exist.
func pathID[ID any](c call, parse func(string) (ID, error)) (ID, error) {
	id, err := parse(c.Param("id"))
	if err != nil {
		var none ID
		return none, webhook.NotFound(c.route.noun)
	}
	return id, nil
}

// object reads the body as a JSON object. field reads the known fields.
func (c call) object(field func(d *jsonDecoder, name string), required ...string) error {
	text, err := c.body()
	if err != nil {
		return err
	}
	return readObject(text, field, required...)
}

// reason reads the body of a command: empty, {}, or, if the command takes a reason,
// {"reason": "…"}.
func (c call) reason(taken bool) (reason string, err error) {
	text, err := c.body()
	if text == nil || err != nil {
		return "", err
	}
	return reason, readObject(text, func(d *jsonDecoder, name string) {
		if name != "reason" || !taken {
			d.unknown()
			return
		}
		if !d.null() {
			reason = readReason(d)
		}
	})
}

// noBody refuses a body other than an empty one or {}.
func (c call) noBody() error {
	_, err := c.reason(withoutReason)
	return err
}

// body reads the request's body, at most bodies.most, or that of a batch where the operation takes large ones. The caller may keep the bytes;
// their memory stays reserved until the request is answered.
func (c call) body() ([]byte, error) {
	switch {
	case c.read != nil:
		return *c.read, nil
	case c.route.takesLargeBody():
		return c.bodyUpTo(c.bodies.mostOfBatch)
	}
	return c.bodyUpTo(c.bodies.most)
}

// bodyUpTo reads the request's body, at most limit bytes. A byte order mark before it is left out (RFC 8259 section 8.1): editors
// and shells of Windows write one.
func (c call) bodyUpTo(limit int) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > int64(limit) {
		return nil, tooLarge("body", limit, r.ContentLength)
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	reader := bodyReader{
		source: http.MaxBytesReader(c.Response().Writer, r.Body, int64(limit)), length: r.ContentLength,
		reservation: c.reservation, batch: limit > c.bodies.most, pace: c.bodies.pace, connection: http.NewResponseController(c.Response().Writer),
	}
	text, err := reader.read()
	if err != nil {
		return nil, c.bodyError(err, limit)
	}
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	if len(text) == 0 {
		return nil, nil
	}
	return text, checkContentType(r.Header)
}

// bodyError returns the error for a body that could not be read. The rest of the body is not
// read: the connection is closed.
func (c call) bodyError(err error, limit int) error {
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge("body", limit, 0)
	}
	c.Response().Header().Set("Connection", "close")
	code := webhook.CodeOf(err)
	switch {
	case code == webhook.CodeRateLimited:
		c.bodies.metrics.BodyRefused(BodyOverTenant)
		return err
	case code == webhook.CodeUnavailable:
		c.bodies.metrics.BodyRefused(BodyOverProcess)
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.bodies.metrics.BodyRefused(BodyTooSlow)
		return &httpError{requestTimeout(), "the body arrived too slowly: after 2 s it must keep to 64 KiB per second, and after 30 s it must be complete"}
	}
	return webhook.Invalid("body", "could not be read to its end")
}

// send writes a JSON answer whose bytes are known.
func (c call) send(status int, text []byte) error {
	c.answer.fit(len(text))
	header := c.Response().Header()
	header.Set("Content-Type", contentJSON)
	c.Response().WriteHeader(status)
	if _, err := newPacedWriter(c.Response()).Write(text); err != nil {
		return fmt.Errorf("write answer of %s: %w", c.Path(), err)
	}
	return nil
}

// json writes a JSON response.
func (c call) json(status int, v any) error {
	text, err := encodeJSON(v)
	if err != nil {
		return fmt.Errorf("encode answer of %s: %w", c.Path(), err)
	}
	if err := c.keys.keep(c, c.once, webhook.KeptAnswer{Status: status, Text: text, Secret: c.route.answersSecret()}); err != nil {
		return err
	}
	return c.send(status, text)
}
