package console

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"

	"github.com/everpost/everpost/internal/webhook"
)

func linkRoutes() []route {
	return []route{
		{pattern: "GET /links/{token}", access: public, handle: showLink},
		{pattern: "POST /links/{token}", access: public, handle: useLink},
	}
}

// linkView is the page that a link opens. It does not look the link up: a preview neither uses it up nor
// learns anything.
type linkView struct {
	CSRF, Problem string
}

func showLink(p *page) error {
	return p.show(view{Template: "link", Title: "Open", Data: linkView{CSRF: p.console.formToken(p.w, p.r)}})
}

// useLink uses up a link and opens its session.
func useLink(p *page) error {
	s := p.console
	refuse := func(status int, why string) error {
		return p.show(view{Template: "link", Title: "Open", Status: status, Data: linkView{s.formToken(p.w, p.r), why}})
	}
	if status, why := p.admitPublic(); why != "" {
		return refuse(status, why)
	}
	made := session{token: rand.Text()}
	link := sha256.Sum256([]byte(p.r.PathValue("token")))
	stored, err := s.config.Sessions.UseLink(p.r.Context(), p.actor(webhook.KeyID{}), link, webhook.ConsoleSession{
		SHA256: sha256.Sum256([]byte(made.token)), ExpiresAt: s.sessionEnd(webhook.PortalLife, webhook.Key{}),
	})
	if err == nil {
		_, err = s.config.API.Confirm(p.r.Context(), stored.KeyID, stored.KeySHA256)
	}
	switch code := webhook.CodeOf(err); {
	case err != nil && (code == webhook.CodeNotFound || code == webhook.CodeUnauthenticated):
		return refuse(http.StatusGone, "This link was used already, or has expired. Ask for a new one where you got it.")
	case err != nil:
		return err
	}
	made.ConsoleSession = stored
	s.keep(p.w, p.r, made)
	if stored.TenantID == "" {
		p.redirect(Root + "/")
	} else {
		p.redirect(pagePath(stored.TenantID))
	}
	return nil
}
