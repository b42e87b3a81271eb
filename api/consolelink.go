package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/url"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// ConsoleLinks stores one-time links to the console, and portal tokens.
type ConsoleLinks interface {
	SessionReader

	// CreateLink stores a link. CodeNotFound: no such tenant.
	CreateLink(ctx context.Context, by webhook.Actor, l webhook.ConsoleLink) error
	// CreateToken stores a link as the session that it would open: its token is a portal token. CodeNotFound: no such tenant.
	CreateToken(ctx context.Context, by webhook.Actor, l webhook.ConsoleLink) error
}

// The pages that use up a link: of the console for one that logs in with a key, else of the portal.
const (
	linkPath   = "/console/links/"
	portalPath = "/portal/links/"
)

// linkHandler makes links to the console.
type linkHandler struct {
	links   ConsoleLinks // nil while the console is switched off
	auth    *authenticator
	proxies trustedProxies
	url     string // see Config.ConsoleURL
	now     func() time.Time
}

// show shows a new link. Its URL is shown once.
func (h *linkHandler) show(c call, l webhook.ConsoleLink, token string) client.ConsoleLink {
	shown := client.ConsoleLink{
		ID: l.ID.String(), URL: h.consoleURL(c.Request()) + linkPath + token, Scope: l.Access.String(), ExpiresAt: timestamp(l.ExpiresAt),
	}
	if l.Access.Portal() {
		shown.URL, shown.Capabilities = h.consoleURL(c.Request())+portalPath+token+lookOf(l.Portal), l.Portal.Capabilities()
	}
	return shown
}

// lookOf is how the page of a link looks, as a query: the page shows a button before the link is looked up.
func lookOf(o webhook.PortalOptions) string {
	query := url.Values{}
	if o.Lang != "" {
		query.Set("lang", o.Lang)
	}
	if o.Theme != "" {
		query.Set("theme", o.Theme)
	}
	if o.Embed {
		query.Set("embed", "true")
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

// create makes a link with which a product shows the portal of a tenant to its own customer, or a token for a page of its own.
func (h *linkHandler) create(c call) error {
	l := webhook.ConsoleLink{TenantID: c.tenant, Access: webhook.AccessView}
	given := portalFields{kind: kindLink}
	err := c.object(func(d *jsonDecoder, name string) {
		if !given.field(d, &l, name) {
			d.unknown()
		}
	}, "scope")
	if err != nil {
		return err
	}
	if err := given.problem(l); err != nil {
		return err
	}
	if !given.chosen && l.Access == webhook.AccessManage { // all, unless the link says which
		l.Portal.Secrets, l.Portal.Filters, l.Portal.Replay = true, true, true
	}
	if h.links == nil {
		return errConsoleOff()
	}
	if given.kind == kindToken {
		return h.createToken(c, l, given.lifeOf())
	}
	token := h.newLink(&l, c.key, given.lifeOf())
	if err := h.links.CreateLink(c.Request().Context(), c.actor(), l); err != nil {
		return err
	}
	return c.json(http.StatusCreated, h.show(c, l, token))
}

// createToken makes a portal token, with which a page of the product calls the API from the browser of its customer.
func (h *linkHandler) createToken(c call, l webhook.ConsoleLink, life time.Duration) error {
	h.completeLink(&l, c.key, life)
	var token string
	token, l.SHA256 = newPortalToken(l.ID)
	if err := h.links.CreateToken(c.Request().Context(), c.actor(), l); err != nil {
		return err
	}
	return c.json(http.StatusCreated, client.ConsoleLink{
		ID: l.ID.String(), Token: token, Scope: l.Access.String(), Capabilities: l.Portal.Capabilities(), ExpiresAt: timestamp(l.ExpiresAt),
	})
}

// createLogIn makes a link that logs the caller in to the console.
func (h *linkHandler) createLogIn(c call) error {
	if err := c.noBody(); err != nil {
		return err
	}
	if h.links == nil {
		return errConsoleOff()
	}
	l := webhook.ConsoleLink{Access: webhook.AccessKey}
	token := h.newLink(&l, c.key, webhook.MaxLinkLife)
	if err := h.links.CreateLink(c.Request().Context(), c.actor(), l); err != nil {
		return err
	}
	return c.json(http.StatusCreated, h.show(c, l, token))
}

func errConsoleOff() error {
	return &webhook.Error{Code: webhook.CodeConflict, Message: "the console is switched off (EVERPOST_CONSOLE)"}
}

// logInLink stores a link that logs in with a key, and returns its path. The key's text is given.
func (h *linkHandler) logInLink(ctx context.Context, by webhook.Actor, keyText string) (path string, err error) {
	key, err := h.auth.Authenticate(ctx, keyText)
	if err != nil {
		return "", err
	}
	l := webhook.ConsoleLink{TenantID: key.TenantID, Access: webhook.AccessKey}
	token := h.newLink(&l, key, webhook.MaxLinkLife)
	if err := h.links.CreateLink(ctx, by, l); err != nil {
		return "", err
	}
	return linkPath + token, nil
}

// newLink completes a link of a key and returns its token, of which only the hash is stored.
func (h *linkHandler) newLink(l *webhook.ConsoleLink, key webhook.Key, life time.Duration) (token string) {
	h.completeLink(l, key, life)
	token = rand.Text()
	l.SHA256 = sha256.Sum256([]byte(token))
	return token
}

// completeLink completes a link of a key, but for its token. It ends with the key.
func (h *linkHandler) completeLink(l *webhook.ConsoleLink, key webhook.Key, life time.Duration) {
	l.ID, l.KeyID, l.KeySHA256 = webhook.NewLinkID(), key.ID, h.auth.KeyHash(key)
	l.ExpiresAt = h.now().UTC().Truncate(time.Microsecond).Add(life)
	if end := key.ExpiresAt; !end.IsZero() && end.Before(l.ExpiresAt) {
		l.ExpiresAt = end
	}
}

// consoleURL is the address of this installation for a browser: the configured one, or the one that
// the request came to.
func (h *linkHandler) consoleURL(r *http.Request) string {
	if h.url != "" {
		return h.url
	}
	if h.proxies.Secure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func readLinkScope(d *jsonDecoder) webhook.ConsoleAccess {
	name, ok := d.str()
	switch {
	case name == webhook.AccessManage.String():
		return webhook.AccessManage
	case ok && name != webhook.AccessView.String():
		d.note(`must be "view" or "manage"`)
	}
	return webhook.AccessView
}

// readReturnURL reads a URL for a link on a page. Other schemes, as javascript, could run there.
func readReturnURL(d *jsonDecoder) string {
	text, ok := d.str()
	if !ok {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || !printable(text, webhook.MaxReturnURL) {
		d.note("must be an http or https URL without user information")
		return ""
	}
	return text
}
