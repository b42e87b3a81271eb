package vault

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/credential"
)

const (
	maxTransitAnswer = 64 << 10
	maxTokenFile     = 8 << 10
	transitIdleTime  = 30 * time.Second
)

// transitHTTP is the HTTP client for one key of a transit engine.
type transitHTTP struct {
	client           *http.Client
	base             *url.URL // …/v1/<mount>
	key              string
	namespace        string
	token, tokenFile string
}

func newTransitHTTP(c TransitConfig) (*transitHTTP, error) {
	address, err := checkAddress(c.Address)
	if err != nil {
		return nil, err
	}
	if (c.Token == "") == (c.TokenFile == "") {
		return nil, errors.New("either a token or a file with one must be given")
	}
	if c.Token != "" && !isToken(c.Token) {
		return nil, errors.New("the token is not valid: it must be printable, without spaces")
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs}
	return &transitHTTP{
		client: &http.Client{
			Timeout: c.Timeout,
			Transport: &http.Transport{
				Proxy: nil, TLSClientConfig: trust, DialContext: (&net.Dialer{Timeout: c.Timeout}).DialContext,
				MaxIdleConnsPerHost: transitAtATime, IdleConnTimeout: transitIdleTime, ForceAttemptHTTP2: true,
				MaxResponseHeaderBytes: maxTransitAnswer,
			},
			// Redirects are not followed, so that the token is sent to the configured address only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		base: address.JoinPath("v1", c.Mount), key: c.Key, namespace: c.Namespace, token: c.Token, tokenFile: c.TokenFile,
	}, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

func isToken(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// readFile reads a file of at most the given size in bytes.
func readFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, nil
}

func (h *transitHTTP) close() { h.client.CloseIdleConnections() }

// post requests an operation of the key and decodes the response. Its errors contain nothing of the
// request, the token or the response.
func (h *transitHTTP) post(ctx context.Context, operation string, request map[string]string, answer any) error {
	token, err := h.currentToken()
	if err != nil {
		return err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	defer clear(body)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base.JoinPath(operation, h.key).String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Vault-Request", "true") // Vault Agent requires it, to prevent request forgery
	r.Header.Set("X-Vault-Token", token)
	if h.namespace != "" {
		r.Header.Set("X-Vault-Namespace", h.namespace)
	}
	response, err := h.client.Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, withoutURL(err))
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxTransitAnswer+1))
	defer clear(text)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, withoutURL(err))
	case len(text) > maxTransitAnswer:
		return fmt.Errorf("%w: the response has more than %d bytes", ErrUnavailable, maxTransitAnswer)
	case response.StatusCode != http.StatusOK:
		return refusal(response.StatusCode, text)
	case json.Unmarshal(text, answer) != nil:
		return fmt.Errorf("%w: the response is not JSON", ErrUnavailable)
	}
	return nil
}

// currentToken returns the token, from its file if there is one.
func (h *transitHTTP) currentToken() (string, error) {
	if h.tokenFile == "" {
		return h.token, nil
	}
	text, err := readFile(h.tokenFile, maxTokenFile)
	if err != nil {
		return "", fmt.Errorf("%w: read the token: %w", ErrUnavailable, err)
	}
	token := credential.Trim(string(text))
	if !isToken(token) {
		return "", fmt.Errorf("%w: %s has no valid token", ErrUnavailable, h.tokenFile)
	}
	return token, nil
}

func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// refusal converts an error status of Vault
// (https://developer.hashicorp.com/vault/api-docs#http-status-codes) to an error. The text of the
// response distinguishes the causes of a 400.
func refusal(status int, text []byte) error {
	var body struct {
		Errors []string `json:"errors"`
	}
	_ = json.Unmarshal(text, &body) // any other body has no details
	words := strings.Join(body.Errors, "\n")
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return fmt.Errorf("%w (%d): the token is not valid or may not use the key", ErrRefused, status)
	case status == http.StatusNotFound || strings.Contains(words, "encryption key not found"):
		return fmt.Errorf("%w (%d): there is no such mount or key", ErrRefused, status)
	case status == http.StatusBadRequest && (strings.Contains(words, "message authentication failed") || strings.Contains(words, "invalid ciphertext")):
		return ErrTampered
	case status == http.StatusBadRequest && strings.Contains(words, "too old"):
		return fmt.Errorf("%w (%d): this version of the key is no longer allowed (min_decryption_version)", ErrRefused, status)
	case status == http.StatusBadRequest:
		return fmt.Errorf("%w (%d)", ErrRefused, status)
	case status == http.StatusServiceUnavailable:
		return fmt.Errorf("%w (%d): sealed or in maintenance", ErrUnavailable, status)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w (%d): redirected; the address must be that of the active node or of a load balancer", ErrUnavailable, status)
	}
	return fmt.Errorf("%w (%d)", ErrUnavailable, status)
}
