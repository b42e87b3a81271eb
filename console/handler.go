package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

// New makes a console. An error means that the URL or a template is wrong.
func New(c Config) (*Console, error) {
	s := &Console{
		config: c.withDefaults(), mux: http.NewServeMux(), forms: http.NewCrossOriginProtection(),
		guesses: newLogInLimiter[netip.Prefix](guessBurst), logIns: newLogInLimiter[webhook.KeyID](logInBurst), streams: newStreams(),
		lookUps: api.NewSessionLookUps(refusal(http.StatusServiceUnavailable, "too many sessions are being looked up; try again in a moment")),
		pages:   newPlaces(maxPages), looks: newPlaces(maxLooks), slow: newPlaces(maxSlow), transfers: newPlaces(maxTransfers),
	}
	if c.URL != "" { // behind a proxy, requests may have another host
		if err := s.forms.AddTrustedOrigin(c.URL); err != nil {
			return nil, fmt.Errorf("read the console's URL: %w", err)
		}
	}
	s.assets = loadAssets(s.config.Color)
	var err error
	if s.templates, err = parseTemplates(s.config.Now); err != nil {
		return nil, fmt.Errorf("read the console's templates: %w", err)
	}
	for root, table := range map[string][]route{Root: routes(), PortalRoot: portalRoutes()} {
		for _, r := range table {
			method, path, _ := strings.Cut(r.pattern, " ")
			s.mux.Handle(method+" "+root+path, s.serve(r))
		}
	}
	if s.portal, err = newPortal(s.config); err != nil {
		return nil, fmt.Errorf("prepare the portal: %w", err)
	}
	s.mux.HandleFunc("GET "+PortalRoot+"/assets/{name}", s.portal.assets.serve)
	s.mux.HandleFunc("GET "+PortalRoot+embedScript, s.portal.serveEmbed)
	s.mux.HandleFunc("GET "+Root+"/assets/{name}", s.assets.serve)
	s.mux.Handle("/", s.serve(route{access: public, handle: func(*page) error { return errNotFound() }}))
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.headers(w, r)
	switch r.URL.Path {
	case Root, start:
		http.Redirect(w, r, Root+"/", http.StatusTemporaryRedirect)
		return
	case PortalRoot:
		http.Redirect(w, r, PortalRoot+"/", http.StatusTemporaryRedirect)
		return
	case favicon:
		http.Redirect(w, r, s.assets.address("icon.svg"), http.StatusTemporaryRedirect)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Close ends all streams.
func (s *Console) Close() { s.streams.close() }

// headers sets the headers of every response. The policies are the strictest under which the pages work.
func (s *Console) headers(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	ancestors := "'none'"
	portal, fonts := isBelow(r.URL.Path, PortalRoot), ""
	if portal && len(s.config.Portal.Font) > 0 {
		fonts = "font-src 'self'; "
	}
	if len(s.config.FrameAncestors) > 0 && portal {
		ancestors = strings.Join(s.config.FrameAncestors, " ")
	} else {
		h.Set("X-Frame-Options", "DENY")
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "+fonts+
		"form-action 'self'; base-uri 'none'; frame-ancestors "+ancestors)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // with "no-referrer", forms would have no origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}
