package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// requestTimeout bounds one request to the API as a whole. The slowest response is that
	// of an endpoint test, which takes as long as the receiver may: 30 s.
	requestTimeout = 45 * time.Second

	// maxAnswer is more than the largest page: 250 attempts with their excerpts.
	maxAnswer = 64 << 20

	operatorKeyFile = "operator.key" // written by standalone into its data directory
	maxKeyFile      = 4 << 10
)

// connection holds the flags of all commands that call the API.
type connection struct {
	URL     string `default:"http://127.0.0.1:8080" env:"EVERPOST_URL" help:"Address of Everpost's API." name:"url" placeholder:"URL" section:"client"`
	Key     string `env:"EVERPOST_KEY" help:"API key. Without one, on this machine, the operator key in the data directory is used." placeholder:"KEY" section:"client"` //nolint:lll // a struct tag cannot be wrapped
	DataDir string `default:".everpost" env:"EVERPOST_DATA_DIR" help:"Data directory of 'everpost standalone', where operator.key is." placeholder:"DIR"`
	JSON    bool   `help:"Print the API's response as JSON, for scripts." name:"json"`
}

// remote holds the flags of commands that concern one tenant.
type remote struct {
	connection `embed:""`

	Tenant string `env:"EVERPOST_TENANT" help:"Tenant of the events, deliveries and endpoints." placeholder:"ID" section:"client"`
}

// session is the state of a command that calls the API.
type session struct {
	Process

	http   *http.Client
	base   string // without a trailing slash
	key    string // "" when there is none
	source string // the file that contains the key, "" when the key was given
	tenant string
	json   bool
}

// request is one call of the API.
type request struct {
	method string
	path   []string // below /v1/tenants/{tenant}
	query  url.Values
	body   []byte // JSON; nil for none
	ofAll  bool   // the path is below /v1 and not below a tenant
	header map[string]string
}

// answer is a 2xx response of the API.
type answer struct {
	body   []byte
	header http.Header
}

// open checks the settings and finds the key. It sends nothing.
func (r *remote) open(p Process) (*session, error) {
	s, err := r.connection.open(p)
	if err != nil {
		return nil, err
	}
	if r.Tenant == "" {
		return nil, usage("--tenant: is required, here or as $EVERPOST_TENANT (the demonstration's is demo)")
	}
	s.tenant = r.Tenant
	return s, nil
}

// open is remote.open for commands that need no tenant.
func (r *connection) open(p Process) (*session, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		shown := ""
		if !strings.ContainsAny(r.URL, "@?#") { // the rest may contain a secret
			shown = fmt.Sprintf("%q ", r.URL)
		}
		return nil, usage("--url: " + shown + "must be an address such as http://127.0.0.1:8080, without a user, query or fragment")
	}
	key, source := strings.TrimSpace(r.Key), ""
	if key == "" && onThisMachine(u.Hostname()) {
		source = filepath.Join(r.DataDir, operatorKeyFile)
		if key, err = readOperatorKey(source); err != nil {
			return nil, err
		}
	}
	for _, c := range []byte(key) {
		if c < ' ' || c == 0x7f { // a preset operator key may be any phrase
			return nil, usage("--key: is not an API key: it holds a line end or another control character")
		}
	}
	return &session{
		Process: p, base: strings.TrimRight(u.String(), "/"), key: key, source: source, json: r.JSON,
		http: &http.Client{
			Timeout: requestTimeout,
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
				TLSHandshakeTimeout: 10 * time.Second,
				IdleConnTimeout:     time.Minute,
			},
			// Send the key to the given address only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// onThisMachine reports whether the host is loopback. The operator's key from the file is
// never sent anywhere else: a mistyped address would get it.
func onThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// readOperatorKey reads the key that standalone wrote for its operator, "" when there is
// none.
func readOperatorKey(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("operator key: %w; give a key with --key or $EVERPOST_KEY", err)
	}
	defer func() { _ = file.Close() }() // opened for reading
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return "", fmt.Errorf("operator key: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// close closes the idle connections.
func (s *session) close() { s.http.CloseIdleConnections() }

// do makes a request. A response that is not 2xx is an *apiError; any other error means
// that there was no response.
func (s *session) do(ctx context.Context, r request) (answer, error) {
	parts := []string{s.base, "v1"}
	if !r.ofAll {
		parts = append(parts, "tenants", url.PathEscape(s.tenant))
	}
	for _, part := range r.path {
		parts = append(parts, url.PathEscape(part))
	}
	target := strings.Join(parts, "/")
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, usage("--url: is not an address") // err contains the query
	}
	req.Header.Set("User-Agent", "everpost-cli/"+s.Version)
	req.Header.Set("Accept", "application/json")
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	response, err := s.http.Do(req)
	if err != nil {
		return answer{}, s.unreachable(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return answer{}, s.unreachable(ctx, err)
	}
	if len(body) > maxAnswer {
		return answer{}, fmt.Errorf("the answer of %s is larger than %d MiB", s.base, maxAnswer>>20)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return answer{}, s.newAPIError(r, req, response, body)
	}
	return answer{body: body, header: response.Header}, nil
}

// errNotEverpost is the error for a response that does not come from Everpost's API.
var errNotEverpost = errors.New("the answer is not what Everpost's API gives: is --url right?")

// decode decodes a response. The error is errNotEverpost.
func decode[T any](a answer) (T, error) {
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		return v, errNotEverpost
	}
	return v, nil
}

// marshal encodes maps and structs of plain values, which cannot fail.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// object returns a JSON object of the non-empty entries; nil when there are none.
func object(entries map[string]any) []byte {
	for name, value := range entries {
		if value == nil || value == "" {
			delete(entries, name)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return marshal(entries)
}
