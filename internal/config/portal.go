package config

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Portal has the settings of how the portal at /portal looks to a product's customers.
type Portal struct {
	// PortalName is shown beside the logo and in titles.
	PortalName string `env:"EVERPOST_PORTAL_NAME" help:"Name in the portal's header and titles, 1 to 40 characters." name:"portal-name" placeholder:"NAME" role:"api" section:"console" see:"portal.md#brand-it" unset:"none"`

	// PortalColor is the accent.
	PortalColor string `env:"EVERPOST_PORTAL_COLOR" help:"Accent colour of the portal, as '#rrggbb'." name:"portal-color" placeholder:"#rrggbb" role:"api" section:"console" see:"portal.md#brand-it" unset:"EVERPOST_CONSOLE_COLOR"`

	// PortalLogo, PortalLogoDark, PortalFavicon and PortalFont are files, which are read at the start.
	PortalLogo     string `env:"EVERPOST_PORTAL_LOGO" help:"File with the portal's logo: PNG or WebP, up to 256 KiB." name:"portal-logo" placeholder:"FILE" role:"api" section:"console" see:"portal.md#brand-it" unset:"none"`
	PortalLogoDark string `env:"EVERPOST_PORTAL_LOGO_DARK" help:"File with the logo for the dark theme: PNG or WebP, up to 256 KiB." name:"portal-logo-dark" placeholder:"FILE" role:"api" section:"console" see:"portal.md#brand-it" unset:"EVERPOST_PORTAL_LOGO"`
	PortalFavicon  string `env:"EVERPOST_PORTAL_FAVICON" help:"File with the portal's icon: PNG or WebP, up to 256 KiB." name:"portal-favicon" placeholder:"FILE" role:"api" section:"console" see:"portal.md#brand-it" unset:"a plain one"`
	PortalFont     string `env:"EVERPOST_PORTAL_FONT" help:"File with the portal's font: WOFF2, up to 512 KiB." name:"portal-font" placeholder:"FILE" role:"api" section:"console" see:"portal.md#brand-it" unset:"the system's"`

	// PortalOrigins are the origins whose pages may call the API with a portal token.
	PortalOrigins []string `env:"EVERPOST_PORTAL_ORIGINS" help:"Origins whose pages may call the API with a portal token, as 'https://app.example.com', separated by commas." name:"portal-origins" placeholder:"ORIGIN,..." role:"api" section:"console" see:"portal.md#a-page-of-your-own" unset:"none"`

	// PortalCatalogues is a directory with texts in further languages.
	PortalCatalogues string `env:"EVERPOST_PORTAL_CATALOGUES" help:"Directory with the portal's texts in further languages, as 'fr.json'; up to 32 files of 256 KiB." name:"portal-catalogues" placeholder:"DIR" role:"api" section:"console" see:"portal.md#translate-it" unset:"none: English and German"`
}

// isListedOrigin reports whether the text is an origin as a browser sends it: in lower case, and without the scheme's own port. Another
// spelling would never match.
func isListedOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || !isOrigin(text) || u.User != nil || text != strings.ToLower(text) || strings.HasSuffix(u.Host, ":") {
		return false
	}
	switch port := u.Port(); {
	case port == "":
	case u.Scheme == "https" && port == "443", u.Scheme == "http" && port == "80":
		return false
	default:
		number, err := strconv.ParseUint(port, 10, 16)
		return err == nil && strconv.FormatUint(number, 10) == port
	}
	return !strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII || r == '?' })
}

// validate adds an error for each invalid setting of the portal. The files are checked when they are read.
func (p *Portal) validate(bad *refusals) {
	if p.PortalName != "" && (utf8.RuneCountInString(p.PortalName) > maxConsoleName || strings.ContainsFunc(p.PortalName, notPrintable)) {
		bad.addf("EVERPOST_PORTAL_NAME", "must be 1 to %d printable characters", maxConsoleName)
	}
	if p.PortalColor != "" && !regexp.MustCompile(`^#[0-9a-fA-F]{6}$`).MatchString(p.PortalColor) {
		bad.addf("EVERPOST_PORTAL_COLOR", "must be a colour of the form #rrggbb")
	}
	if slices.ContainsFunc(p.PortalOrigins, func(origin string) bool { return !isListedOrigin(origin) }) {
		bad.addf("EVERPOST_PORTAL_ORIGINS", "must be origins as browsers send them, such as https://app.example.com, separated by commas: "+
			"in lower case, without a path, a wildcard, and the scheme's own port")
	}
}
