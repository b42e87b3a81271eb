package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// listen opens both ports early, so that a port in use is reported at once, and that no request may go to them. The API answers when Start
// has come to it, which takes as long as the fleet and the worker do: up to fleetPatience and workerPatience.
func (a *App) listen() error {
	var err error
	if a.adminListen, err = listen(a.life, "EVERPOST_ADMIN_LISTEN", a.options.Config.AdminListen); err != nil {
		return err
	}
	a.push(phaseAdmin, func(context.Context) { _ = a.adminListen.Close() })
	admin := admin{a}
	admin.registerGauges()
	server := &http.Server{
		Handler:           admin.handler(),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: time.Minute, // beyond the duration of a profile
		IdleTimeout:  time.Minute,
	}
	a.serve(phaseAdmin, server, a.adminListen, time.Second)
	if !a.options.API {
		return nil
	}
	if a.apiListener, err = listen(a.life, "EVERPOST_LISTEN", a.options.Config.Listen); err != nil {
		return err
	}
	a.push(phaseListener, func(context.Context) { _ = a.apiListener.Close() })
	return nil
}

func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %s cannot be listened on (%w); is another process using it? Choose another address, or port 0 for a free one",
			setting, address, cause(err))
	}
	return l, nil
}

func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// APIAddr is the address the API is served on, "" without one.
func (a *App) APIAddr() string {
	if a.apiListener == nil {
		return ""
	}
	return a.apiListener.Addr().String()
}

// AdminAddr is the address of health checks and metrics.
func (a *App) AdminAddr() string { return a.adminListen.Addr().String() }
