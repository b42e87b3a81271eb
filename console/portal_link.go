package console

import (
	"context"
	"crypto/sha256"
	"net/http"
)

// portalLinkView is the page that a link opens.
type portalLinkView struct {
	CSRF    string
	Problem string
	Title   string // the portal's name, or a word for it
}

// openPortalLink shows the page with the button that uses the link up. It does not look the link up: see linkView.
func openPortalLink(p *portalPage) error { return p.showLink(http.StatusOK) }

func (p *portalPage) showLink(status int) error {
	v := portalLinkView{CSRF: p.console.formToken(p.w, p.r), Title: p.console.config.Portal.Name}
	if v.Title == "" {
		v.Title = p.say("portal.title")
	}
	switch status {
	case http.StatusGone:
		v.Problem = p.say("link.gone")
	case http.StatusForbidden:
		v.Problem = p.say("link.too_old")
	}
	return p.show(portalView{Template: "link", Title: v.Title, Status: status, Data: v})
}

// closePortal ends the session.
func closePortal(p *portalPage) error {
	s, back := p.console, p.session.ReturnURL
	if err := s.config.Sessions.EndSession(context.WithoutCancel(p.r.Context()), sha256.Sum256([]byte(p.session.token))); err != nil {
		return err
	}
	s.setCookie(p.w, p.r, portalCookie, "", 0)
	_ = p.texts() // in the session's language
	p.session = session{}
	return p.show(portalView{Template: "closed", Title: p.say("closed.title"), Data: back})
}
