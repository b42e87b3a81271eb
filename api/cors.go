package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// preflightKept is how long a browser may keep what a preflight said.
const preflightKept = time.Hour

// crossOrigin lets scripts of listed origins call the operations of portals, with a portal token in Authorization. It is Echo's middleware
// for each path that has such operations. No request is answered with Access-Control-Allow-Credentials: the API takes no cookies, also not
// those of the console and the portal, so a browser has nothing to send along.
type crossOrigin struct{ of map[string]sharedPath }

// sharedPath is a path of Echo with operations of portals.
type sharedPath struct {
	methods []string
	wrap    echo.MiddlewareFunc
}

// newCrossOrigin returns nil without origins: then no answer has a header of CORS.
func newCrossOrigin(origins []string, all []route) *crossOrigin {
	if len(origins) == 0 {
		return nil
	}
	o := &crossOrigin{of: map[string]sharedPath{}}
	for _, r := range all {
		if r.ofPortal() != notOfPortals {
			path := o.of[r.echoPath()]
			path.methods = append(path.methods, r.method)
			o.of[r.echoPath()] = path
		}
	}
	for name, path := range o.of {
		path.wrap = middleware.CORSWithConfig(middleware.CORSConfig{
			// Not AllowOrigins, which would read * and ? in an origin.
			AllowOriginFunc: func(origin string) (bool, error) { return slices.Contains(origins, origin), nil },
			AllowMethods:    path.methods,
			AllowHeaders:    []string{echo.HeaderAuthorization, echo.HeaderContentType, idempotencyHeader, echo.HeaderXRequestID},
			ExposeHeaders:   []string{echo.HeaderXRequestID, echo.HeaderRetryAfter, replayedHeader, echo.HeaderWWWAuthenticate},
			MaxAge:          int(preflightKept.Seconds()),
		})
		o.of[name] = path
	}
	return o
}

// middleware handles preflights of the operations of portals, and adds the headers to their answers. All else passes: a preflight for POST,
// too, because a browser sends that method even where the answer does not list it.
func (o *crossOrigin) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		method := c.Request().Method
		if method == http.MethodOptions {
			method = c.Request().Header.Get(echo.HeaderAccessControlRequestMethod)
		}
		path, shared := o.of[c.Path()]
		if !shared || !slices.Contains(path.methods, method) {
			return next(c)
		}
		return path.wrap(next)(c)
	}
}
