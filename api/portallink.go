package api

import (
	"slices"
	"time"

	"golang.org/x/text/language"

	"github.com/everpost/everpost/internal/webhook"
)

// The kinds of what opens a portal.
const (
	kindLink  = "link"  // to Everpost's pages
	kindToken = "token" // for a page of the product
)

// portalFields are the fields of a portal link that are not stored as they are.
type portalFields struct {
	kind   string
	life   time.Duration // 0: the default of the kind
	chosen bool          // capabilities are given
}

// lifeOf is how long a link can be used, or a token is valid.
func (f *portalFields) lifeOf() time.Duration {
	switch {
	case f.life != 0:
		return f.life
	case f.kind == kindToken:
		return webhook.MaxLinkLife
	}
	return webhook.DefaultLinkLife
}

// problem refuses fields of Everpost's pages for a token, which opens none.
func (f *portalFields) problem(l webhook.ConsoleLink) error {
	if f.kind != kindToken {
		return nil
	}
	refused := &webhook.Error{Code: webhook.CodeInvalid, Message: "the request is not valid"}
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"return_url", l.ReturnURL != ""},
		{"refresh_url", l.Portal.RefreshURL != ""},
		{"lang", l.Portal.Lang != ""},
		{"theme", l.Portal.Theme != ""},
		{"embed", l.Portal.Embed},
	} {
		if field.given {
			refused.Fields = append(refused.Fields, webhook.FieldError{Field: field.name, Message: "is for links: a token opens no page of Everpost"})
		}
	}
	if len(refused.Fields) == 0 {
		return nil
	}
	return refused
}

// field reads a field of a new link. It returns false for one that is not known.
func (f *portalFields) field(d *jsonDecoder, l *webhook.ConsoleLink, name string) bool {
	switch name {
	case "kind":
		set(d, &f.kind, kindLink, readLinkKind)
	case "scope":
		l.Access = readLinkScope(d)
	case "expires_in":
		set(d, &f.life, 0, func(d *jsonDecoder) time.Duration {
			return d.duration(webhook.MinLinkLife, webhook.MaxLinkLife)
		})
	case "return_url":
		set(d, &l.ReturnURL, "", readReturnURL)
	case "refresh_url":
		set(d, &l.Portal.RefreshURL, "", readReturnURL)
	case "capabilities":
		if !d.null() {
			f.chosen = true
			readCapabilities(d, &l.Portal)
		}
	case "lang":
		set(d, &l.Portal.Lang, "", readLanguage)
	case "theme":
		set(d, &l.Portal.Theme, "", readTheme)
	case "embed":
		set(d, &l.Portal.Embed, false, readBoolean)
	default:
		return false
	}
	return true
}

func readLinkKind(d *jsonDecoder) string {
	text, ok := d.str()
	if ok && text != kindLink && text != kindToken {
		d.note(`must be "link" or "token"`)
	}
	return text
}

// readCapabilities reads what a link permits beside its scope.
func readCapabilities(d *jsonDecoder, o *webhook.PortalOptions) {
	var seen []string
	d.array(func(int) {
		name, ok := d.str()
		switch {
		case !ok:
			return
		case slices.Contains(seen, name):
			d.note("is there twice")
		case name == webhook.CapabilitySecrets:
			o.Secrets = true
		case name == webhook.CapabilityFilters:
			o.Filters = true
		case name == webhook.CapabilityReplay:
			o.Replay = true
		default:
			d.note(`must be "secrets", "filters" or "replay"`)
		}
		seen = append(seen, name)
	})
}

func readLanguage(d *jsonDecoder) string {
	text, ok := d.str()
	if !ok {
		return ""
	}
	if _, err := language.Parse(text); err != nil || len(text) > webhook.MaxLanguageTag || text == "" {
		d.note(`must be a language tag such as "de" or "pt-BR"`)
		return ""
	}
	return text
}

func readTheme(d *jsonDecoder) string {
	text, ok := d.str()
	if ok && !slices.Contains([]string{webhook.ThemeAuto, webhook.ThemeLight, webhook.ThemeDark}, text) {
		d.note(`must be "auto", "light" or "dark"`)
	}
	return text
}
