package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/console"
	"github.com/everpost/everpost/internal/mailpage"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// consoleLinks stores links to the console; nil while it is switched off.
func (a *App) consoleLinks() api.ConsoleLinks {
	if a.options.Config.ConsoleSwitch == "off" {
		return nil
	}
	return a.store.Sessions
}

// withConsole returns a handler of the API and the console, and what ends the console's
// streams when the server stops.
func (a *App) withConsole(server *api.Server) (handler http.Handler, end func()) {
	handler, end = server.Handler(), func() {}
	if a.options.Config.ConsoleSwitch == "off" {
		return handler, end
	}
	c := a.options.Config.Console
	pages, err := console.New(console.Config{
		API: consoleAPI{server}, Sessions: a.store.Sessions,
		URL: c.ConsoleURL, Name: c.ConsoleName, Color: c.ConsoleColor, FrameAncestors: c.ConsoleFrameAncestors,
		Portal: a.portal, Version: a.options.Version, Logger: a.log, Now: a.store.Now, UISession: a.options.UISession,
		Doctor: func(ctx context.Context) []console.Finding {
			o := a.options
			return Diagnose(ctx, Installation{Config: o.Config, Version: o.Version, DataDir: o.DataDir, Temporal: o.Temporal, Logger: a.log})
		},
	})
	if err != nil { // a template is wrong: tests would have seen it
		a.log.Error("the console cannot be shown", "error", err)
		return handler, end
	}
	a.console = pages
	rest := handler
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if console.Owns(r) {
			pages.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	}), pages.Close
}

// withMailPages adds the pages that the links of notification mails lead to, also while no mail is sent: older mails have such links.
func (a *App) withMailPages(rest http.Handler) http.Handler {
	pages := mailpage.New(a.store.Notifications, a.options.Config.ConsoleName, a.log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mailpage.Owns(r) {
			pages.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// IsConsoleOperator reports whether a request to the Web UI comes from a browser in which an operator has logged in to the console.
func (a *App) IsConsoleOperator(r *http.Request) bool {
	return a.console != nil && a.console.IsOperator(r)
}

// consoleAPI is the API as the console uses it: its lists have limits of their own.
type consoleAPI struct{ *api.Server }

// As implements console.API.
func (a consoleAPI) As(caller api.Caller) http.Handler {
	next := a.Server.As(caller)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(postgres.ForPages(r.Context(), caller.Key.TenantID)))
	})
}

// ConsoleLogIn makes a link that logs in to the console with a key, once. It is "" while the console is
// switched off.
func (a *App) ConsoleLogIn(ctx context.Context, keyText string) (string, error) {
	if a.server == nil || a.consoleLinks() == nil {
		return "", nil
	}
	path, err := a.server.CreateLogInLink(ctx, webhook.Actor{Name: "standalone"}, keyText)
	if err != nil {
		return "", fmt.Errorf("make a link to the console: %w", err)
	}
	if base := a.options.Config.ConsoleURL; base != "" {
		return base + path, nil
	}
	return "http://" + forBrowser(a.APIAddr()) + path, nil
}

// forBrowser replaces an address that stands for all of the machine's by one that a browser can open.
func forBrowser(address string) string {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || !parsed.Addr().IsUnspecified() {
		return address
	}
	_, port, _ := net.SplitHostPort(address)
	return net.JoinHostPort("127.0.0.1", port)
}
