package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

// manner is how a receiver responds.
type manner int

const (
	answers   manner = iota // 200
	fails                   // 503
	refuses                 // 400
	alternate               // 200, 503, 200, …
	hangs                   // no response until the sender disconnects or the manner changes
)

// receiver records its requests and connections.
type receiver struct {
	lab    *lab
	base   string // http://127.0.0.1:40001
	server *http.Server
	ended  chan error

	mu       sync.Mutex
	manner   manner
	changed  chan struct{} // closed when the manner changes
	delay    time.Duration // before a response
	arrivals []arrival
	active   int                        // requests without a response yet
	most     int                        // maximum of active since the last resetMost
	open     map[net.Conn]time.Duration // since when
	closed   []stay
}

// stay is how long a connection was open, by the lab's clock.
type stay struct{ from, until time.Duration }

// arrival is a request.
type arrival struct {
	event string        // webhook-id
	at    time.Duration // since the beginning of the lab
	good  bool          // it got a 200
}

// receive starts a receiver on a free port of the loopback interface. It stops with the
// place.
func (p *place) receive(ctx context.Context, m manner) (*receiver, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for deliveries: %w", err)
	}
	r := &receiver{
		lab: p.lab, base: "http://" + listener.Addr().String(), ended: make(chan error, 1), manner: m, changed: make(chan struct{}),
		open: map[net.Conn]time.Duration{},
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute, ConnState: r.connection}
	go func() { r.ended <- r.server.Serve(listener) }()
	p.receivers = append(p.receivers, r)
	return r, nil
}

// against creates an endpoint of the tenant acme, for one type of event, with a receiver of
// its own.
func (p *place) against(ctx context.Context, m manner, kind string, settings fields) (to *receiver, endpoint string, err error) {
	if to, err = p.receive(ctx, m); err != nil {
		return nil, "", err
	}
	settings["url"], settings["event_types"], settings["auto_disable"] = to.base, []string{kind}, false
	endpoint, err = p.endpoint(ctx, "acme", settings)
	return to, endpoint, err
}

// stop closes the server and cuts off requests under way.
func (r *receiver) stop() error {
	err := r.server.Close()
	if served := <-r.ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// connection records when a connection begins and ends.
func (r *receiver) connection(c net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state {
	case http.StateNew:
		r.open[c] = r.lab.since()
	case http.StateClosed, http.StateHijacked:
		r.closed = append(r.closed, stay{r.open[c], r.lab.since()})
		delete(r.open, c)
	case http.StateActive, http.StateIdle:
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body) // the context reports a sender that disconnects
	m, delay, changed := r.enter(request.Header.Get("webhook-id"))
	defer r.leave()
	if m == hangs {
		select {
		case <-request.Context().Done():
		case <-changed:
		}
		panic(http.ErrAbortHandler) // closes the connection without a response
	}
	if installation.Pause(request.Context(), delay) != nil {
		return
	}
	switch m {
	case fails:
		w.WriteHeader(http.StatusServiceUnavailable)
	case refuses:
		w.WriteHeader(http.StatusBadRequest)
	case answers, alternate, hangs:
		w.WriteHeader(http.StatusOK)
	}
}

// enter records a request and returns how to respond.
func (r *receiver) enter(event string) (m manner, delay time.Duration, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m = r.manner
	if m == alternate && len(r.arrivals)%2 == 1 {
		m = fails
	}
	r.arrivals = append(r.arrivals, arrival{event, r.lab.since(), m == answers || m == alternate})
	r.active++
	r.most = max(r.most, r.active)
	return m, r.delay, r.changed
}

func (r *receiver) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
}

// become changes the manner and returns the time of the change.
func (r *receiver) become(m manner, delay time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.manner, r.delay = m, delay
	close(r.changed)
	r.changed = make(chan struct{})
	return r.lab.since()
}

// soFar returns the arrivals up to now, in order.
func (r *receiver) soFar() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.arrivals)
}

// count returns how many requests there were.
func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrivals)
}

// underWay returns the number of requests without a response yet.
func (r *receiver) underWay() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active
}

// resetMost resets the maximum of concurrent requests.
func (r *receiver) resetMost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = r.active
}

// hearing is how much later than the sender a receiver may notice that a connection has
// ended: the sender's next connection may arrive before.
const hearing = 50 * time.Millisecond

// atOnce returns the maximum of concurrent requests and of concurrent connections.
func (r *receiver) atOnce() (requests, connections int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stays := slices.Clone(r.closed)
	for _, from := range r.open {
		stays = append(stays, stay{from, r.lab.since() + hearing})
	}
	for _, one := range stays { // the maximum is reached when a connection begins
		n := 0
		for _, other := range stays {
			if other == one || other.from <= one.from && one.from < other.until-hearing {
				n++
			}
		}
		connections = max(connections, n)
	}
	return r.most, connections
}

// closedPort returns an address of the loopback interface that refuses connections until
// release: the port is bound, but nothing listens.
func closedPort() (address string, release func(), err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return "", nil, fmt.Errorf("take a port: %w", err)
	}
	release = func() { _ = syscall.Close(socket) }
	err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(socket)
	}
	at, ok := bound.(*syscall.SockaddrInet4)
	if err != nil || !ok {
		release()
		return "", nil, fmt.Errorf("take a port: %w", err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", at.Port), release, nil
}
