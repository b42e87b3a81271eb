package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// receiver serves all endpoints, /<ledger>/<endpoint>, and responds at once.
type receiver struct {
	base       string // http://127.0.0.1:40001
	server     *http.Server
	ended      chan error
	ledgers    sync.Map     // id → *ledger
	unexpected atomic.Int64 // requests for events that were never posted, or of a closed ledger
	buffers    sync.Pool
}

// startReceiver listens on a free port of the loopback interface.
func startReceiver(ctx context.Context) (*receiver, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for deliveries: %w", err)
	}
	r := &receiver{base: "http://" + listener.Addr().String(), ended: make(chan error, 1)}
	// One byte more than a payload, to recognise longer bodies.
	r.buffers.New = func() any { return new([payloadSize + 1]byte) }
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { r.ended <- r.server.Serve(listener) }()
	return r, nil
}

// stop closes the server and cuts off requests under way.
func (r *receiver) stop() error {
	err := r.server.Close()
	if served := <-r.ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (r *receiver) open(l *ledger)  { r.ledgers.Store(l.id, l) }
func (r *receiver) close(l *ledger) { r.ledgers.Delete(l.id) }

// url returns the address of an endpoint of a ledger.
func (r *receiver) url(l *ledger, endpoint int) string {
	return r.base + "/" + l.id + "/" + strconv.Itoa(endpoint)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	buffer, _ := r.buffers.Get().(*[payloadSize + 1]byte)
	defer r.buffers.Put(buffer)
	n, err := io.ReadFull(request.Body, buffer[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return // the sender has disconnected
	}
	id, rest, _ := strings.Cut(request.URL.Path[1:], "/")
	endpoint, err := strconv.Atoi(rest)
	found, known := r.ledgers.Load(id)
	if err == nil && known {
		l, _ := found.(*ledger)
		if status, ok := l.arrive(eventNumber(buffer[:n]), endpoint); ok {
			w.WriteHeader(status)
			return
		}
	}
	r.unexpected.Add(1)
	w.WriteHeader(http.StatusGone)
}
