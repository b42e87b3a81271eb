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
	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/signature"
)

const (
	demoTimeout = 20 * time.Second // time limit of the first event's delivery
	demoPath    = "/demo"
	demoMaxBody = 1 << 20
)

// demonstration is a receiver in this process and the first event that is sent to it. The
// receiver rejects the first attempt of every event with 503 and "Retry-After: 1" and
// accepts the second. It is set up on the first start of a data directory and listens on
// the same address from then on, as long as its tenant exists.
type demonstration struct {
	log    *slog.Logger
	file   string // stores the address
	fresh  bool   // this is the first start
	addr   netip.AddrPort
	server *http.Server

	mu        sync.Mutex
	reporting bool // requests are verified and recorded for the report
	secret    signature.Secret
	arrivals  map[string][]arrival // by webhook-id
}

type arrival struct {
	at       time.Time
	status   int
	verified error
}

// openDemonstration starts the receiver on the first start, or when an earlier start has
// stored its address and the demonstration's tenant still exists. Otherwise it does
// nothing.
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

// isFirstStart reports whether no earlier start in this directory reached markStarted.
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

// exemption is what the egress guard must allow for the receiver.
func (d *demonstration) exemption() app.Exemption {
	if d.server == nil {
		return app.Exemption{}
	}
	return app.Exemption{TenantID: app.DemoTenant, URL: d.url(), Addr: d.addr}
}

// receive responds to a first attempt with 503 and to every other one with 200.
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

// keep verifies and records a request while the demonstration reports. Later there is no
// secret to verify with.
func (d *demonstration) keep(a arrival, h http.Header, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.reporting {
		return
	}
	id := h.Get(signature.HeaderID)
	a.verified = signature.Verify(signature.Message{
		ID: id, Timestamp: h.Get(signature.HeaderTimestamp), Signature: h.Get(signature.HeaderSignature), Body: body,
	}, a.at, 0, d.secret)
	d.arrivals[id] = append(d.arrivals[id], a)
}

// setReporting starts recording requests, with the endpoint's secret, or stops it.
func (d *demonstration) setReporting(on bool, secret signature.Secret) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reporting, d.secret = on, secret
	clear(d.arrivals)
}

// show sends the first event and reports its delivery. A failure of the demonstration is
// logged and does not stop the process.
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
		err = localpg.ReplaceFile(d.file, d.addr.String()+"\n", 0o600)
	}
	if err != nil {
		d.log.ErrorContext(ctx, "the demonstration cannot be shown", "error", err)
		return nil
	}
	if err := markStarted(d.file); err != nil {
		return err
	}
	d.setReporting(true, parsed)
	defer d.setReporting(false, signature.Secret{})
	r := &report{demo: d, out: out, api: api, keyFile: keyFile}
	if err := r.run(ctx); err != nil {
		d.log.ErrorContext(ctx, "the demonstration did not go through", "error", err)
	}
	return nil
}

func markStarted(file string) error {
	if err := localpg.ReplaceFile(filepath.Join(filepath.Dir(file), "started"), "", 0o600); err != nil {
		return fmt.Errorf("record the first start: %w", err)
	}
	return nil
}

// report prints the progress of the demonstration's event line by line.
type report struct {
	demo         *demonstration
	out          io.Writer
	api, keyFile string
	started      time.Time
	accepted     time.Duration // duration until the 202
}

func (r *report) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, format+"\n", args...)
}

func (r *report) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	key, err := os.ReadFile(r.keyFile)
	if err != nil {
		return fmt.Errorf("read the operator key: %w", err)
	}
	r.started = time.Now()
	event, err := r.call(ctx, string(bytes.TrimSpace(key)), http.MethodPost, "/v1/tenants/"+app.DemoTenant+"/events",
		`{"type":"demo.hello","payload":{"hello":"world"}}`)
	if err != nil {
		return err
	}
	r.accepted = time.Since(r.started)
	r.sayf("\nA demonstration: one event, to a receiver that is busy at first.")
	r.linef(r.accepted, "accepted     %s, stored, 202", event.ID)
	if len(event.Deliveries) != 1 {
		return fmt.Errorf("the event has %d deliveries, not one", len(event.Deliveries))
	}
	delivery, err := r.follow(ctx, string(bytes.TrimSpace(key)), event.Deliveries[0].ID)
	if err != nil {
		return err
	}
	r.arrivals(event.ID)
	r.sayf("Its workflow, with both attempts: %s", delivery.WorkflowURL)
	r.sayf("Send the next one:\n  curl -sS %s/v1/tenants/%s/events -H \"Authorization: Bearer $(cat %s)\" -H 'Content-Type: application/json' -d '%s'\n",
		r.api, app.DemoTenant, r.keyFile, `{"type":"demo.hello","payload":{"hello":"again"}}`)
	return nil
}

func (r *report) linef(at time.Duration, format string, args ...any) {
	r.sayf("  %6.3f s  "+format, append([]any{at.Seconds()}, args...)...)
}

// arrivals prints the requests that the receiver got.
func (r *report) arrivals(id string) {
	r.demo.mu.Lock()
	defer r.demo.mu.Unlock()
	for n, a := range r.demo.arrivals[id] {
		signed := "signature verified"
		if a.verified != nil {
			signed = "SIGNATURE NOT VERIFIED: " + a.verified.Error()
		}
		at := a.at.Sub(r.started)
		if at < r.accepted { // the first request does not wait for the 202
			signed += ", before the 202 arrived"
		}
		if a.status == http.StatusOK {
			r.linef(at, "attempt %d    200, delivered; %s", n+1, signed)
		} else {
			r.linef(at, "attempt %d    %d with Retry-After: 1, waiting 1 s as asked; %s", n+1, a.status, signed)
		}
	}
}

// shown is the part of an event or a delivery that the report needs.
type shown struct {
	ID          string  `json:"id"`
	State       string  `json:"state"`
	WorkflowURL string  `json:"workflow_url"`
	Deliveries  []shown `json:"deliveries"`
	Detail      string  `json:"detail"`
}

// follow polls the delivery until it has ended.
func (r *report) follow(ctx context.Context, key, id string) (shown, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := r.call(ctx, key, http.MethodGet, "/v1/tenants/"+app.DemoTenant+"/deliveries/"+id, "")
		if err != nil || d.State != "pending" && d.State != "retrying" {
			return d, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return shown{}, fmt.Errorf("the delivery is still %s after %s", d.State, demoTimeout)
		}
	}
}

func (r *report) call(ctx context.Context, key, method, path, body string) (shown, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.api+path, strings.NewReader(body))
	if err != nil {
		return shown{}, fmt.Errorf("request to the API: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: demoTimeout}
	response, err := client.Do(request)
	if err != nil {
		return shown{}, fmt.Errorf("request to the API: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer shown
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return shown{}, fmt.Errorf("read the API's response: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return shown{}, fmt.Errorf("the API answered %d: %s", response.StatusCode, answer.Detail)
	}
	return answer, nil
}
