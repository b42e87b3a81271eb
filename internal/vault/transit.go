package vault

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// Of a key in HashiCorp Vault, unless it is said otherwise.
const (
	DefaultTransitMount   = "transit"
	DefaultTransitKey     = "everpost"
	DefaultTransitTimeout = 3 * time.Second
)

const (
	// transitAtATime bounds the requests under way, so that a cold start of many
	// endpoints is no attack on Vault.
	transitAtATime = 32
	// downPause is how long after a failure Vault is not asked again: nobody waits for
	// what does not answer, with a connection to the database in his hands.
	downPause = 2 * time.Second
	// maxWrapped bounds a wrapped key; 32 bytes take 89 in Vault's form.
	maxWrapped = 1 << 10
)

// TransitConfig says which key of which Vault, and how to get there.
type TransitConfig struct {
	// Address is Vault's URL: https, or http on a loopback address. Required.
	Address string
	// Mount is the path of the transit engine, Key the name of the key in it.
	Mount, Key string
	// Namespace is Vault's (Enterprise); empty for none.
	Namespace string
	// Token is what to log on with; TokenFile a file that holds it, read for every
	// request, because an agent that renews tokens writes a new one there. One of both.
	Token, TokenFile string
	// CAFile holds certificates (PEM) to trust instead of the system's.
	CAFile string
	// Timeout is of one request. Defaults to DefaultTransitTimeout.
	Timeout time.Duration
}

// Transit is a key in the transit engine of a HashiCorp Vault, or whatever speaks its
// API, as OpenBao does: data keys are wrapped and unwrapped there, and the key itself
// never leaves it.
//
// Unwrapped data keys are remembered, up to 50,000. For 15 minutes they are used
// without asking, so that Vault sees little of the load; while Vault is not available
// (ErrUnavailable) they are used for 24 hours, so that its outage stops no delivery to
// an endpoint that is known. A refusal is taken at its word, and forgets the key.
type Transit struct {
	http *transitHTTP
	id   string
	keys *keyCache
	room chan struct{}             // a place for each request under way
	down atomic.Pointer[time.Time] // until when Vault counts as away; nil: it does not
	now  func() time.Time
}

// NewTransit checks the settings. It makes no request: Vault may come up later.
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
		return nil, errors.New("the mount is not a path of names")
	case !isPath(c.Key) || strings.Contains(c.Key, "/"):
		return nil, errors.New("the key's name may hold letters, digits, '-', '_' and '.' only")
	case c.Namespace != "" && !isPath(c.Namespace):
		return nil, errors.New("the namespace is not a path of names")
	}
	h, err := newTransitHTTP(c)
	if err != nil {
		return nil, err
	}
	// Where Vault is reached is not part of the name: its address may change.
	id := "vault:" + c.Mount + "/" + c.Key
	if c.Namespace != "" {
		id = "vault:" + c.Namespace + "/" + c.Mount + "/" + c.Key
	}
	return &Transit{http: h, id: id, keys: newKeyCache(maxCachedKeys), room: make(chan struct{}, transitAtATime), now: time.Now}, nil
}

// isPath reports names between slashes, none of which leads elsewhere.
func isPath(s string) bool {
	for name := range strings.SplitSeq(s, "/") {
		if name == "." || name == ".." || name == "" || strings.Trim(name, nameAlphabet) != "" {
			return false
		}
	}
	return true
}

const nameAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

// ID is vault:, the namespace if there is one, the mount and the key's name.
func (t *Transit) ID() string { return t.id }

// Close closes idle connections.
func (t *Transit) Close() { t.http.close() }

// wrappedForm is what Vault returns of encrypt: the version of the key, and base64.
var wrappedForm = regexp.MustCompile(`^vault:v([1-9]\d{0,8}):[A-Za-z0-9+/]+={0,2}$`)

// Wrap has a data key encrypted by the newest version of the key, which is part of the
// id. Errors are ErrUnavailable and ErrRefused, wrapped.
func (t *Transit) Wrap(ctx context.Context, dataKey []byte) (id string, wrapped []byte, err error) {
	var answer struct {
		Data struct {
			Ciphertext string `json:"ciphertext"`
		} `json:"data"`
	}
	request := map[string]string{"plaintext": base64.StdEncoding.EncodeToString(dataKey)}
	if err := t.ask(ctx, "encrypt", request, &answer); err != nil {
		return "", nil, err
	}
	form := wrappedForm.FindStringSubmatch(answer.Data.Ciphertext)
	if form == nil || len(answer.Data.Ciphertext) > maxWrapped {
		return "", nil, fmt.Errorf("encrypt: %w: the answer is not Vault's", ErrUnavailable)
	}
	return t.id + versionMark + form[1], []byte(answer.Data.Ciphertext), nil
}

// Unwrap returns what was wrapped, from memory or from Vault. Errors are ErrTampered,
// ErrUnavailable and ErrRefused, wrapped.
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
	err := t.ask(ctx, "decrypt", map[string]string{"ciphertext": string(wrapped)}, &answer)
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
		return nil, fmt.Errorf("decrypt: %w: the answer is not a data key", ErrUnavailable)
	}
	t.keys.put(wrapped, dataKey, t.now())
	return dataKey, nil
}

func (t *Transit) isDown() bool {
	until := t.down.Load()
	return until != nil && t.now().Before(*until)
}

// ask makes one request, when there is room for it and Vault was not away a moment ago.
func (t *Transit) ask(ctx context.Context, operation string, request map[string]string, answer any) error {
	if t.isDown() {
		return fmt.Errorf("%s: %w: it was not a moment ago", operation, ErrUnavailable)
	}
	select {
	case t.room <- struct{}{}:
		defer func() { <-t.room }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", operation, ctx.Err())
	}
	err := t.http.post(ctx, operation, request, answer)
	switch {
	case err == nil:
		t.down.Store(nil)
	case ctx.Err() != nil: // the caller has left: nothing is known of Vault
	case errors.Is(err, ErrUnavailable):
		until := t.now().Add(downPause)
		t.down.Store(&until)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// checkAddress reads Vault's URL. A token is not sent in the clear, except to this machine.
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
