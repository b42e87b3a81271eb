package api

import (
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

// call is one request of an authenticated caller, or of any caller on a public route.
type call struct {
	echo.Context

	route  route
	key    webhook.Key
	from   Caller // of a request inside the process; else only with the key
	tenant string // from the path; "" for routes without one

	server      *Server
	reservation *bodyReservation // for the body; released after the response
	answer      *answerRoom      // for the response; released after it

	once *webhook.RequestKey // with an Idempotency-Key that is kept; nil without
	read *[]byte             // the body if it was read before the handler
}

// actor is the caller for the audit log.
func (c call) actor() webhook.Actor {
	by := webhook.Actor{
		KeyID: c.key.ID, RequestID: requestID(c), Source: sourceAddress(c.Request(), c.server.config.TrustedProxies), Request: c.once,
	}
	if !c.from.Link.IsZero() { // not the key that made the link: another person acts
		by.KeyID, by.Name = webhook.KeyID{}, "console link "+c.from.Link.String()
	}
	return by
}

// workflowURL returns the address of a workflow in the Temporal Web UI. The Web UI shows all
// tenants' workflows, so only operators get it unless a setting extends it to tenants. For a
// closed workflow (ended is not zero) it is nil after WorkflowsKept.
func (c call) workflowURL(workflowID string, ended time.Time) *string {
	if c.key.Scope != webhook.ScopeOperator && !c.server.config.WorkflowURLForTenants || !c.from.Link.IsZero() {
		return nil
	}
	if kept := c.server.config.WorkflowsKept(); kept > 0 && !ended.IsZero() && c.server.config.Now().Sub(ended) >= kept {
		return nil
	}
	return nullable(c.server.config.WorkflowURL(workflowID))
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

// checkContentType refuses a body whose Content-Type is not JSON in UTF-8, the only encoding
// that RFC 8259 §8.1 permits.
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

// tooLarge is the error for a value of size bytes; 0 if that is not known.
func tooLarge(field string, limit int, size int64) error {
	return &webhook.Error{Code: webhook.CodeTooLarge, Fields: []webhook.FieldError{overLimit(field, limit, size)}}
}

func overLimit(field string, limit int, size int64) webhook.FieldError {
	message := "is larger than " + strconv.Itoa(limit) + " bytes"
	if size > 0 {
		message = "has " + strconv.FormatInt(size, 10) + " bytes; the limit is " + strconv.Itoa(limit)
	}
	return webhook.FieldError{Field: field, Message: message}
}

// object reads the body as a JSON object. field reads the known fields.
func (c call) object(field func(d *jsonDecoder, name string), required ...string) error {
	text, err := c.body()
	if err != nil {
		return err
	}
	return readObject(text, field, required...)
}

func readObject(text []byte, field func(d *jsonDecoder, name string), required ...string) error {
	if text == nil {
		return webhook.Invalid("body", "is required")
	}
	d := newJSONDecoder(text)
	d.object(func(name []byte) { field(d, string(name)) }, required...)
	d.end()
	return d.problem()
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

// requestID returns the id of the request in the log and the audit log.
func requestID(c echo.Context) string {
	return c.Response().Header().Get(echo.HeaderXRequestID)
}

// writeJSON encodes v before it writes the status, so that an encoding failure still becomes an
// error response.
func writeJSON(c echo.Context, status int, media string, v any) error {
	text, err := encodeJSON(v)
	if err != nil {
		return fmt.Errorf("encode answer of %s: %w", c.Path(), err)
	}
	if err := c.Blob(status, media, text); err != nil {
		return fmt.Errorf("write answer of %s: %w", c.Path(), err)
	}
	return nil
}
