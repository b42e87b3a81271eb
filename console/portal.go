package console

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"time"
)

//go:embed templates/portal/*.html
var portalFiles embed.FS

// portal is what the pages of the portal share. They are for the customers of the product that runs Everpost: see docs/portal.md.
type portal struct {
	assets    assets
	languages *languages
	templates *template.Template
	started   time.Time
}

func newPortal(c Config) (*portal, error) {
	l := &portal{started: c.Now()}
	var err error
	if l.assets, err = loadPortalAssets(c.Portal, cmp.Or(c.Portal.Color, c.Color)); err != nil {
		return nil, err
	}
	if l.languages, err = readLanguages(c.Portal.Catalogues); err != nil {
		return nil, err
	}
	if l.templates, err = template.New("").Funcs(portalFunctions()).ParseFS(portalFiles, "templates/portal/*.html"); err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	return l, nil
}

// portalFunctions are those of the portal's templates.
func portalFunctions() template.FuncMap {
	return template.FuncMap{
		"visible": visible,
		"rfc3339": func(t any) string { return rfc3339(timeOf(t)) },
		"short":   func(text string, limit int) string { return clip(visible(text), limit) },
		"field":   newPortalField,
	}
}

// portalRoutes has all pages of the portal, and where their forms are sent to.
func portalRoutes() []route {
	const (
		get, post = "GET ", "POST "

		endpoints = "/endpoints"
		endpoint  = endpoints + "/{id}"
		messages  = "/messages"
		message   = messages + "/{id}"
		delivery  = "/deliveries/{id}"
		eventType = "/event-types/{name}"
	)
	return []route{
		{pattern: get + "/links/{token}", access: public, handle: ofPortal(openPortalLink)},
		{pattern: post + "/links/{token}", access: public, handle: useLink},
		{pattern: get + languagePath, access: public, handle: ofPortal(chooseLanguage)},
		{pattern: post + "/close", access: portalLooks, handle: ofPortal(closePortal)},
		{pattern: get + "/{$}", access: portalLooks, handle: ofPortal(portalHome)},

		{pattern: get + endpoints, access: portalLooks, handle: ofPortal(portalEndpoints)},
		{pattern: get + endpoints + "/new", access: portalManages, handle: ofPortal(newPortalEndpoint)},
		{pattern: post + endpoints + "/new", access: portalManages, handle: ofPortal(createPortalEndpoint), big: true},
		{pattern: get + endpoint, access: portalLooks, handle: ofPortal(portalEndpoint)},
		{pattern: get + endpoint + "/edit", access: portalManages, handle: ofPortal(editPortalEndpoint)},
		{pattern: post + endpoint + "/edit", access: portalManages, handle: ofPortal(updatePortalEndpoint)},
		{pattern: get + endpoint + "/pause", access: portalManages, handle: ofPortal(askPortal(askToPause))},
		{pattern: post + endpoint + "/pause", access: portalManages, handle: ofPortal(pausePortalEndpoint)},
		{pattern: post + endpoint + "/resume", access: portalManages, handle: ofPortal(resumePortalEndpoint)},
		{pattern: get + endpoint + "/delete", access: portalManages, handle: ofPortal(askPortal(askToDelete))},
		{pattern: post + endpoint + "/delete", access: portalManages, handle: ofPortal(deletePortalEndpoint)},
		{pattern: get + endpoint + "/test", access: portalManages, handle: ofPortal(askPortalTest)},
		{pattern: post + endpoint + "/test", access: portalManages, handle: ofPortal(sendPortalTest), slow: true, big: true},
		{pattern: post + endpoint + "/secret", access: portalReveals, handle: ofPortal(revealSecret)},
		{pattern: get + endpoint + "/rotate-secret", access: portalRotates, handle: ofPortal(askPortal(askToRotate))},
		{pattern: post + endpoint + "/rotate-secret", access: portalRotates, handle: ofPortal(rotatePortalSecret)},
		{pattern: get + endpoint + "/filter", access: portalFilters, handle: ofPortal(editPortalFilter)},
		{pattern: post + endpoint + "/filter", access: portalFilters, handle: ofPortal(editPortalFilter), big: true},
		{pattern: post + endpoint + "/filter/save", access: portalSetsFilters, handle: ofPortal(savePortalFilter), big: true},
		{pattern: get + endpoint + "/verify", access: portalLooks, handle: ofPortal(showVerify)},

		{pattern: get + messages, access: portalLooks, handle: ofPortal(portalMessages)},
		{pattern: get + message, access: portalLooks, handle: ofPortal(portalMessage)},
		{pattern: get + message + "/payload", access: portalLooks, handle: showPayload},
		{pattern: post + delivery + "/replay", access: portalReplays, handle: ofPortal(sendPortalDelivery(commandReplay))},
		{pattern: post + delivery + "/retry", access: portalReplays, handle: ofPortal(sendPortalDelivery(commandRetry))},

		{pattern: get + "/event-types", access: portalLooks, handle: ofPortal(portalTypes)},
		{pattern: get + eventType, access: portalLooks, handle: ofPortal(portalType)},
		{pattern: post + eventType, access: portalManages, handle: ofPortal(sendTypeExample), slow: true},

		{pattern: get + "/failed", access: portalLooks, handle: ofPortal(portalFailed)},
		{pattern: get + "/failed/send-again", access: portalReplays, handle: ofPortal(askSendAllAgain)},
		{pattern: post + "/failed/send-again", access: portalReplays, handle: ofPortal(sendAllAgain)},
	}
}

func portalHome(p *portalPage) error {
	p.redirect(PortalRoot + "/endpoints")
	return nil
}
