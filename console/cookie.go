package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Cookies. A session by a key and a portal's have different names and paths, so that a browser may have both, and that one of a
// key is never sent to a page that may stand in a frame. formCookie is for forms before a log-in.
const (
	keyCookie    = "everpost_session"
	portalCookie = "everpost_portal"
	formCookie   = "everpost_form"
	flashCookie  = "everpost_flash"
	uiCookie     = "everpost_ui" // an operator's session, for Temporal's Web UI at the same host name

	formLife  = time.Hour
	flashLife = time.Minute
	maxCookie = 512 // bytes of a cookie that is read
)

func cookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil || len(c.Value) > maxCookie {
		return ""
	}
	return c.Value
}

// keep sets the cookie of a new session. It ends the earlier session of its kind in the browser.
func (s *Console) keep(w http.ResponseWriter, r *http.Request, made session) {
	mine := sessionCookie(made.Access.Portal())
	if token := cookieOf(r, mine); validToken(token) {
		if err := s.config.Sessions.EndSession(context.WithoutCancel(r.Context()), sha256.Sum256([]byte(token))); err != nil {
			s.config.Logger.LogAttrs(r.Context(), slog.LevelWarn, "a session that was replaced could not be ended", slog.Any("error", err))
		}
	}
	s.setCookie(w, r, mine, made.token, time.Until(made.ExpiresAt))
	s.setCookie(w, r, formCookie, "", 0)
	if !made.Access.Portal() {
		s.setUICookie(w, r, made.ConsoleSession, made.token)
	}
}

// sessionCookie is the name of the cookie of a portal's session, or of one with a key.
func sessionCookie(portal bool) string {
	if portal {
		return portalCookie
	}
	return keyCookie
}

// setUICookie lets an operator's browser use Temporal's Web UI, which is at another port of the same host and has other paths. Another
// session, or none, ends that.
func (s *Console) setUICookie(w http.ResponseWriter, r *http.Request, of webhook.ConsoleSession, token string) {
	if !s.config.UISession {
		return
	}
	c := &http.Cookie{ //nolint:gosec // Secure where the page is
		Name: uiCookie, Value: token, Path: "/", HttpOnly: true, Secure: s.secure(r), SameSite: http.SameSiteStrictMode,
		MaxAge: int(time.Until(of.ExpiresAt).Seconds()),
	}
	if of.Access != webhook.AccessKey || of.TenantID != "" {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(w, c)
}

// setCookie sets a cookie for the console, or for the portal on its pages; "" removes it. Those of a portal that may be shown in a frame
// of another site are for that site only (Partitioned).
func (s *Console) setCookie(w http.ResponseWriter, r *http.Request, name, value string, life time.Duration) {
	c := &http.Cookie{
		Name: name, Value: value, Path: Root, HttpOnly: true, Secure: s.secure(r), SameSite: http.SameSiteStrictMode, MaxAge: int(life.Seconds()),
	}
	portal := isBelow(r.URL.Path, PortalRoot)
	if portal {
		c.Path = PortalRoot
	}
	if value == "" {
		c.MaxAge = -1
	}
	if len(s.config.FrameAncestors) > 0 && portal {
		c.SameSite, c.Secure, c.Partitioned = http.SameSiteNoneMode, true, true
	}
	http.SetCookie(w, c)
}

func (s *Console) secure(r *http.Request) bool {
	return strings.HasPrefix(s.config.URL, "https://") || s.config.API.Secure(r)
}

// formToken returns the token for the forms of a page before a log-in, and sets its cookie.
func (s *Console) formToken(w http.ResponseWriter, r *http.Request) string {
	token := cookieOf(r, formCookie)
	if token == "" {
		token = rand.Text()
	}
	s.setCookie(w, r, formCookie, token, formLife)
	return csrfToken(token)
}
