package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// link is a TCP connection between two parts that can be made bad.
type link struct {
	proxy *toxiproxy.Proxy
}

// newLink listens on a free port and passes on to the target.
func newLink(name, target string) (*link, error) {
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), name, ownAddress(), target)
	if err := proxy.Start(); err != nil {
		return nil, fmt.Errorf("start the proxy before %s: %w", name, err)
	}
	return &link{proxy}, nil
}

func (l *link) address() string { return l.proxy.Listen }

func (l *link) stop() { l.proxy.Stop() }

// cut closes all connections and the port.
func (l *link) cut() { l.proxy.Stop() }

// restore ends a cut.
func (l *link) restore() error {
	if err := l.proxy.Start(); err != nil {
		return fmt.Errorf("restore the link to %s: %w", l.proxy.Name, err)
	}
	return nil
}

// toxic is a way in which a link is bad.
type toxic struct {
	kind       string // one of toxiproxy's
	stream     string // upstream: from the caller; downstream: to the caller
	attributes map[string]any
}

// The toxics of the fault classes. A stalled stream drops everything and closes nothing.
func latency(d time.Duration) toxic {
	return toxic{"latency", "downstream", map[string]any{"latency": d.Milliseconds(), "jitter": d.Milliseconds() / 2}}
}
func stall(stream string) toxic { return toxic{"timeout", stream, map[string]any{"timeout": 0}} }
func reset() toxic              { return toxic{"reset_peer", "downstream", map[string]any{"timeout": 0}} }

// poison makes the link bad until heal.
func (l *link) poison(t toxic) error {
	text, err := json.Marshal(map[string]any{"name": "fault", "type": t.kind, "stream": t.stream, "attributes": t.attributes})
	if err != nil {
		return fmt.Errorf("describe a toxic: %w", err)
	}
	if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("make the link to %s bad (%s): %w", l.proxy.Name, t.kind, err)
	}
	return nil
}

func (l *link) heal() { l.proxy.Toxics.ResetToxics(context.Background()) }
