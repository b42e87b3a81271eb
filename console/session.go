package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/cache"
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

	tokenLength = 26 // of rand.Text: 130 random bits
	csrfField   = "csrf"
)

// session is a session with its key, which was valid a moment ago.
type session struct {
	webhook.ConsoleSession

	key   webhook.Key
	token string
}

// signedIn reports whether there is a session.
func (s session) signedIn() bool { return s.token != "" }

// operator reports whether the session may do everything in every tenant.
func (s session) operator() bool {
	return s.Access == webhook.AccessKey && s.key.Scope == webhook.ScopeOperator
}

// share is whose share of the console's places the session takes: its tenant's, or the operators'.
func (s session) share() string {
	if s.TenantID != "" {
		return s.TenantID
	}
	return ofOperators
}

// caller is the session as the API takes it. A portal acts as its link, with the rights of the tenant's
// admin within what a portal may do.
func (s session) caller() api.Caller {
	if !s.Access.Portal() {
		return api.Caller{Key: s.key}
	}
	return api.Caller{
		Key:  webhook.Key{TenantID: s.TenantID, Scope: webhook.ScopeAdmin, Name: "console link"},
		Link: s.LinkID, ReadOnly: s.Access != webhook.AccessManage,
	}
}

// findSession returns the session of a request's cookie, or none. An error means that it could not be
// looked up. A stream is no use of a session or a key: a page that is left open keeps neither.
func (s *Console) findSession(r *http.Request) (session, error) {
	used := r.Header.Get("Accept") != eventStream
	for _, name := range []string{keyCookie, portalCookie} {
		token := cookieOf(r, name)
		if !validToken(token) {
			continue
		}
		found, err := s.confirm(r, token, used)
		if err == nil && found.Access.Portal() == (name == portalCookie) {
			return found, nil
		}
		if code := webhook.CodeOf(err); err != nil && code != webhook.CodeNotFound && code != webhook.CodeUnauthenticated {
			return session{}, err
		}
	}
	return session{}, nil
}

// confirm reads a session and checks its key. What visitors of a portal do is no use of the key that made its link.
func (s *Console) confirm(r *http.Request, token string, used bool) (session, error) {
	stored, err := s.lookUp(r, sha256.Sum256([]byte(token)), used)
	if err != nil {
		return session{}, err
	}
	key, err := s.config.API.Confirm(r.Context(), stored.KeyID, stored.KeySHA256, used && !stored.Access.Portal())
	if err != nil {
		return session{}, err
	}
	return session{ConsoleSession: stored, key: key, token: token}, nil
}

// lookUp reads a session.
func (s *Console) lookUp(r *http.Request, sum [sha256.Size]byte, used bool) (webhook.ConsoleSession, error) {
	if s.unknown.has(sum) {
		return webhook.ConsoleSession{}, webhook.NotFound("session")
	}
	done, err := s.startLookUp(r)
	if err != nil {
		return webhook.ConsoleSession{}, err
	}
	defer done()
	found, err := s.config.Sessions.Session(r.Context(), sum, used)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		s.unknown.add(sum)
	}
	return found, err
}

// startLookUp waits until a token may be looked up. A source of invented tokens gets at most half of the look-ups.
func (s *Console) startLookUp(r *http.Request) (done func(), err error) {
	source := networkOf(s.config.API.SourceAddress(r)).String()
	if !s.lookUps.Acquire(r.Context(), source, 1, busyWait) {
		return nil, refusal(http.StatusServiceUnavailable, "too many sessions are being looked up; try again in a moment")
	}
	return func() { s.lookUps.Release(source, 1) }, nil
}

// unknownTokens are tokens that have no session, and will have none: a session's token is new, and one that has
// ended does not come back.
type unknownTokens struct {
	mu  sync.Mutex
	all *cache.Map[[sha256.Size]byte, struct{}]
}

const maxUnknownTokens = 10_000

func newUnknownTokens() *unknownTokens {
	return &unknownTokens{all: cache.NewMap[[sha256.Size]byte, struct{}](maxUnknownTokens)}
}

func (u *unknownTokens) has(sum [sha256.Size]byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, unknown := u.all.Peek(sum)
	return unknown
}

func (u *unknownTokens) add(sum [sha256.Size]byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all.Put(sum, struct{}{}, time.Now())
}

// validToken reports whether a text can be the token of a session or a link, which are of rand.Text.
func validToken(token string) bool {
	_, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(token)
	return err == nil && len(token) == tokenLength
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

// IsOperator reports whether a request to Temporal's Web UI has the session of an operator.
func (s *Console) IsOperator(r *http.Request) bool {
	token := cookieOf(r, uiCookie)
	if !validToken(token) {
		return false
	}
	found, err := s.confirm(r, token, true)
	return err == nil && found.operator()
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

func cookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil || len(c.Value) > maxCookie {
		return ""
	}
	return c.Value
}

// csrfToken is what a form must send along: it follows from the cookie, which another site cannot read.
func csrfToken(cookie string) string {
	sum := sha256.Sum256([]byte("everpost console form\x00" + cookie))
	return base64.RawURLEncoding.EncodeToString(sum[:])
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

// tokenFits compares the form's token with the cookie's.
func tokenFits(form url.Values, cookie string) bool {
	given := form.Get(csrfField)
	return cookie != "" && subtle.ConstantTimeCompare([]byte(given), []byte(csrfToken(cookie))) == 1
}

// localPath returns a path of the console to go to after a log-in; the start page for anything else.
func localPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !Owns(u.Path) || strings.ContainsAny(to, "\\\r\n\t") ||
		strings.HasPrefix(u.Path, Root+"/login") || strings.HasPrefix(u.Path, Root+"/links/") || strings.Contains(u.Path, "//") {
		return Root + "/"
	}
	return to
}
