package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/signature"
)

const (
	demoPatience = 20 * time.Second // for the first event to go through
	demoPath     = "/demo"
	demoMaxBody  = 1 << 20
)

// demonstration is a receiver in this process that refuses the first attempt of
// every event with 503 and "Retry-After: 1" and takes the second, and the first
// event that is sent to it. It is set up on the first start of a data directory
// and listens on the same address from then on, while its tenant exists.
type demonstration struct {
	log    *slog.Logger
	file   string // remembers the address
	fresh  bool   // this is the first start
	addr   netip.AddrPort
	server *http.Server

	mu       sync.Mutex
	story    bool // the first event is being told: its arrivals are verified and kept
	secret   signature.Secret
	arrivals map[string][]arrival // by webhook-id
}

type arrival struct {
	at       time.Time
	status   int
	verified error
}

// openDemonstration starts the receiver when this is the first start, or when an
// earlier one has left its address and the demonstration's tenant is still there,
// which exists tells. Otherwise it does nothing.
func openDemonstration(
	ctx context.Context, dir, mode string, exists func(context.Context) (bool, error), log *slog.Logger,
) (*demonstration, error) {
	d := &demonstration{log: log, file: filepath.Join(dir, "demo.addr"), arrivals: map[string][]arrival{}}
	address := "127.0.0.1:0"
	text, err := os.ReadFile(d.file)
	switch {
	case err == nil:
		if there, err := exists(ctx); err != nil || !there {
			return d, err
		}
		address = strings.TrimSpace(string(text))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the demonstration's address: %w", err)
	case mode == "off" || !isFirstStart(dir):
		return d, nil
	default:
		d.fresh = true
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		log.WarnContext(ctx, "the demonstration's receiver cannot listen; its deliveries will wait", "address", address, "error", err)
		d.fresh = false
		return d, nil
	}
	d.addr = netip.MustParseAddrPort(listener.Addr().String())
	d.server = &http.Server{Handler: http.HandlerFunc(d.receive), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = d.server.Serve(listener) }() // ends with stop
	return d, nil
}

// isFirstStart reports whether no start in this directory got as far as markStarted.
func isFirstStart(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "started"))
	return errors.Is(err, fs.ErrNotExist)
}

func (d *demonstration) stop() {
	if d.server != nil {
		_ = d.server.Close()
	}
}

func (d *demonstration) url() string { return "http://" + d.addr.String() + demoPath }

// exemption is what the egress guard has to let through.
func (d *demonstration) exemption() app.Exemption {
	if d.server == nil {
		return app.Exemption{}
	}
	return app.Exemption{TenantID: app.DemoTenant, URL: d.url(), Addr: d.addr}
}

// receive answers a first attempt with 503 and every other one with 200.
func (d *demonstration) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, demoMaxBody))
	if err != nil {
		return
	}
	a := arrival{at: time.Now(), status: http.StatusOK}
	if r.Header.Get("everpost-attempt") == "1" {
		a.status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	d.keep(a, r.Header, body)
	w.WriteHeader(a.status)
}

// keep verifies and remembers what has arrived, while the story is told. Later there
// is nobody to tell, and no secret to verify with.
func (d *demonstration) keep(a arrival, h http.Header, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.story {
		return
	}
	id := h.Get(signature.HeaderID)
	a.verified = signature.Verify(signature.Message{
		ID: id, Timestamp: h.Get(signature.HeaderTimestamp), Signature: h.Get(signature.HeaderSignature), Body: body,
	}, a.at, 0, d.secret)
	d.arrivals[id] = append(d.arrivals[id], a)
}

// tell begins the story, with the secret of its endpoint, or ends it.
func (d *demonstration) tell(begin bool, secret signature.Secret) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.story, d.secret = begin, secret
	clear(d.arrivals)
}

// show sends the first event and tells what happens to it. A demonstration that
// fails is told too, and is no reason not to run.
func (d *demonstration) show(ctx context.Context, out io.Writer, a *app.App, api, keyFile string) error {
	if !d.fresh {
		return markStarted(d.file)
	}
	_, secret, err := a.SetUpDemo(ctx, d.url())
	var parsed signature.Secret
	if err == nil {
		parsed, err = signature.ParseSecret(secret)
	}
	if err == nil {
		err = replaceFile(d.file, d.addr.String()+"\n")
	}
	if err != nil {
		d.log.ErrorContext(ctx, "the demonstration cannot be shown", "error", err)
		return nil
	}
	if err := markStarted(d.file); err != nil {
		return err
	}
	d.tell(true, parsed)
	defer d.tell(false, signature.Secret{})
	story := &story{demo: d, out: out, api: api, keyFile: keyFile}
	if err := story.tell(ctx); err != nil {
		d.log.ErrorContext(ctx, "the demonstration did not go through", "error", err)
	}
	return nil
}

func markStarted(file string) error {
	if err := replaceFile(filepath.Join(filepath.Dir(file), "started"), ""); err != nil {
		return fmt.Errorf("remember the first start: %w", err)
	}
	return nil
}

// story is the demonstration's event on its way, told line by line.
type story struct {
	demo         *demonstration
	out          io.Writer
	api, keyFile string
	begun        time.Time
	accepted     time.Duration // after that
}

func (s *story) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *story) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	key, err := os.ReadFile(s.keyFile)
	if err != nil {
		return fmt.Errorf("read the operator key: %w", err)
	}
	s.begun = time.Now()
	event, err := s.call(ctx, string(bytes.TrimSpace(key)), http.MethodPost, "/v1/tenants/"+app.DemoTenant+"/events",
		`{"type":"demo.hello","payload":{"hello":"world"}}`)
	if err != nil {
		return err
	}
	s.accepted = time.Since(s.begun)
	s.sayf("\nA demonstration: one event, to a receiver that is busy at first.")
	s.linef(s.accepted, "accepted     %s, stored, 202", event.ID)
	if len(event.Deliveries) != 1 {
		return fmt.Errorf("the event has %d deliveries, not one", len(event.Deliveries))
	}
	delivery, err := s.follow(ctx, string(bytes.TrimSpace(key)), event.Deliveries[0].ID)
	if err != nil {
		return err
	}
	s.arrivals(event.ID)
	s.sayf("Its workflow, with both attempts: %s", delivery.WorkflowURL)
	s.sayf("Send the next one:\n  curl -sS %s/v1/tenants/%s/events -H \"Authorization: Bearer $(cat %s)\" -H 'Content-Type: application/json' -d '%s'\n",
		s.api, app.DemoTenant, s.keyFile, `{"type":"demo.hello","payload":{"hello":"again"}}`)
	return nil
}

func (s *story) linef(at time.Duration, format string, args ...any) {
	s.sayf("  %6.3f s  "+format, append([]any{at.Seconds()}, args...)...)
}

// arrivals tells what the receiver saw.
func (s *story) arrivals(id string) {
	s.demo.mu.Lock()
	defer s.demo.mu.Unlock()
	for n, a := range s.demo.arrivals[id] {
		signed := "signature verified"
		if a.verified != nil {
			signed = "SIGNATURE NOT VERIFIED: " + a.verified.Error()
		}
		at := a.at.Sub(s.begun)
		if at < s.accepted { // the event is stored, and its first request does not wait for us to know
			signed += ", while the 202 was on its way"
		}
		if a.status == http.StatusOK {
			s.linef(at, "attempt %d    200, delivered; %s", n+1, signed)
		} else {
			s.linef(at, "attempt %d    %d with Retry-After: 1, waiting 1 s as asked; %s", n+1, a.status, signed)
		}
	}
}

// shown is what the story needs of an event or a delivery.
type shown struct {
	ID          string  `json:"id"`
	State       string  `json:"state"`
	WorkflowURL string  `json:"workflow_url"`
	Deliveries  []shown `json:"deliveries"`
	Detail      string  `json:"detail"`
}

// follow asks for the delivery until it has come to rest.
func (s *story) follow(ctx context.Context, key, id string) (shown, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := s.call(ctx, key, http.MethodGet, "/v1/tenants/"+app.DemoTenant+"/deliveries/"+id, "")
		if err != nil || d.State != "pending" && d.State != "retrying" {
			return d, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return shown{}, fmt.Errorf("the delivery is still %s after %s", d.State, demoPatience)
		}
	}
}

func (s *story) call(ctx context.Context, key, method, path, body string) (shown, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.api+path, strings.NewReader(body))
	if err != nil {
		return shown{}, fmt.Errorf("ask the API: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: demoPatience}
	response, err := client.Do(request)
	if err != nil {
		return shown{}, fmt.Errorf("ask the API: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer shown
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return shown{}, fmt.Errorf("read the API's answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return shown{}, fmt.Errorf("the API answered %d: %s", response.StatusCode, answer.Detail)
	}
	return answer, nil
}
