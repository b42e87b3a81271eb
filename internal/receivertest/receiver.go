// Package receivertest is a webhook receiver that does what it is told: it records
// what arrives and answers by a script. It serves over real connections.
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

// Options say how a receiver is started. The zero value is a plain one on a free port.
type Options struct {
	// Addr is where to listen. Defaults to "127.0.0.1:0".
	Addr string

	// TLS makes it serve https. Defaults to plain http.
	TLS *tls.Config

	// Keep is how many of the latest requests are remembered. Defaults to 10,000.
	Keep int

	// OnRequest is called for each request, one at a time, when it has been read and
	// before it is answered. Optional.
	OnRequest func(Request, Step)
}

// Request is one request as it arrived.
type Request struct {
	Number     int // counted from 1
	Method     string
	Path       string // with the query
	Header     http.Header
	Body       []byte
	RemoteAddr string // tells connections apart
	ReceivedAt time.Time
}

// WebhookID is the id that all attempts of one event share.
func (r Request) WebhookID() string { return r.Header.Get(standardwebhooks.HeaderWebhookID) }

// Verify checks the request's signature (scheme v1) and that its timestamp is at
// most five minutes off, with the library that Standard Webhooks gives to receivers.
func (r Request) Verify(secret string) error {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return errors.New("verify request: the secret is not base64") // the library's error repeats it
	}
	if err := webhook.Verify(r.Body, r.Header); err != nil {
		return fmt.Errorf("verify request %d: %w", r.Number, err)
	}
	return nil
}

// Step is one answer. The zero value is an empty 200.
type Step struct {
	Status int               // defaults to 200
	Header map[string]string // of the answer
	Body   string
	Delay  time.Duration // before answering
	Hang   bool          // do not answer until the sender leaves or the receiver stops
	Drop   bool          // close the connection instead of answering
	Raw    string        // write these bytes instead of an answer, then close
}

// Receiver is a running receiver. All methods are safe for concurrent use.
type Receiver struct {
	options Options
	addr    netip.AddrPort

	mu       sync.Mutex
	changed  *sync.Cond // something below has changed
	requests []Request  // the latest options.Keep
	count    int        // of all requests ever
	active   int        // requests being served
	most     int        // as many at a time as there ever were
	held     int        // those of them that wait at the gate
	gate     bool       // shut: requests wait
	scripts  map[string][]Step
	fallback Step

	serving *serving // nil when stopped
	notify  sync.Mutex
}

// serving is one life of the receiver, between start and stop.
type serving struct {
	server *http.Server
	stop   context.CancelFunc
	done   chan struct{} // closed when the port is
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
			r.enter(1)
			defer r.enter(-1)
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
		_ = s.server.Serve(listener) // always an error: that it was closed
	}()
	return bound, nil
}

// Stop closes the port and every connection; whoever waits for an answer gets none.
// What was recorded stays.
func (r *Receiver) Stop() {
	r.mu.Lock()
	s := r.serving
	r.serving = nil
	r.mu.Unlock()
	if s == nil {
		return
	}
	s.stop()
	_ = s.server.Close() // its only errors are of connections already gone
	<-s.done
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.active > 0 {
		r.changed.Wait()
	}
}

// Restart stops the receiver if it runs and starts it on the same address, with the
// same scripts and records.
func (r *Receiver) Restart() error {
	r.Stop()
	_, err := r.listen(r.addr.String())
	return err
}

// Addr is the address it listens on.
func (r *Receiver) Addr() netip.AddrPort { return r.addr }

// URL is the address as a URL, without a path.
func (r *Receiver) URL() string {
	if r.options.TLS != nil {
		return "https://" + r.addr.String()
	}
	return "http://" + r.addr.String()
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBodyBytes))
	if err != nil || req.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the sender left in the middle, or we stop: not a request
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
	if !r.passGate(req.Context()) || !answer(req.Context(), w, step) {
		panic(http.ErrAbortHandler) // how a handler closes the connection without an answer
	}
}

// record remembers the request, numbers it, and takes its step off the script.
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

// passGate waits while requests are held and tells whether the sender is still there.
func (r *Receiver) passGate(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, r.wake)
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gate {
		return true
	}
	r.held++
	r.changed.Broadcast()
	for r.gate && ctx.Err() == nil {
		r.changed.Wait()
	}
	r.held--
	r.changed.Broadcast()
	return ctx.Err() == nil
}

// enter counts a request in (1) or out (-1).
func (r *Receiver) enter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active += n
	r.most = max(r.most, r.active)
	r.changed.Broadcast()
}

func (r *Receiver) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
}

// answer does what the step says and tells whether that was an answer.
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
			return false // HTTP/2 was asked for, which has no connection to take over
		}
		_, _ = buffered.WriteString(step.Raw) // a sender that has left is no concern of ours
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
