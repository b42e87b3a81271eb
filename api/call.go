package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/internal/webhook"
)

const contentJSON = "application/json"

// call is one request of a known caller.
type call struct {
	echo.Context

	route  route
	key    webhook.Key
	tenant string // of the path; "" for routes without one

	server *Server
	room   *bodyReservation // of its body; given back when it is answered
}

// actor is the caller as the audit log names them.
func (c call) actor() webhook.Actor {
	return webhook.Actor{KeyID: c.key.ID, RequestID: requestID(c), Source: sourceAddress(c.Request(), c.server.TrustedProxies)}
}

// workflowURL is where the caller finds a workflow in the Temporal Web UI: that shows all
// tenants' workflows, so that it is the operators' unless a setting says otherwise. One that
// has ended (zero: it has not) is there for a while.
func (c call) workflowURL(workflowID string, ended time.Time) *string {
	if c.key.Scope != webhook.ScopeOperator && !c.server.WorkflowURLForTenants {
		return nil
	}
	if kept := c.server.WorkflowsKept; kept > 0 && !ended.IsZero() && c.server.Now().Sub(ended) >= kept {
		return nil
	}
	return nullable(c.server.WorkflowURL(workflowID))
}

// pathID parses the id in the path; a malformed one does not exist.
func pathID[ID any](c call, parse func(string) (ID, error)) (ID, error) {
	id, err := parse(c.Param("id"))
	if err != nil {
		var none ID
		return none, webhook.NotFound(c.route.noun)
	}
	return id, nil
}

// checkContentType refuses a body that says of itself that it is not JSON in UTF-8,
// which is the only encoding that JSON between systems has (RFC 8259 §8.1).
func checkContentType(h http.Header) error {
	if given := h.Get("Content-Type"); given != "" && given != contentJSON {
		media, params, err := mime.ParseMediaType(given)
		if err != nil || media != contentJSON {
			return unsupported("the body must be " + contentJSON)
		}
		if charset, named := params["charset"]; named && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "utf8") {
			return unsupported("the body must be in UTF-8: Content-Type names another charset")
		}
	}
	if coding := h.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return unsupported("a compressed body is not supported")
	}
	return nil
}

func unsupported(detail string) error {
	return &httpError{unsupportedMedia(), detail}
}

func tooLarge(field string, limit int) error {
	return &webhook.Error{Code: webhook.CodeTooLarge, Fields: []webhook.FieldError{overLimit(field, limit)}}
}

func overLimit(field string, limit int) webhook.FieldError {
	return webhook.FieldError{Field: field, Message: "is larger than " + strconv.Itoa(limit) + " bytes"}
}

// object reads the body as a JSON object with the fields that field knows.
func (c call) object(field func(d *door, name string), required ...string) error {
	text, err := c.body()
	if err != nil {
		return err
	}
	return readObject(text, field, required...)
}

func readObject(text []byte, field func(d *door, name string), required ...string) error {
	if text == nil {
		return webhook.Invalid("body", "is required")
	}
	d := newDoor(text)
	d.object(func(name []byte) { field(d, string(name)) }, required...)
	d.end()
	return d.problem()
}

// reason reads the body of a command: nothing, {}, or, where a command takes one,
// {"reason": "…"}.
func (c call) reason(taken bool) (reason string, err error) {
	text, err := c.body()
	if text == nil || err != nil {
		return "", err
	}
	return reason, readObject(text, func(d *door, name string) {
		if name != "reason" || !taken {
			d.unknown()
			return
		}
		if !d.null() {
			reason = readReason(d)
		}
	})
}

// nothing refuses a body with anything in it.
func (c call) nothing() error {
	_, err := c.reason(withoutReason)
	return err
}

// requestID is the id under which the request is logged and audited.
func requestID(c echo.Context) string {
	return c.Response().Header().Get(echo.HeaderXRequestID)
}

// json answers with a JSON document.
func (c call) json(status int, v any) error {
	return writeJSON(c, status, contentJSON, v)
}

// writeJSON encodes before the status is sent, so that what cannot be encoded is
// still answered with an error, and leaves <, > and & readable: nosniff and the
// media type keep browsers from seeing HTML.
func writeJSON(c echo.Context, status int, media string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode answer of %s: %w", c.Path(), err)
	}
	if err := c.Blob(status, media, b.Bytes()); err != nil {
		return fmt.Errorf("write answer of %s: %w", c.Path(), err)
	}
	return nil
}
