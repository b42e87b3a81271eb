// Package receivertest is a scriptable webhook receiver: it records requests and responds
// by a script, over real connections.
package receivertest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// maxBodyBytes bounds what is read of a request's body.
const maxBodyBytes = 8 << 20

// Options configure a receiver. The zero value serves plain http on a free port.
type Options struct {
	// Addr is the address to listen on. Defaults to "127.0.0.1:0".
	Addr string

	// TLS makes it serve https. Defaults to plain http.
	TLS *tls.Config

	// Keep is how many of the latest requests are recorded. Defaults to 10,000.
	Keep int

	// OnRequest is called for each request, one at a time, after it was read and before the
	// response. Optional.
	OnRequest func(Request, Step)
}

// Request is one request as it arrived.
type Request struct {
	Number     int // counted from 1
	Method     string
	Path       string // including the query
	Header     http.Header
	Body       []byte
	RemoteAddr string // identifies the connection
	ReceivedAt time.Time
}

// WebhookID is the id that all attempts of one event share.
func (r Request) WebhookID() string { return r.Header.Get(standardwebhooks.HeaderWebhookID) }

// Verify checks the request's signature (scheme v1) and that its timestamp is at most five
// minutes off, with the Standard Webhooks library for receivers.
func (r Request) Verify(secret string) error {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return errors.New("verify request: the secret is not base64") // the library's error contains the secret
	}
	if err := webhook.Verify(r.Body, r.Header); err != nil {
		return fmt.Errorf("verify request %d: %w", r.Number, err)
	}
	return nil
}

// Step is one response. The zero value is an empty 200.
type Step struct {
	Status int               // defaults to 200
	Header map[string]string // of the response
	Body   string
	Delay  time.Duration // before the response
	Hang   bool          // do not respond until the sender disconnects or the receiver stops
	Drop   bool          // close the connection without a response
	Raw    string        // write these bytes as the response, then close
}

// Receiver is a running receiver. All methods are safe for concurrent use.
type Receiver struct {
	options Options
	addr    netip.AddrPort

	mu        sync.Mutex
	changed   *sync.Cond // signals changes of the fields below
	requests  []Request  // the latest options.Keep
	count     int        // of all requests
	active    int        // requests being served
	maxActive int        // maximum of active
	held      int        // active requests that wait for Release
	holding   bool       // requests wait for Release
	scripts   map[string][]Step
	fallback  Step

	serving *serving // nil when stopped
	notify  sync.Mutex
}

// serving is the state between a start and a stop.
type serving struct {
	server *http.Server
	stop   context.CancelFunc
	done   chan struct{} // closed when the port is closed
}

// Start starts a receiver. Stop it when done.
func Start(options Options) (*Receiver, error) {
	if options.Addr == "" {
		options.Addr = "127.0.0.1:0"
	}
	if options.Keep <= 0 {
		options.Keep = 10_000
	}
	r := &Receiver{options: options, scripts: make(map[string][]Step)}
	r.changed = sync.NewCond(&r.mu)
	addr, err := r.listen(options.Addr)
	if err != nil {
		return nil, err
	}
	r.addr = addr
	return r, nil
}

func (r *Receiver) listen(address string) (netip.AddrPort, error) {
	ctx, stop := context.WithCancel(context.Background())
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		stop()
		return netip.AddrPort{}, fmt.Errorf("start receiver: %w", err)
	}
	bound, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		stop()
		_ = listener.Close()
		return netip.AddrPort{}, fmt.Errorf("start receiver: %w", err)
	}
	if r.options.TLS != nil {
		listener = tls.NewListener(listener, r.options.TLS)
	}
	s := &serving{stop: stop, done: make(chan struct{})}
	s.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.countActive(1)
			defer r.countActive(-1)
			r.serve(w, req)
		}),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 30 * time.Second,
	}
	r.mu.Lock()
	r.serving = s
	r.mu.Unlock()
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // always returns http.ErrServerClosed
	}()
	return bound, nil
}

// Stop closes the port and every connection; requests under way get no response. Recorded
// requests are kept.
func (r *Receiver) Stop() {
	r.mu.Lock()
	s := r.serving
	r.serving = nil
	r.mu.Unlock()
	if s == nil {
		return
	}
	s.stop()
	_ = s.server.Close() // only fails for connections that are already closed
	<-s.done
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.active > 0 {
		r.changed.Wait()
	}
}

// Restart stops the receiver if it runs and starts it on the same address with the same
// scripts and records.
func (r *Receiver) Restart() error {
	r.Stop()
	_, err := r.listen(r.addr.String())
	return err
}

// Addr returns the address that it listens on.
func (r *Receiver) Addr() netip.AddrPort { return r.addr }

// URL returns the address as a URL without a path.
func (r *Receiver) URL() string {
	if r.options.TLS != nil {
		return "https://" + r.addr.String()
	}
	return "http://" + r.addr.String()
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBodyBytes))
	if err != nil || req.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the sender disconnected, or the receiver stops: not a complete request
	}
	request := Request{
		Method:     req.Method,
		Path:       req.URL.RequestURI(),
		Header:     req.Header,
		Body:       body,
		RemoteAddr: req.RemoteAddr,
		ReceivedAt: time.Now(),
	}
	step := r.record(&request, req.URL.Path)
	if r.options.OnRequest != nil {
		r.notify.Lock()
		r.options.OnRequest(request, step)
		r.notify.Unlock()
	}
	if !r.awaitRelease(req.Context()) || !answer(req.Context(), w, step) {
		panic(http.ErrAbortHandler) // closes the connection without a response
	}
}

// record records and numbers the request, and takes its step from the script.
func (r *Receiver) record(request *Request, path string) Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	request.Number = r.count
	if len(r.requests) == r.options.Keep {
		r.requests = r.requests[1:]
	}
	r.requests = append(r.requests, *request)
	r.changed.Broadcast()

	for _, key := range []string{request.WebhookID(), path} {
		if steps := r.scripts[key]; len(steps) > 0 {
			r.scripts[key] = steps[1:]
			return steps[0]
		}
	}
	return r.fallback
}

// awaitRelease waits while requests are held and reports whether the sender is still
// connected.
func (r *Receiver) awaitRelease(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, r.wake)
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.holding {
		return true
	}
	r.held++
	r.changed.Broadcast()
	for r.holding && ctx.Err() == nil {
		r.changed.Wait()
	}
	r.held--
	r.changed.Broadcast()
	return ctx.Err() == nil
}

// countActive adds n to the active requests.
func (r *Receiver) countActive(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active += n
	r.maxActive = max(r.maxActive, r.active)
	r.changed.Broadcast()
}

func (r *Receiver) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
}

// answer executes the step and reports whether it sent a response.
func answer(ctx context.Context, w http.ResponseWriter, step Step) bool {
	if step.Delay > 0 {
		timer := time.NewTimer(step.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	switch {
	case step.Hang:
		<-ctx.Done()
		return false
	case step.Drop:
		return false
	case step.Raw != "":
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return false // HTTP/2 connections cannot be hijacked
		}
		_, _ = buffered.WriteString(step.Raw) // fails only if the sender has disconnected
		_ = buffered.Flush()
		_ = conn.Close()
	default:
		for name, value := range step.Header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(cmp.Or(step.Status, http.StatusOK))
		_, _ = io.WriteString(w, step.Body) // as above
	}
	return true
}
