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

// Cookies. A session by a key and a portal's have different names, because they may need different
// attributes; a browser has one of them at a time. formCookie is for forms before a log-in.
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

// keep sets the cookie of a new session. It ends the earlier sessions of the browser, and removes the cookie of
// the other kind.
func (s *Console) keep(w http.ResponseWriter, r *http.Request, made session) {
	for _, name := range []string{keyCookie, portalCookie} {
		token := cookieOf(r, name)
		if !validToken(token) {
			continue
		}
		if err := s.config.Sessions.EndSession(context.WithoutCancel(r.Context()), sha256.Sum256([]byte(token))); err != nil {
			s.config.Logger.LogAttrs(r.Context(), slog.LevelWarn, "a session that was replaced could not be ended", slog.Any("error", err))
		}
	}
	mine, other := keyCookie, portalCookie
	if made.Access.Portal() {
		mine, other = portalCookie, keyCookie
	}
	s.setCookie(w, r, mine, made.token, time.Until(made.ExpiresAt))
	s.setCookie(w, r, other, "", 0)
	s.setCookie(w, r, formCookie, "", 0)
	s.setUICookie(w, r, made.ConsoleSession, made.token)
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

// setCookie sets a cookie for the console; "" removes it. Those of a portal that may be shown in a frame
// of another site are for that site only (Partitioned).
func (s *Console) setCookie(w http.ResponseWriter, r *http.Request, name, value string, life time.Duration) {
	c := &http.Cookie{
		Name: name, Value: value, Path: Root, HttpOnly: true, Secure: s.secure(r), SameSite: http.SameSiteStrictMode, MaxAge: int(life.Seconds()),
	}
	if value == "" {
		c.MaxAge = -1
	}
	if len(s.config.FrameAncestors) > 0 && name != keyCookie && s.framed(r) {
		c.SameSite, c.Secure, c.Partitioned = http.SameSiteNoneMode, true, true
	}
	http.SetCookie(w, c)
}

// framed reports whether a request may be one from a frame: it opens a link, or has a portal's session
// and no other.
func (s *Console) framed(r *http.Request) bool {
	return cookieOf(r, keyCookie) == "" && (cookieOf(r, portalCookie) != "" || strings.HasPrefix(r.URL.Path, Root+"/links/"))
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
