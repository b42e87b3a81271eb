package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/everpost/everpost/internal/webhook"
)

// serve is a route as Echo calls it: who calls, whether they may, and the one
// place where a handler's error becomes an answer.
func (s *Server) serve(r route) echo.HandlerFunc {
	return func(c echo.Context) error {
		if r.scope == scopeNone {
			in := call{Context: c, route: r, server: s}
			if err := in.refuseParameters(); err != nil {
				return s.answer(c, r, err)
			}
			return s.answer(c, r, r.handle(s, in))
		}
		// Every answer may hold a secret, an address or a customer's data.
		c.Response().Header().Set("Cache-Control", "no-store")
		key, err := s.authenticate(c)
		if err != nil {
			return s.answer(c, r, err)
		}
		if err := s.admit(c.Request().Context(), key); err != nil {
			return s.answer(c, r, err)
		}
		in := call{
			Context: c, route: r, key: key, tenant: c.Param("tenant"),
			server: s, room: &bodyReservation{budget: &s.bodies, tenant: key.TenantID},
		}
		defer in.room.release()
		if err := in.authorise(); err != nil {
			return s.answer(c, r, err)
		}
		if err := in.refuseParameters(); err != nil {
			return s.answer(c, r, err)
		}
		return s.answer(c, r, r.handle(s, in))
	}
}

func (s *Server) answer(c echo.Context, r route, err error) error {
	if err == nil {
		return nil
	}
	return s.writeError(c, r.noun, err)
}

// challenge asks for a key (RFC 6750 §3).
const challenge = `Bearer realm="everpost"`

// authenticate finds the living key that the request was made with (RFC 6750 §2.1).
// A text that cannot be a key is refused before any lookup.
func (s *Server) authenticate(c echo.Context) (webhook.Key, error) {
	given := c.Request().Header["Authorization"]
	if len(given) == 0 {
		s.Metrics.AuthFailed(AuthMissing)
		return webhook.Key{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Message: `an API key is missing: send it as "Authorization: Bearer evk_…"`}
	}
	scheme, text, _ := strings.Cut(given[0], " ")
	if s.isPreset(strings.TrimSpace(text)) && len(given) == 1 && strings.EqualFold(scheme, "Bearer") {
		return webhook.Key{ID: presetKeyID(), Scope: webhook.ScopeOperator, Name: "EVERPOST_OPERATOR_KEY"}, nil
	}
	cause := AuthMalformed
	id, sum, err := ParseKey(strings.TrimSpace(text))
	if err == nil && len(given) == 1 && strings.EqualFold(scheme, "Bearer") {
		var key webhook.Key
		if key, err = s.Keys.Authenticate(c.Request().Context(), id, sum); err == nil {
			return key, nil
		}
		if webhook.CodeOf(err) != webhook.CodeUnauthenticated {
			return webhook.Key{}, err
		}
		cause = string(webhook.ErrKeyUnknown)
		if refusal, ok := errors.AsType[webhook.KeyError](err); ok {
			cause = string(refusal)
		}
	}
	s.Metrics.AuthFailed(cause)
	c.Response().Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
	return webhook.Key{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Message: "the API key is not valid, has expired or was revoked"}
}

// authorise holds the caller against the route. A tenant that is not the caller's
// is answered like one that does not exist, before the scope is looked at.
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
	return nil
}

// isPreset compares with the operator key that was set from outside, in constant
// time. It is not in the record: it works for as long as it is set.
func (s *Server) isPreset(text string) bool {
	if s.OperatorKey == "" {
		return false
	}
	given, preset := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(s.OperatorKey))
	return subtle.ConstantTimeCompare(given[:], preset[:]) == 1
}

// presetKeyID names the preset key in the audit log. It is no hash of it, from which a
// key that is a phrase could be guessed.
func presetKeyID() webhook.KeyID { return webhook.KeyID([]byte("preset operator ")) }
