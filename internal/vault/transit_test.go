package vault

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	vaultToken = "hvs.canary-token"
	place      = "acme|ep_1|1"
)

// fakeVault implements the used part of the API of Vault's transit engine:
// https://developer.hashicorp.com/vault/api-docs/secret/transit.
type fakeVault struct {
	*httptest.Server

	mu       sync.Mutex
	token    string
	path     string // of the mount
	key      string
	versions []*StaticKEK // the last one is the newest
	least    int          // min_decryption_version
	answer   http.HandlerFunc
	asked    []string // operations
	headers  http.Header
}

func startVault(t *testing.T, start func(http.Handler) *httptest.Server) *fakeVault {
	t.Helper()
	f := &fakeVault{token: vaultToken, path: "/v1/transit/", key: "everpost", least: 1}
	f.rotate(t)
	f.Server = start(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeVault) rotate(t *testing.T) {
	t.Helper()
	kek, err := newStaticKEK(bytes.Repeat([]byte{byte(len(f.versions) + 1)}, KeyBytes))
	require.NoError(t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.versions = append(f.versions, kek)
}

// set changes the server between requests.
func (f *fakeVault) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// operations returns the operations since the last call.
func (f *fakeVault) operations() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func (f *fakeVault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	rest, _ := strings.CutPrefix(r.URL.Path, f.path)
	operation, key, _ := strings.Cut(rest, "/")
	f.asked, f.headers = append(f.asked, operation), r.Header.Clone()
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var asked struct {
		Plaintext  string `json:"plaintext"`
		Ciphertext string `json:"ciphertext"`
	}
	switch {
	case r.Header.Get("X-Vault-Token") != f.token:
		says(w, http.StatusForbidden, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n")
	case !strings.HasPrefix(r.URL.Path, f.path):
		says(w, http.StatusNotFound, `no handler for route "x". route entry not found.`)
	case key != f.key:
		says(w, http.StatusBadRequest, "encryption key not found")
	case r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&asked) != nil:
		says(w, http.StatusBadRequest, "error parsing JSON")
	case operation == "encrypt":
		f.encrypt(r.Context(), w, asked.Plaintext)
	case operation == "decrypt":
		f.decrypt(r.Context(), w, asked.Ciphertext)
	}
}

func (f *fakeVault) encrypt(ctx context.Context, w http.ResponseWriter, plaintext string) {
	raw, err := base64.StdEncoding.DecodeString(plaintext)
	if err != nil {
		says(w, http.StatusBadRequest, "failed to base64-decode plaintext")
		return
	}
	_, wrapped, _ := f.versions[len(f.versions)-1].Wrap(ctx, raw)
	data(w, map[string]any{
		"ciphertext": fmt.Sprintf("vault:v%d:%s", len(f.versions), base64.StdEncoding.EncodeToString(wrapped)), "key_version": len(f.versions),
	})
}

func (f *fakeVault) decrypt(ctx context.Context, w http.ResponseWriter, ciphertext string) {
	parts := strings.SplitN(ciphertext, ":", 3)
	version, _ := strconv.Atoi(parts[1][1:])
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	switch {
	case err != nil:
		says(w, http.StatusBadRequest, "invalid ciphertext: could not decode base64")
		return
	case version < f.least:
		says(w, http.StatusBadRequest, "ciphertext or signature version is disallowed by policy (too old)")
		return
	case version > len(f.versions):
		says(w, http.StatusBadRequest, "invalid ciphertext: version is too new")
		return
	}
	plain, err := f.versions[version-1].Unwrap(ctx, raw)
	if err != nil {
		says(w, http.StatusBadRequest, "cipher: message authentication failed")
		return
	}
	data(w, map[string]any{"plaintext": base64.StdEncoding.EncodeToString(plain)})
}

func says(w http.ResponseWriter, status int, words string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{words}})
}

func data(w http.ResponseWriter, values map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "1", "lease_id": "", "renewable": false, "data": values})
}

// openTransit returns a key in the fake, with a clock that can be moved.
func openTransit(t *testing.T, f *fakeVault, change func(*TransitConfig)) (_ *Transit, later func(time.Duration)) {
	t.Helper()
	c := TransitConfig{Address: f.URL, Token: vaultToken}
	if change != nil {
		change(&c)
	}
	key, err := NewTransit(c)
	require.NoError(t, err)
	t.Cleanup(key.Close)
	at := time.Now()
	key.now = func() time.Time { return at }
	return key, func(d time.Duration) { at = at.Add(d) }
}

func TestTransitSealsAndOpens(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewServer)
	key, _ := openTransit(t, f, nil)
	v := New(key)
	sealed, err := v.Seal(t.Context(), "whsec_x", place)
	require.NoError(t, err)
	require.Equal(t, "vault:transit/everpost#1", sealed.KEKID)
	require.Regexp(t, `^vault:v1:`, string(sealed.WrappedKey))
	opened, err := v.Open(t.Context(), sealed, place)
	require.NoError(t, err)
	require.Equal(t, "whsec_x", opened)
	require.Equal(t, []string{"encrypt", "decrypt"}, f.operations(), "a data key is cached only after Vault has unwrapped it")
	require.Equal(t, "true", f.headers.Get("X-Vault-Request"))
	require.Empty(t, f.headers.Values("X-Vault-Namespace"))

	_, err = v.Open(t.Context(), sealed, place+"0")
	require.ErrorIs(t, err, ErrTampered)
	require.Empty(t, f.operations(), "the data key is cached")
}

// A rotation in Vault creates a new version: old rows can be decrypted, and Rewrap updates them.
func TestTransitVersions(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewServer)
	key, _ := openTransit(t, f, nil)
	v := New(key)
	before, err := v.Seal(t.Context(), "whsec_x", place)
	require.NoError(t, err)
	f.rotate(t)
	current, err := v.Current(t.Context())
	require.NoError(t, err)
	require.Equal(t, "vault:transit/everpost#2", current)
	require.NotEqual(t, before.KEKID, current)
	require.True(t, v.Knows(before.KEKID))
	after, err := v.Rewrap(t.Context(), before)
	require.NoError(t, err)
	require.Equal(t, current, after.KEKID)

	f.set(func() { f.least = 2 })
	fresh, _ := openTransit(t, f, nil)
	opened, err := New(fresh).Open(t.Context(), after, place)
	require.NoError(t, err)
	require.Equal(t, "whsec_x", opened)
	_, err = New(fresh).Open(t.Context(), before, place)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "min_decryption_version")
}

func TestTransitPlace(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewServer)
	f.path, f.key = "/v1/team/keys/", "hooks-1"
	key, _ := openTransit(t, f, func(c *TransitConfig) { c.Mount, c.Key, c.Namespace = "/team/keys/", "hooks-1", "admin/eu/" })
	require.Equal(t, "vault:admin/eu/team/keys/hooks-1", key.ID())
	id, _, err := key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.NoError(t, err)
	require.Equal(t, "vault:admin/eu/team/keys/hooks-1#1", id)
	require.Equal(t, "admin/eu", f.headers.Get("X-Vault-Namespace"))
}

func TestTransitTokenFile(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewServer)
	path := filepath.Join(t.TempDir(), "token")
	key, later := openTransit(t, f, func(c *TransitConfig) { c.Token, c.TokenFile = "", path })
	_, _, err := key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.ErrorIs(t, err, ErrUnavailable, "an agent may write it later")
	later(downPause)
	for _, token := range []string{vaultToken, "hvs.renewed"} {
		f.set(func() { f.token = token })
		require.NoError(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
		_, _, err = key.Wrap(t.Context(), make([]byte, KeyBytes))
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(path, []byte("a b"), 0o600))
	_, _, err = key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.ErrorIs(t, err, ErrUnavailable)
	later(downPause)
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("x"), maxTokenFile+1), 0o600))
	_, _, err = key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.ErrorContains(t, err, "has more than")
}

// For every failure of Vault, the error has the right kind and contains no secret.
func TestTransitErrors(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	hangUp := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		_ = conn.Close()
	}
	elsewhere := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example/", http.StatusTemporaryRedirect)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		change func(*fakeVault)
		is     error
		says   string
	}{
		"wrong token":   {nil, func(f *fakeVault) { f.token = "another" }, ErrRefused, "the token is not valid or may not use the key"},
		"missing key":   {nil, func(f *fakeVault) { f.key = "another" }, ErrRefused, "there is no such mount or key"},
		"missing mount": {nil, func(f *fakeVault) { f.path = "/v1/other/" }, ErrRefused, "there is no such mount or key"},
		"sealed":        {status(503, `{"errors":["Vault is sealed"]}`), nil, ErrUnavailable, "(503): sealed"},
		"broken":        {status(500, `{"errors":["canary-words"]}`), nil, ErrUnavailable, "(500)"},
		"rate limit":    {status(429, `{"errors":["request path: rate limit quota exceeded"]}`), nil, ErrUnavailable, "(429)"},
		"other refusal": {status(400, `canary-words`), nil, ErrRefused, "(400)"},
		"garbage":       {status(200, "\x00\xff<html>"), nil, ErrUnavailable, "the response is not JSON"},
		"empty":         {status(200, ""), nil, ErrUnavailable, "the response is not JSON"},
		"nothing in it": {status(200, `{"data":{}}`), nil, ErrUnavailable, "the response has no"},
		"not its form":  {status(200, `{"data":{"ciphertext":"vault:v0:AAAA","plaintext":"AAAA"}}`), nil, ErrUnavailable, "the response has no"},
		"no answer":     {hangUp, nil, ErrUnavailable, "EOF"},
		"endless":       {status(200, strings.Repeat(" ", maxTransitAnswer+1)), nil, ErrUnavailable, "more than"},
		"redirected":    {elsewhere, nil, ErrUnavailable, "redirected"},
		"cut in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			_, _ = io.WriteString(w, "{")
		}, nil, ErrUnavailable, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startVault(t, httptest.NewServer)
			key, later := openTransit(t, f, nil)
			_, wrapped, err := key.Wrap(t.Context(), bytes.Repeat([]byte{7}, KeyBytes))
			require.NoError(t, err)
			f.set(func() {
				f.answer = c.answer
				if c.change != nil {
					c.change(f)
				}
			})
			for range 2 { // the second time the connection may be closed
				_, _, err = key.Wrap(t.Context(), bytes.Repeat([]byte{7}, KeyBytes))
				require.ErrorIs(t, err, c.is)
				require.ErrorContains(t, err, c.says)
				later(downPause)
				_, unwrapErr := key.Unwrap(t.Context(), wrapped)
				require.ErrorIs(t, unwrapErr, c.is)
				later(downPause)
				for _, err := range []error{err, unwrapErr} {
					require.NotContains(t, err.Error(), "canary", "neither the token nor the response")
					require.NotContains(t, err.Error(), base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, KeyBytes)))
				}
			}
		})
	}
}

func TestTransitIsSlow(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewServer)
	release := make(chan struct{})
	f.answer = func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	defer close(release)
	key, _ := openTransit(t, f, func(c *TransitConfig) { c.Timeout = 50 * time.Millisecond })
	_, _, err := key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.ErrorIs(t, err, ErrUnavailable)
	require.True(t, key.isDown())

	patient, _ := openTransit(t, f, func(c *TransitConfig) { c.Timeout = time.Minute })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = patient.Wrap(ctx, make([]byte, KeyBytes))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, patient.isDown(), "a cancelled request says nothing about Vault")
}

func TestTransitIsUnreachable(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	key, err := NewTransit(TransitConfig{Address: "http://" + l.Addr().String(), Token: vaultToken})
	require.NoError(t, err, "Vault may start later")
	_, _, err = key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.ErrorIs(t, err, ErrUnavailable)
}

// An outage of Vault stops nothing for a day if the data key is cached. A refusal does at once.
func TestTransitCachesDataKeys(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewServer)
	sealed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { says(w, 503, "Vault is sealed") })
	key, later := openTransit(t, f, nil)
	dataKey := bytes.Repeat([]byte{7}, KeyBytes)
	_, wrapped, err := key.Wrap(t.Context(), dataKey)
	require.NoError(t, err)
	_, unknown, err := key.Wrap(t.Context(), dataKey)
	require.NoError(t, err)
	unwrap := func() {
		t.Helper()
		got, err := key.Unwrap(t.Context(), wrapped)
		require.NoError(t, err)
		require.Equal(t, dataKey, got)
		clear(got) // the result is a copy
	}
	unwrap()
	f.operations()
	later(keyFresh - 1)
	unwrap()
	require.Empty(t, f.operations(), "not asked")
	later(1)
	unwrap()
	require.Equal(t, []string{"decrypt"}, f.operations(), "asked again")

	f.set(func() { f.answer = sealed })
	later(keyFresh)
	unwrap()
	unwrap()
	require.Equal(t, []string{"decrypt"}, f.operations(), "after a failure requests pause")
	later(downPause)
	unwrap()
	require.Equal(t, []string{"decrypt"}, f.operations(), "a request is sent after the pause")
	_, err = key.Unwrap(t.Context(), unknown)
	require.ErrorIs(t, err, ErrUnavailable)
	require.Empty(t, f.operations(), "the pause applies to unknown keys too")
	later(keyKept - keyFresh - downPause)
	_, err = key.Unwrap(t.Context(), wrapped)
	require.ErrorIs(t, err, ErrUnavailable, "the cached key is a day old")

	f.set(func() { f.answer = nil })
	_, err = key.Unwrap(t.Context(), unknown)
	require.ErrorIs(t, err, ErrUnavailable, "the pause has not ended")
	later(downPause)
	unwrap()
	later(keyFresh)
	f.set(func() { f.token = "revoked" })
	_, err = key.Unwrap(t.Context(), wrapped)
	require.ErrorIs(t, err, ErrRefused)
	f.set(func() { f.answer = sealed })
	_, err = key.Unwrap(t.Context(), wrapped)
	require.ErrorIs(t, err, ErrUnavailable, "a refusal removes the cached key")
}

func TestKeyCacheIsBounded(t *testing.T) {
	t.Parallel()
	c, now := newKeyCache(20), time.Now()
	for i := range 1000 {
		c.put([]byte{byte(i), byte(i >> 8)}, make([]byte, KeyBytes), now.Add(time.Duration(i)))
		require.LessOrEqual(t, len(c.keys), 20)
	}
	kept, _ := c.get([]byte{byte(999 % 256), byte(999 >> 8)}, now.Add(time.Second))
	require.NotNil(t, kept, "the newest key is not removed")
}

// Only a wrapped key in Vault's form is sent to Vault.
func TestTransitRefusesOtherCiphertexts(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewServer)
	key, _ := openTransit(t, f, nil)
	for _, bad := range []string{"", "vault:v1:", "vault:v0:AAAA", "vault:v1:AA AA", "vault:v1:AAAA\n", "vault:v1:" + strings.Repeat("A", maxWrapped)} {
		_, err := key.Unwrap(t.Context(), []byte(bad))
		require.ErrorIs(t, err, ErrTampered, bad)
	}
	require.Empty(t, f.operations())
	_, wrapped, err := key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		altered := bytes.Clone(wrapped)
		altered[rapid.IntRange(9, len(altered)-3).Draw(rt, "at")] = rapid.SampledFrom([]byte("ABCDabcd0189+/")).Draw(rt, "letter")
		_, err := key.Unwrap(t.Context(), altered)
		if bytes.Equal(altered, wrapped) {
			require.NoError(rt, err)
		} else {
			require.ErrorIs(rt, err, ErrTampered)
		}
	})
}

func TestTransitTLS(t *testing.T) {
	t.Parallel()
	f := startVault(t, httptest.NewTLSServer)
	f.Config.ErrorLog = nil
	key, _ := openTransit(t, f, nil)
	_, _, err := key.Wrap(t.Context(), make([]byte, KeyBytes))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "certificate", "the system does not trust the certificate")

	roots := x509.NewCertPool()
	roots.AddCert(f.Certificate())
	trusting, _ := openTransit(t, f, func(c *TransitConfig) { c.RootCAs = roots })
	_, _, err = trusting.Wrap(t.Context(), make([]byte, KeyBytes))
	require.NoError(t, err)
}

func TestTransitSettings(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://vault.example.com:8200", "https://vault.example.com/", "http://127.0.0.1:8200", "http://localhost:1", "http://[::1]:8200",
	} {
		_, err := NewTransit(TransitConfig{Address: good, Token: vaultToken})
		require.NoError(t, err, good)
	}
	for _, bad := range []string{
		"", "vault.example.com:8200", "ftp://x", "https://", "https://u:p@vault.example.com", "https://vault.example.com/v1", "https://v.example?x=1",
		"http://vault.example.com:8200", "http://10.0.0.1:8200", "http://127.0.0.1.example.com", "http://localhost.example.com", "://",
	} {
		_, err := NewTransit(TransitConfig{Address: bad, Token: vaultToken})
		require.ErrorContains(t, err, "the address must", bad)
		require.NotContains(t, err.Error(), "u:p")
	}
	for says, change := range map[string]func(*TransitConfig){
		"either a token":    func(c *TransitConfig) { c.Token = "" },
		"either a token or": func(c *TransitConfig) { c.TokenFile = "x" },
		"the token is not":  func(c *TransitConfig) { c.Token = "canary\r\nX: y" },
		"the mount":         func(c *TransitConfig) { c.Mount = "../sys" },
		"the key's name":    func(c *TransitConfig) { c.Key = "a/b" },
		"the key's":         func(c *TransitConfig) { c.Key = ".." },
		"the namespace":     func(c *TransitConfig) { c.Namespace = "a//b" },
	} {
		c := TransitConfig{Address: "https://vault.example.com", Token: vaultToken}
		change(&c)
		_, err := NewTransit(c)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "canary")
	}
}
