package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

// logInView is the log-in page.
type logInView struct {
	To, CSRF, Problem string
}

func showLogIn(p *page) error {
	to := localPath(p.r.URL.Query().Get("to"))
	if err := p.signIn(); err == nil && p.session.signedIn() {
		p.redirect(to)
		return nil
	}
	return p.show(view{Template: "login", Title: "Log in", Data: logInView{To: to, CSRF: p.console.formToken(p.w, p.r)}})
}

// askToLogIn redirects to the log-in page, and from there back. A browser that follows a link from another
// site does not send the cookie (SameSite=Strict): it gets a page that loads the log-in page once more, now
// from this site, with the cookie.
func (p *page) askToLogIn() error {
	if p.portal != nil { // it has no log-in page
		return p.portal.showEnded()
	}
	if p.live != nil {
		return refusal(http.StatusUnauthorized, "the session has ended")
	}
	logIn := Root + "/login?" + url.Values{"to": {p.here()}}.Encode()
	if site := p.r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		p.w.Header().Set("Refresh", "0; url="+logIn)
		return p.show(view{Template: "again", Title: "One moment", Data: logIn})
	}
	p.redirect(logIn)
	return nil
}

// here is the page to come back to after a log-in.
func (p *page) here() string {
	if p.r.Method == http.MethodGet {
		return p.r.URL.RequestURI()
	}
	return p.console.pageAt(p.r.URL.Path)
}

// pageAt is the page at a path, or the nearest above it: a form's target need not be a page.
func (s *Console) pageAt(target string) string {
	for ; len(target) > len(Root); target = path.Dir(target) {
		_, pattern := s.mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: target}})
		if pattern != "" && pattern != "/" {
			return (&url.URL{Path: target}).EscapedPath()
		}
	}
	return Root + "/"
}

// logIn opens the session of a key. A key that is not valid counts as a failed authentication, as with
// the API.
func logIn(p *page) error {
	s := p.console
	to := localPath(p.typed.Get("to"))
	refuse := func(status int, why string) error {
		return p.show(view{Template: "login", Title: "Log in", Status: status, Data: logInView{to, s.formToken(p.w, p.r), why}})
	}
	if !formFits(p) {
		return refuse(http.StatusForbidden, formTooOld)
	}
	text, source := strings.TrimSpace(p.typed.Get("key")), s.config.API.SourceAddress(p.r)
	_, _, malformed := api.ParseKey(text)
	guess := malformed != nil // Only a preset key can be guessed: keys that Everpost made have 256 random bits.
	if guess && !s.guesses.allow(api.NetworkOf(source), s.config.Now()) {
		p.w.Header().Set("Retry-After", "60")
		return refuse(http.StatusTooManyRequests, "There were too many attempts from your address. Please wait a minute.")
	}
	key, err := s.config.API.Authenticate(p.r.Context(), text)
	switch {
	case err != nil && webhook.CodeOf(err) == webhook.CodeUnauthenticated:
		if guess {
			s.guesses.count(api.NetworkOf(source), s.config.Now())
		}
		why := "This key is not valid, has expired or was revoked."
		if known, ok := errors.AsType[*webhook.Error](err); ok && guess {
			why = sentence(known.Message)
		}
		return refuse(http.StatusUnauthorized, why)
	case err != nil:
		return err
	case key.Scope < webhook.ScopeAdmin:
		return refuse(http.StatusForbidden, "This key is only for sending events (its scope is ingest). The console needs an admin or an operator key.")
	}
	if !s.logIns.allow(key.ID, s.config.Now()) { // each is a session and an entry of the audit log
		p.w.Header().Set("Retry-After", "60")
		return refuse(http.StatusTooManyRequests, "There were too many log-ins with this key. Please wait a minute.")
	}
	s.logIns.count(key.ID, s.config.Now())
	made := session{key: key, token: rand.Text()}
	made.ConsoleSession = webhook.ConsoleSession{
		SHA256: sha256.Sum256([]byte(made.token)), TenantID: key.TenantID, KeyID: key.ID, KeySHA256: s.config.API.KeyHash(key),
		Access: webhook.AccessKey, ExpiresAt: s.sessionEnd(webhook.SessionLife, key),
	}
	if err := s.config.Sessions.CreateSession(p.r.Context(), p.actor(key.ID), made.ConsoleSession); err != nil {
		return err
	}
	s.keep(p.w, p.r, made)
	p.redirect(to)
	return nil
}

// formFits checks the token of a form before a log-in.
func formFits(p *page) bool { return tokenFits(p.typed, cookieOf(p.r, formCookie)) }

const formTooOld = "The page was open for too long, or your browser blocks cookies. Please try again."

// sessionEnd is the latest end of a session, which is not after its key's.
func (s *Console) sessionEnd(life time.Duration, key webhook.Key) time.Time {
	end := s.config.Now().UTC().Truncate(time.Microsecond).Add(life)
	if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(end) {
		return key.ExpiresAt
	}
	return end
}

// actor is who makes a change that does not go through the API.
func (p *page) actor(key webhook.KeyID) webhook.Actor {
	return webhook.Actor{KeyID: key, Source: p.console.config.API.SourceAddress(p.r)}
}

func logOut(p *page) error {
	s := p.console
	if err := s.config.Sessions.EndSession(context.WithoutCancel(p.r.Context()), p.session.SHA256); err != nil {
		return err
	}
	s.setCookie(p.w, p.r, keyCookie, "", 0)
	s.setUICookie(p.w, p.r, webhook.ConsoleSession{}, "")
	p.session = session{}
	p.redirect(Root + "/login")
	return nil
}
