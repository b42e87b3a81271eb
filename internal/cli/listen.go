package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/cli/receiver"
	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/signature"
)

const (
	listenTimeout = 30 * time.Second
	listenGrace   = 2 * time.Second // for requests under way at the stop
)

// ListenCommand is a receiver for tests by hand.
type ListenCommand struct {
	Port       uint16        `default:"8090" help:"Port to listen on; 0 means a free one." placeholder:"PORT"`
	Host       string        `default:"127.0.0.1" help:"Address to listen on." placeholder:"HOST"`
	Secret     []string      `env:"EVERPOST_LISTEN_SECRET" help:"The endpoint's secret (whsec_...) or public key (whpk_...), to verify signatures with; may be repeated." placeholder:"SECRET" section:"client"` //nolint:lll // a struct tag cannot be wrapped
	Status     int           `help:"Respond with this status; 200 without it, and 503 with --first." placeholder:"CODE"`
	First      int           `help:"Respond with it only to the first N requests of each webhook-id, then with 200." placeholder:"N"`
	RetryAfter *int          `help:"Send Retry-After with that response." placeholder:"SECONDS"`
	Delay      time.Duration `help:"Delay before every response." placeholder:"DURATION"`
	Body       bool          `help:"Print the payload too."`
}

// Run receives until a signal, then prints the number of requests.
func (c *ListenCommand) Run(ctx context.Context, p Process) error {
	settings, err := c.receiver(p)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	address := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s cannot be listened on (%w); choose another --port, or 0 for a free one", address, cause(err))
	}
	settings.Stopping = ctx.Done()
	r := receiver.New(settings)
	server := &http.Server{
		Handler: r, MaxHeaderBytes: 64 << 10, ReadHeaderTimeout: listenTimeout, IdleTimeout: time.Minute,
		// Both timeouts include the delay of the response.
		ReadTimeout: listenTimeout + c.Delay, WriteTimeout: listenTimeout + c.Delay,
	}
	r.Print("listening on http://" + l.Addr().String())
	if c.Host == "127.0.0.1" {
		_, _ = fmt.Fprintln(p.Stderr, "Everpost sends to this machine when it was started with 'everpost standalone --dev'; Ctrl-C ends")
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("listen: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenGrace)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("listen: %w", err)
	}
	r.Print(r.Summary())
	return nil
}

// cause is the system's error without the address, which the message already contains.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// receiver checks the flags and returns the configuration of the receiver.
func (c *ListenCommand) receiver(p Process) (receiver.Config, error) {
	config := receiver.Config{Out: p.Stdout, Status: c.Status, First: c.First, Delay: c.Delay, Body: c.Body}
	switch {
	case c.First < 0:
		return receiver.Config{}, usage("--first: must not be negative")
	case c.Delay < 0:
		return receiver.Config{}, usage("--delay: must not be negative")
	case c.Status != 0 && (c.Status < 200 || c.Status > 999):
		return receiver.Config{}, usage("--status: must be from 200 to 999")
	case c.RetryAfter != nil && *c.RetryAfter < 0:
		return receiver.Config{}, usage("--retry-after: must not be negative")
	case c.Status == 0 && c.First > 0:
		config.Status = http.StatusServiceUnavailable
	case c.Status == 0:
		config.Status = http.StatusOK
	}
	if c.RetryAfter != nil {
		config.RetryAfter = strconv.Itoa(*c.RetryAfter)
	}
	for _, text := range c.Secret {
		key, err := parseKey(text)
		if err != nil {
			return receiver.Config{}, usagef("--secret: %w", err)
		}
		config.Keys = append(config.Keys, key)
	}
	return config, nil
}

// parseKey parses a key to verify signatures with. The error does not contain it.
func parseKey(text string) (signature.Key, error) {
	if public, err := signature.ParsePublicKey(text); err == nil {
		return public, nil
	}
	text = credential.Trim(text)
	secret, err := signature.ParseSecret(text)
	if err != nil {
		return nil, fmt.Errorf("%w (whsec_..., whsk_... or whpk_...)", err)
	}
	return secret, nil
}
