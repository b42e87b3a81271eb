package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
)

// As returns the API for requests of a caller inside the process. The API authorises, validates, limits
// and audits them as it does requests with a key. It reads no credentials from them.
func (s *Server) As(caller Caller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.echo.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// serve makes the handler of a route one for Echo. It is the only place that turns a handler's error into a response.
func (s *Server) serve(r handledRoute) echo.HandlerFunc {
	return func(c echo.Context) error {
		in := call{
			Context: c, route: r.route, tenant: c.Param("tenant"), proxies: s.trustedProxies, keys: s.keys,
			bodies: s.bodies, reservation: &bodyReservation{budget: s.bodies.budget}, answer: &answerRoom{of: s.answers},
		}
		defer in.reservation.release()
		defer in.answer.release()
		if err := s.answer(&in, r.handle); err != nil {
			return s.problems.write(c, r.noun, err)
		}
		return nil
	}
}

// answer answers a request, unless it returns an error.
func (s *Server) answer(in *call, handle func(call) error) error {
	if in.route.scope != scopeNone {
		if err := s.admit(in); err != nil {
			return err
		}
	}
	if err := in.refuseParameters(); err != nil {
		return err
	}
	return s.keys.handle(*in, handle)
}

// admit authenticates the caller, takes a token of its rate limit, and authorises it.
func (s *Server) admit(in *call) error {
	// Every response may contain a secret, an address or customer data.
	in.Response().Header().Set("Cache-Control", "no-store")
	from, inside := in.Request().Context().Value(callerKey{}).(Caller)
	if !inside {
		var err error
		if from, err = s.authenticate(in); err != nil {
			return err
		}
	}
	in.from, in.key = from, from.Key
	in.reservation.tenant, in.answer.tenant = from.Key.TenantID, from.Key.TenantID
	traceAuthenticated(in)
	if err := s.limiter.admit(in.Request().Context(), in.route, in.key, inside || !from.Link.IsZero()); err != nil {
		return err
	}
	return from.authorise(in.route, in.tenant)
}
