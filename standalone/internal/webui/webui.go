// Package webui serves Temporal's Web UI in this process.
//
// It assembles the UI's published packages itself. The UI's own Server is not used: it ends
// the whole process when its port is taken, cannot report which port it got, writes to
// standard output, and cuts off requests when it stops.
package webui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/temporalio/ui-server/v2/server/api"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/cors"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"

	"github.com/everpost/everpost/internal/hosts"
)

// Options configures the UI.
type Options struct {
	// Listen is the address, an IP address (or localhost) and a port; port 0 takes a free one.
	// Defaults to 127.0.0.1:0.
	Listen string

	// Hosts are the host names that the UI accepts, besides IP addresses and localhost.
	Hosts hosts.Allowed

	// Temporal is the address of the frontend. Required.
	Temporal string

	// Namespace is shown first. Defaults to "default".
	Namespace string

	// Logger gets the messages of the HTTP server. Nil discards them.
	Logger *slog.Logger
}

// Limits on requests. A long poll of a history lasts up to half a minute.
const (
	headerTimeout  = 10 * time.Second
	readTimeout    = 30 * time.Second
	writeTimeout   = 2 * time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10

	// maxBody bounds a request; Temporal itself accepts no signal or query above 2 MiB.
	maxBody = "4M"
)

// UI is a running Web UI. It is safe for concurrent use.
type UI struct {
	address string
	http    *http.Server
	log     *slog.Logger
	done    chan struct{} // closed when the server has ended
	err     error         // why it ended; valid after done
	once    sync.Once
}

// Start serves the UI and returns when it responds. It fails when the address is taken.
// Cancelling ctx ends the start, not a UI that has been returned.
func Start(ctx context.Context, o Options) (*UI, error) {
	if o.Temporal == "" {
		return nil, errors.New("web UI: Temporal's address is not set")
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("web UI's address %s: %w", o.Listen, rootCause(err))
	}
	bound, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.Join(fmt.Errorf("web UI's address %s: bound to %s", o.Listen, listener.Addr()), listener.Close())
	}
	handler, err := newHandler(o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start web UI: %w", err), listener.Close())
	}

	u := &UI{
		address: dialAddress(bound),
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		},
		log:  o.Logger,
		done: make(chan struct{}),
	}
	go func() {
		defer close(u.done)
		if err := u.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			u.err = fmt.Errorf("serve web UI: %w", err)
		}
	}()
	if err := u.check(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start web UI: %w", err), u.Stop(context.WithoutCancel(ctx)))
	}
	return u, nil
}

// check verifies that requests reach a handler. The port is bound and served, so one
// request is enough.
func (u *UI) check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL()+"/healthz", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask for /healthz: %w", err)
	}
	client := http.Client{Timeout: headerTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for /healthz: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for /healthz: answered %s", response.Status)
	}
	return nil
}

// Address returns the address, host and port, for connections from this machine.
func (u *UI) Address() string { return u.address }

// URL returns the address as a URL without a path, "http://127.0.0.1:8233".
func (u *UI) URL() string { return "http://" + u.address }

// Stop ends the UI: requests under way may finish until ctx is done. If the UI had ended by
// itself, Stop returns why. Further calls do nothing.
func (u *UI) Stop(ctx context.Context) error {
	u.once.Do(func() {
		if err := u.http.Shutdown(ctx); err != nil {
			u.log.DebugContext(ctx, "web UI: cutting off requests", slog.Any("error", err))
			_ = u.http.Close()
		}
	})
	<-u.done
	return u.err
}

// newHandler assembles the UI in the order of the UI's own server.
func newHandler(o Options) (http.Handler, error) {
	provider, err := config.NewConfigProviderWithRefresh(&config.Config{
		TemporalGRPCAddress: o.Temporal,
		EnableUI:            true,
		DefaultNamespace:    o.Namespace,
		DisableNewsFetch:    true, // no requests to temporal.io
		NotifyOnNewVersion:  false,
		HideLogs:            true,
		// Without this the CSRF cookie is for https only, and every write fails.
		CORS: config.CORS{CookieInsecure: true},
	})
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	assets, err := ui.Assets()
	if err != nil {
		return nil, fmt.Errorf("open assets: %w", err)
	}
	if assets, err = fs.Sub(assets, "local"); err != nil {
		return nil, fmt.Errorf("open assets: %w", err)
	}

	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Use(middleware.Recover(), middleware.BodyLimit(maxBody), middleware.Gzip())
	e.Use(cors.CORSMiddleware(cors.CORSConfig{ConfigProvider: provider})) // no other origins
	e.Use(middleware.Secure())
	e.Use(csrf.EnsureTokenCookie(false), middleware.CSRFWithConfig(csrf.MiddlewareConfig(provider, false)))

	route.SetHealthRoute(e)
	forward := headers.WithForwardHeaders([]string{"Caller-Type"})
	if err := route.SetAPIRoutes(e, provider, []api.Middleware{forward}); err != nil {
		return nil, fmt.Errorf("set API routes: %w", err)
	}
	if err := route.SetUIRoutes(e, "", assets, provider); err != nil {
		return nil, fmt.Errorf("set UI routes: %w", err)
	}
	route.SetRenderRoute(e, "/")
	// The UI has no authentication, so it checks host names on every address that it is
	// bound to; a container's UI is bound to all addresses.
	return hosts.Check(e, o.Hosts, "EVERPOST_UI_HOSTS"), nil
}

// dialAddress returns a bound address for connections from this machine.
func dialAddress(bound *net.TCPAddr) string {
	ip := bound.IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1) // also reaches a listener on [::]
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(bound.Port))
}

// rootCause returns the system's error without the address, which the message already
// contains.
func rootCause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
