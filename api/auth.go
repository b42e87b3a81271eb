package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/webhook"
)

// serve wraps a route's handler for Echo: it authenticates and authorises the caller, and it is
// the only place that turns a handler's error into a response.
func (s *Server) serve(r route) echo.HandlerFunc {
	return func(c echo.Context) error {
		if r.scope == scopeNone {
			in := call{Context: c, route: r, server: s, answer: &answerRoom{budget: s.answers}}
			defer in.answer.release()
			if err := in.refuseParameters(); err != nil {
				return s.answer(c, r, err)
			}
			return s.answer(c, r, s.handle(in))
		}
		// Every response may contain a secret, an address or customer data.
		c.Response().Header().Set("Cache-Control", "no-store")
		from, inside := c.Request().Context().Value(callerKey{}).(Caller)
		if !inside {
			key, err := s.authenticate(c)
			if err != nil {
				return s.answer(c, r, err)
			}
			from.Key = key
		}
		key := from.Key
		traceAuthenticated(c)
		if err := s.admit(c.Request().Context(), r, key, inside); err != nil {
			return s.answer(c, r, err)
		}
		in := call{
			Context: c, route: r, key: key, from: from, tenant: c.Param("tenant"),
			server: s, reservation: &bodyReservation{budget: s.bodies, tenant: key.TenantID},
			answer: &answerRoom{budget: s.answers, tenant: key.TenantID},
		}
		defer in.reservation.release()
		defer in.answer.release()
		if err := in.authorise(); err != nil {
			return s.answer(c, r, err)
		}
		if err := in.refuseParameters(); err != nil {
			return s.answer(c, r, err)
		}
		return s.answer(c, r, s.handle(in))
	}
}

func (s *Server) answer(c echo.Context, r route, err error) error {
	if err == nil {
		return nil
	}
	return s.writeError(c, r.noun, err)
}

// challenge is the WWW-Authenticate header (RFC 6750 §3).
const challenge = `Bearer realm="everpost"`

// authenticate returns the valid key of the request (RFC 6750 §2.1). Text that cannot be a key
// is refused before any lookup.
func (s *Server) authenticate(c echo.Context) (webhook.Key, error) {
	given := c.Request().Header["Authorization"]
	if len(given) == 0 {
		s.config.Metrics.AuthFailed(AuthMissing)
		return webhook.Key{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Message: `an API key is missing: send it as "Authorization: Bearer evk_…"`}
	}
	scheme, text, _ := strings.Cut(given[0], " ")
	if len(given) != 1 || !strings.EqualFold(scheme, "Bearer") || credential.Trim(text) == "" {
		s.config.Metrics.AuthFailed(AuthMalformed)
		c.Response().Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
		return webhook.Key{}, &webhook.Error{
			Code: webhook.CodeUnauthenticated, Message: `the header Authorization has no API key: send it once, as "Authorization: Bearer evk_…"`,
		}
	}
	key, err := s.Authenticate(c.Request().Context(), text)
	if err != nil && webhook.CodeOf(err) == webhook.CodeUnauthenticated {
		c.Response().Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
	}
	return key, err
}

// refusalCause is why a key was refused, for the metric.
func refusalCause(err error) string {
	if refusal, ok := errors.AsType[webhook.KeyError](err); ok {
		return string(refusal)
	}
	return string(webhook.ErrKeyUnknown)
}

func errInvalidKey() error {
	return &webhook.Error{Code: webhook.CodeUnauthenticated, Message: "the API key is not valid, has expired or was revoked"}
}

// authorise checks the caller's key against the route. A tenant other than the caller's gets
// the same response as one that does not exist, before the scope is checked.
func (c call) authorise() error {
	if strings.Contains(c.route.path, "{tenant}") {
		foreign := c.key.Scope != webhook.ScopeOperator && c.key.TenantID != c.tenant
		unusable := !webhook.ValidTenantID(c.tenant) && c.route.id != putTenantID
		if foreign || unusable {
			return webhook.NotFound(c.route.noun)
		}
	}
	if c.key.Scope < c.route.scope {
		return &webhook.Error{Code: webhook.CodeForbidden, Message: "this needs a key with the scope " + c.route.scope.String()}
	}
	return c.from.permits(c.route)
}

// isPreset compares with the configured operator key in constant time. That key is not stored:
// it is valid as long as it is configured.
func (s *Server) isPreset(text string) bool {
	if s.config.OperatorKey == "" {
		return false
	}
	given, preset := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(s.config.OperatorKey))
	return subtle.ConstantTimeCompare(given[:], preset[:]) == 1
}

// presetKeyID identifies the configured operator key in the audit log. It is not derived from
// the key, because a weak key could be guessed from a hash.
func presetKeyID() webhook.KeyID { return webhook.KeyID([]byte("preset operator ")) }
