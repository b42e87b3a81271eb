package mcpserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/netutil"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/hosts"
)

const (
	// Path is where a server answers over HTTP.
	Path = "/mcp"

	// maxSessions bounds the sessions over HTTP. One that is idle for sessionTimeout ends.
	maxSessions    = 100
	maxKeySessions = 10 // of one key
	sessionTimeout = 30 * time.Minute

	maxConnections = 4 * maxSessions // a client has one for events, and one or more for calls
	maxBody        = 256 << 10
	bodyTimeout    = 30 * time.Second
	headerTimeout  = 10 * time.Second
	stopTimeout    = 5 * time.Second // for calls in progress

	// maxChecks bounds the keys that are checked at a time.
	maxChecks = 8

	// keyOfToken is the name of the API key in the extra information about a bearer token.
	keyOfToken = "key"
)

// ServeHTTP serves clients over streamable HTTP at Path until ctx is done. Each client sends an API key of its
// own as bearer token, which its calls use.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	s.endCalls()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	go func() { // their streams would keep Shutdown waiting
		for session := range s.mcp.Sessions() {
			_ = session.Close()
		}
	}()
	if server.Shutdown(last) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// handler answers at Path. Requests of web pages of other origins, and those under a host name that is not
// allowed, get 403. Then the key is checked, and only then the body read.
func (s *Server) handler() http.Handler {
	streamable := mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{SessionTimeout: sessionTimeout})
	authenticated := auth.RequireBearerToken(tokenOf, nil)(s.checkKeys(readBody(streamable)))
	mux := http.NewServeMux()
	mux.Handle(Path, http.NewCrossOriginProtection().Handler(requireKey(authenticated)))
	return hosts.Check(mux, s.hosts, "--hosts")
}

// requireKey refuses requests without a bearer token, before their body is read and with the challenge that the
// SDK's refusal lacks.
func requireKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); !strings.EqualFold(kind, "bearer") {
			unauthorized(w, "Bearer", "an API key is missing: send one as bearer token")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func unauthorized(w http.ResponseWriter, challenge, text string) {
	w.Header().Set("WWW-Authenticate", challenge)
	http.Error(w, text, http.StatusUnauthorized)
}

// readBody reads the body within a time, which the answer, a stream that may stay open, must not have.
func readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection := http.NewResponseController(w)
		if connection.SetReadDeadline(time.Now().Add(bodyTimeout)) != nil {
			http.Error(w, "the connection has no deadlines", http.StatusInternalServerError)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, fmt.Sprintf("the body cannot be read, or is larger than %d bytes", maxBody), http.StatusBadRequest)
			return
		}
		if connection.SetReadDeadline(time.Time{}) != nil {
			return // the connection is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// tokenOf returns what is known about a bearer token. A session belongs to the key that began it: UserID is
// the key's fingerprint. The API checks the key.
func tokenOf(_ context.Context, key string, _ *http.Request) (*auth.TokenInfo, error) {
	sum := sha256.Sum256([]byte(key))
	return &auth.TokenInfo{
		UserID: hex.EncodeToString(sum[:]), Expiration: time.Now().Add(time.Hour), Extra: map[string]any{keyOfToken: key},
	}, nil
}

// checkKeys lets a session go on only with the key that began it, and begin only with a key that the API accepts, and while
// there are not too many: of the key, and of all.
func (s *Server) checkKeys(next http.Handler) http.Handler {
	checks, begun := make(chan struct{}, maxChecks), &begunSessions{of: map[string]string{}, starting: map[string]int{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := ""
		if token := auth.TokenInfoFromContext(r.Context()); token != nil {
			user = token.UserID
		}
		if session := r.Header.Get("Mcp-Session-Id"); session != "" {
			switch of, known := begun.userOf(session); {
			case !known:
				http.Error(w, "session not found", http.StatusNotFound) // the client begins another one
			case of != user:
				http.Error(w, "another key has begun this session", http.StatusForbidden)
			default:
				next.ServeHTTP(w, r)
			}
			return
		}
		if !begun.start(user, s.mcp) {
			unavailable(w, "there are too many sessions")
			return
		}
		answer := &firstWrite{ResponseWriter: w, before: sync.OnceFunc(func() { begun.started(user, w.Header().Get("Mcp-Session-Id")) })}
		defer answer.before()
		w = answer
		select {
		case checks <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		err := s.checkKey(r.Context())
		<-checks
		refused, isRefused := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case isRefused && refused.Status == http.StatusUnauthorized:
			unauthorized(w, `Bearer error="invalid_token"`, "the API key is not valid, has expired or was revoked")
		default:
			unavailable(w, "Everpost's API does not answer as it should; the key cannot be checked")
		}
	})
}

// firstWrite calls before ahead of the first byte of the answer: the client may send its next request once it has that.
type firstWrite struct {
	http.ResponseWriter

	before func()
}

// WriteHeader implements http.ResponseWriter.
func (w *firstWrite) WriteHeader(status int) {
	w.before()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *firstWrite) Write(p []byte) (int, error) {
	w.before()
	return w.ResponseWriter.Write(p) //nolint:wrapcheck // this writer stands for that one
}

// Unwrap is for http.ResponseController.
func (w *firstWrite) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begunSessions has the callers that have begun sessions.
type begunSessions struct {
	mu       sync.Mutex
	of       map[string]string // user by session
	starting map[string]int    // requests by user that may begin a session
}

// start reports whether the user may begin a session. The caller then calls started.
func (b *begunSessions) start(user string, of *mcp.Server) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, mine, living := 0, b.starting[user], map[string]bool{}
	for session := range of.Sessions() {
		all++
		living[session.ID()] = true
		if b.of[session.ID()] == user {
			mine++
		}
	}
	maps.DeleteFunc(b.of, func(id, _ string) bool { return !living[id] })
	if all >= maxSessions || mine >= maxKeySessions {
		return false
	}
	b.starting[user]++
	return true
}

// userOf is the user that has begun a session.
func (b *begunSessions) userOf(session string) (user string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	user, known = b.of[session]
	return user, known
}

// started ends what start has begun: with a session, or without ("").
func (b *begunSessions) started(user, session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting[user]--
	if b.starting[user] == 0 {
		delete(b.starting, user)
	}
	if session != "" {
		b.of[session] = user
	}
}

func unavailable(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, text, http.StatusServiceUnavailable)
}

// checkKey asks the API for something that every key may read.
func (s *Server) checkKey(ctx context.Context) error {
	key := ""
	if token := auth.TokenInfoFromContext(ctx); token != nil {
		key, _ = token.Extra[keyOfToken].(string)
	}
	_, err := s.api.WithKey(key).RetryPolicies(ctx)
	return err
}
