package console

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"

	"github.com/everpost/everpost/internal/webhook"
)

// linkView is the page that a link opens. It does not look the link up: a preview neither uses it up nor
// shows whether it is valid.
type linkView struct {
	CSRF, Problem string
}

func showLink(p *page) error {
	return p.show(view{Template: "link", Title: "Open", Data: linkView{CSRF: p.console.formToken(p.w, p.r)}})
}

// useLink uses up a link and opens its session. Attempts are not limited: a link's token has 130 random bits.
func useLink(p *page) error {
	s := p.console
	if !formFits(p) {
		return refuseLink(p, http.StatusForbidden, formTooOld)
	}
	made := session{token: rand.Text()}
	stored, err := openLink(p, made.token)
	switch code := webhook.CodeOf(err); {
	case err != nil && (code == webhook.CodeNotFound || code == webhook.CodeUnauthenticated):
		return refuseLink(p, http.StatusGone, "This link was used already, or has expired. Ask for a new one where you got it.")
	case err != nil:
		return err
	}
	made.ConsoleSession = stored
	s.keep(p.w, p.r, made)
	if p.portal != nil {
		p.portal.rememberLook(stored.Portal)
	}
	p.redirect(p.root() + "/")
	return nil
}

// refuseLink shows the page of a link that was not used. The portal has words of its own.
func refuseLink(p *page, status int, why string) error {
	if p.portal != nil {
		return p.portal.showLink(status)
	}
	return p.show(view{Template: "link", Title: "Open", Status: status, Data: linkView{p.console.formToken(p.w, p.r), why}})
}

// openLink uses up the link of the path and opens its session. It confirms the key first, so that an error there
// does not use the link up. CodeNotFound, CodeUnauthenticated: the link cannot be used.
func openLink(p *page, token string) (webhook.ConsoleSession, error) {
	var none webhook.ConsoleSession
	s, ctx, text := p.console, p.r.Context(), p.r.PathValue("token")
	if !validToken(text) {
		return none, webhook.NotFound("link")
	}
	done, err := s.lookUps.Start(ctx, s.config.API.SourceAddress(p.r))
	if err != nil {
		return none, err
	}
	defer done()
	link := sha256.Sum256([]byte(text))
	known, err := s.config.Sessions.Link(ctx, link)
	if err != nil {
		return none, err
	}
	if known.Access.Portal() != (p.portal != nil) {
		return none, webhook.NotFound("link")
	}
	if _, err := s.config.API.Confirm(ctx, known.KeyID, known.KeySHA256, false); err != nil {
		return none, err
	}
	return s.config.Sessions.UseLink(ctx, p.actor(webhook.KeyID{}), link, webhook.ConsoleSession{
		SHA256: sha256.Sum256([]byte(token)), ExpiresAt: s.sessionEnd(webhook.PortalLife, webhook.Key{}),
	})
}
