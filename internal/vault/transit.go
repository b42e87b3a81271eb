package vault

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// Defaults of a key in HashiCorp Vault, and limits.
const (
	DefaultTransitMount   = "transit"
	DefaultTransitKey     = "everpost"
	DefaultTransitTimeout = 3 * time.Second
)

const (
	// transitAtATime limits the concurrent requests, so that the cold start of many endpoints does
	// not overload Vault.
	transitAtATime = 32
	// downPause is how long after a failure no request is sent to Vault, so that a caller that
	// holds a database connection does not wait for a timeout.
	downPause = 2 * time.Second
	// maxWrapped limits the length of a wrapped key; Vault needs 89 bytes for a key of 32 bytes.
	maxWrapped = 1 << 10
)

// TransitConfig configures the connection to Vault and the key.
type TransitConfig struct {
	// Address is Vault's URL: https, or http on a loopback address. Required.
	Address string
	// Mount is the path of the transit engine, Key the name of the key in it.
	Mount, Key string
	// Namespace is Vault's namespace (Enterprise); empty for none.
	Namespace string
	// Token authenticates to Vault. TokenFile is a file with the token instead; it is read for
	// every request, because an agent that renews tokens replaces it. Exactly one is required.
	Token, TokenFile string
	// RootCAs are the certificates to trust; nil stands for the system's.
	RootCAs *x509.CertPool
	// Timeout limits one request. Defaults to DefaultTransitTimeout.
	Timeout time.Duration
}

// Transit is a key in the transit engine of a HashiCorp Vault, or of another server with the same API,
// such as OpenBao. Vault wraps and unwraps data keys, and the key itself never leaves it.
//
// Transit caches up to 50,000 unwrapped data keys. It uses a cached key for 15 minutes without a request,
// which keeps Vault's load low. While Vault is unavailable (ErrUnavailable) it uses a cached key for 24
// hours, so that an outage does not stop deliveries to known endpoints. A refusal removes the cached
// key.
type Transit struct {
	http  *transitHTTP
	id    string
	keys  *keyCache
	slots chan struct{}             // one entry per request under way
	down  atomic.Pointer[time.Time] // until when no request is sent after a failure; nil: none failed
	now   func() time.Time
}

// NewTransit validates the configuration. It sends no request, because Vault may start later.
func NewTransit(c TransitConfig) (*Transit, error) {
	if c.Mount == "" {
		c.Mount = DefaultTransitMount
	}
	if c.Key == "" {
		c.Key = DefaultTransitKey
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTransitTimeout
	}
	c.Mount, c.Namespace = strings.Trim(c.Mount, "/"), strings.Trim(c.Namespace, "/")
	switch {
	case !isPath(c.Mount):
		return nil, errors.New("the mount must be a path of names separated by slashes")
	case !isPath(c.Key) || strings.Contains(c.Key, "/"):
		return nil, errors.New("the key's name may hold letters, digits, '-', '_' and '.' only")
	case c.Namespace != "" && !isPath(c.Namespace):
		return nil, errors.New("the namespace must be a path of names separated by slashes")
	}
	h, err := newTransitHTTP(c)
	if err != nil {
		return nil, err
	}
	// The id does not contain the address, which may change.
	id := "vault:" + c.Mount + "/" + c.Key
	if c.Namespace != "" {
		id = "vault:" + c.Namespace + "/" + c.Mount + "/" + c.Key
	}
	return &Transit{http: h, id: id, keys: newKeyCache(maxCachedKeys), slots: make(chan struct{}, transitAtATime), now: time.Now}, nil
}

// isPath reports whether s consists of names separated by slashes, without "." and "..".
func isPath(s string) bool {
	for name := range strings.SplitSeq(s, "/") {
		if name == "." || name == ".." || name == "" || strings.Trim(name, nameAlphabet) != "" {
			return false
		}
	}
	return true
}

const nameAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

// ID returns "vault:", the namespace if there is one, the mount and the key's name.
func (t *Transit) ID() string { return t.id }

// Close closes idle connections.
func (t *Transit) Close() { t.http.close() }

// wrappedForm is the form of Vault's ciphertext: the version of the key, and base64.
var wrappedForm = regexp.MustCompile(`^vault:v([1-9]\d{0,8}):[A-Za-z0-9+/]+={0,2}$`)

// Wrap encrypts a data key with the newest version of the key. id contains that version. Errors wrap
// ErrUnavailable or ErrRefused.
func (t *Transit) Wrap(ctx context.Context, dataKey []byte) (id string, wrapped []byte, err error) {
	var answer struct {
		Data struct {
			Ciphertext string `json:"ciphertext"`
		} `json:"data"`
	}
	request := map[string]string{"plaintext": base64.StdEncoding.EncodeToString(dataKey)}
	if err := t.send(ctx, "encrypt", request, &answer); err != nil {
		return "", nil, err
	}
	form := wrappedForm.FindStringSubmatch(answer.Data.Ciphertext)
	if form == nil || len(answer.Data.Ciphertext) > maxWrapped {
		return "", nil, fmt.Errorf("encrypt: %w: the response has no ciphertext", ErrUnavailable)
	}
	return t.id + versionMark + form[1], []byte(answer.Data.Ciphertext), nil
}

// Unwrap decrypts a data key, from the cache or with Vault. Errors wrap ErrTampered, ErrUnavailable or
// ErrRefused.
func (t *Transit) Unwrap(ctx context.Context, wrapped []byte) ([]byte, error) {
	if len(wrapped) > maxWrapped || !wrappedForm.Match(wrapped) {
		return nil, ErrTampered
	}
	known, fresh := t.keys.get(wrapped, t.now())
	if fresh {
		return known, nil
	}
	var answer struct {
		Data struct {
			Plaintext string `json:"plaintext"`
		} `json:"data"`
	}
	err := t.send(ctx, "decrypt", map[string]string{"ciphertext": string(wrapped)}, &answer)
	if known != nil && errors.Is(err, ErrUnavailable) {
		return known, nil
	}
	if err != nil {
		if !errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
			t.keys.forget(wrapped)
		}
		return nil, err
	}
	dataKey, err := base64.StdEncoding.Strict().DecodeString(answer.Data.Plaintext)
	if err != nil || len(dataKey) != KeyBytes {
		return nil, fmt.Errorf("decrypt: %w: the response has no data key", ErrUnavailable)
	}
	t.keys.put(wrapped, dataKey, t.now())
	return dataKey, nil
}

func (t *Transit) isDown() bool {
	until := t.down.Load()
	return until != nil && t.now().Before(*until)
}

// send sends one request when the number of requests under way permits. It fails fast after a recent failure.
func (t *Transit) send(ctx context.Context, operation string, request map[string]string, answer any) error {
	if t.isDown() {
		return fmt.Errorf("%s: %w: a recent request failed", operation, ErrUnavailable)
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", operation, ctx.Err())
	}
	err := t.http.post(ctx, operation, request, answer)
	switch {
	case err == nil:
		t.down.Store(nil)
	case ctx.Err() != nil: // cancelled by the caller: says nothing about Vault
	case errors.Is(err, ErrUnavailable):
		until := t.now().Add(downPause)
		t.down.Store(&until)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// checkAddress parses Vault's URL. It requires https, except for loopback, so that the token is encrypted.
func checkAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("the address must be a URL of the form https://vault.example.com:8200")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, errors.New("the address must hold nothing but scheme, host and port")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, errors.New("the address must be https: http is for this machine only")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}
