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
	"net/netip"
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
	// Bound is where the UI is served. Start closes it. Defaults to a free port of loopback.
	Bound *Bound

	// Authorize reports whether a request may use the UI; one that may not gets 401. Required unless
	// Bound is loopback, where everybody on this machine may.
	Authorize func(*http.Request) bool

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

// Start serves the UI and returns when it responds.
// Cancelling ctx ends the start, not a UI that has been returned.
func Start(ctx context.Context, o Options) (*UI, error) {
	if o.Temporal == "" {
		return nil, errors.New("web UI: Temporal's address is not set")
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Bound == nil {
		var err error
		if o.Bound, err = Listen(ctx, "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	listener := o.Bound.listener
	if o.Authorize == nil && !o.Bound.Loopback() {
		return nil, errors.Join(errors.New("web UI: beyond loopback requests have to be authorized"), listener.Close())
	}
	handler, err := newHandler(o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start web UI: %w", err), listener.Close())
	}

	u := &UI{
		address: o.Bound.address(),
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL()+healthPath, http.NoBody)
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
	// The UI has no authentication of its own, so it checks host names on every address that it is
	// bound to; a container's UI is bound to all addresses.
	return hosts.Check(authorized(e, o.Authorize), o.Hosts, "EVERPOST_UI_HOSTS"), nil
}

// authorized serves the requests that may use the UI, and health checks. Without authorize that is every one.
func authorized(next http.Handler, authorize func(*http.Request) bool) http.Handler {
	if authorize == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != healthPath && !authorize(r) {
			http.Error(w, "This is for operators: log in to Everpost's console with an operator key, "+
				"in this browser and under the same host name, and reload this page.",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const healthPath = "/healthz"

// Bound is where a UI is served, or will be: its listener is open.
type Bound struct {
	listener net.Listener
	at       *net.TCPAddr
}

// Listen opens the listener of a UI at an IP address (or localhost) and a port; port 0 takes a free one. It fails when the address is taken.
func Listen(ctx context.Context, address string) (*Bound, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("web UI's address %s: %w", address, rootCause(err))
	}
	at, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.Join(fmt.Errorf("web UI's address %s: bound to %s", address, listener.Addr()), listener.Close())
	}
	return &Bound{listener, at}, nil
}

// Close closes the listener, unless a UI has it.
func (b *Bound) Close() error { return b.listener.Close() } //nolint:wrapcheck // names the listener

// AddrPort returns where the listener is bound.
func (b *Bound) AddrPort() netip.AddrPort { return b.at.AddrPort() }

// Loopback reports whether only this machine reaches the listener.
func (b *Bound) Loopback() bool { return b.at.IP.IsLoopback() }

// URL returns the address for connections from this machine, without a path: "http://127.0.0.1:8233".
func (b *Bound) URL() string { return "http://" + b.address() }

func (b *Bound) address() string {
	ip := b.at.IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1) // also reaches a listener on [::]
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(b.at.Port))
}

// rootCause returns the system's error without the address, which the message already
// contains.
func rootCause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
