package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/internal/signature"
)

const (
	maxListenBody = 1 << 20 // four times the largest payload
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
	r, err := c.receiver(p)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	address := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s cannot be listened on (%w); choose another --port, or 0 for a free one", address, cause(err))
	}
	r.stopping = ctx.Done()
	server := &http.Server{
		Handler: r, MaxHeaderBytes: 64 << 10, ReadHeaderTimeout: listenTimeout, IdleTimeout: time.Minute,
		// Both timeouts include the delay of the response.
		ReadTimeout: listenTimeout + c.Delay, WriteTimeout: listenTimeout + c.Delay,
	}
	r.print("listening on http://" + l.Addr().String())
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
	r.print(r.count())
	return nil
}

// cause is the system's error without the address, which the message already contains.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// receiver checks the flags and returns the receiver.
func (c *ListenCommand) receiver(p Process) (*receiver, error) {
	r := &receiver{
		out: p.Stdout, status: c.Status, first: c.First, delay: c.Delay, body: c.Body,
		requests: map[string]int{}, answers: map[int]int{}, verdicts: map[string]int{},
	}
	switch {
	case c.First < 0:
		return nil, usage("--first: must not be negative")
	case c.Delay < 0:
		return nil, usage("--delay: must not be negative")
	case c.Status != 0 && (c.Status < 200 || c.Status > 999):
		return nil, usage("--status: must be from 200 to 999")
	case c.RetryAfter != nil && *c.RetryAfter < 0:
		return nil, usage("--retry-after: must not be negative")
	case c.Status == 0 && c.First > 0:
		r.status = http.StatusServiceUnavailable
	case c.Status == 0:
		r.status = http.StatusOK
	}
	if c.RetryAfter != nil {
		r.retryAfter = strconv.Itoa(*c.RetryAfter)
	}
	for _, text := range c.Secret {
		key, err := parseKey(text)
		if err != nil {
			return nil, usagef("--secret: %w", err)
		}
		r.keys = append(r.keys, key)
	}
	return r, nil
}

// parseKey parses a key to verify signatures with. The error does not contain it.
func parseKey(text string) (signature.Key, error) {
	if public, err := signature.ParsePublicKey(text); err == nil {
		return public, nil
	}
	secret, err := signature.ParseSecret(text)
	if err != nil {
		return nil, fmt.Errorf("%w (whsec_..., whsk_... or whpk_...)", err)
	}
	return secret, nil
}

// readBody reads a request's body. status is the status to respond with when it cannot be
// read, else 0.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxListenBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, http.StatusRequestEntityTooLarge
	}
	if err != nil {
		return nil, http.StatusBadRequest
	}
	return body, 0
}
