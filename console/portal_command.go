package console

import (
	"net/http"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// portalQuestion asks before a change.
type portalQuestion struct {
	Question, Detail, Button, Back string
	Danger                         bool
}

// Questions about an endpoint.
const (
	askToPause  = "pause"
	askToDelete = "delete"
	askToRotate = "rotate"
)

// askPortal returns the page that asks before a change of an endpoint.
func askPortal(what string) func(*portalPage) error {
	return func(p *portalPage) error {
		e, health, err := readEndpoint(p.page)
		if err != nil {
			return err
		}
		name := shortName(e.Description, e.URL)
		waiting, detail := health.Waiting+health.Scheduled+health.Held, "endpoint."+what+".detail"
		switch {
		case what == askToRotate && e.Signature == webhook.SignatureHex:
			detail += ".at_once"
		case what != askToRotate && waiting == 0:
			detail += ".none"
		}
		return p.show(portalView{Template: "question", Title: p.say("endpoint." + what), Entry: "endpoints", Data: portalQuestion{
			Question: p.say("endpoint."+what+".question", "name", name), Detail: p.say(detail, "count", waiting),
			Button: p.say("endpoint." + what), Back: portalPath("endpoints", e.ID), Danger: what != askToPause,
		}})
	}
}

func pausePortalEndpoint(p *portalPage) error {
	return commandPortalEndpoint(p, "pause", p.say("endpoint.paused"))
}

func resumePortalEndpoint(p *portalPage) error {
	return commandPortalEndpoint(p, "resume", p.say("endpoint.resumed"))
}

// commandPortalEndpoint sends a command to the endpoint of the path and goes back to it.
func commandPortalEndpoint(p *portalPage, command, done string) error {
	id := p.r.PathValue("id")
	err := p.send(nil, http.MethodPost, nil, "endpoints", id, command)
	if isStatus(err, http.StatusConflict) {
		return p.done(portalPath("endpoints", id), p.say("form.not_now"))
	}
	if err != nil {
		return err
	}
	return p.done(portalPath("endpoints", id), done)
}

func deletePortalEndpoint(p *portalPage) error {
	if err := p.send(nil, http.MethodDelete, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.done(portalPath("endpoints"), p.say("endpoint.deleted"))
}

// portalSecret shows a secret. The page has no address that shows it again.
type portalSecret struct {
	ID, Secret string
	OldUntil   client.Time
	Public     bool // it is a public key
}

// revealSecret shows the signing secret of an endpoint. The audit log names the link.
func revealSecret(p *portalPage) error {
	id := p.r.PathValue("id")
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return err
	}
	if e.PublicKey != nil {
		return errNotFound() // receivers verify with the public key; the other one signs
	}
	var found client.Secret
	if err := p.get(&found, nil, "endpoints", id, "secret"); err != nil {
		return err
	}
	return p.show(portalView{Template: "secret", Title: p.say("secret.title"), Entry: "endpoints", Data: portalSecret{ID: id, Secret: found.Secret}})
}

// rotatePortalSecret makes a new secret. The old one goes on signing for the default time, if a message can have two signatures.
func rotatePortalSecret(p *portalPage) error {
	id := p.r.PathValue("id")
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return err
	}
	var made client.Rotated
	if err := p.create(&made, map[string]any{}, "endpoints", id, "rotate-secret"); err != nil {
		if isStatus(err, http.StatusConflict) {
			return p.done(portalPath("endpoints", id), p.say("form.not_now"))
		}
		return err
	}
	v := portalSecret{ID: id, Secret: made.Secret, OldUntil: made.OldUntil}
	if e.Signature == webhook.SignatureHex { // a message has one signature, by the new secret
		v.OldUntil = client.Time{}
	}
	if made.PublicKey != nil {
		v.Secret, v.Public = *made.PublicKey, true
	}
	return p.show(portalView{Template: "secret", Title: p.say("secret.new"), Entry: "endpoints", Data: v})
}
