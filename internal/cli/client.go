package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/credential"
)

// access holds the flags that say where the API is, and with which key it is called.
type access struct {
	URL     string `env:"EVERPOST_URL" help:"Address of Everpost's API. Without one: of the installation that runs in the data directory, or else http://127.0.0.1:8080." name:"url" placeholder:"URL" section:"client"` //nolint:lll // a struct tag cannot be wrapped
	Key     string `env:"EVERPOST_KEY" help:"API key. Without one, on this machine, the operator key in the data directory is used." placeholder:"KEY" section:"client"`                                                 //nolint:lll // a struct tag cannot be wrapped
	DataDir string `default:".everpost" env:"EVERPOST_DATA_DIR" help:"Data directory of 'everpost standalone', where operator.key and the addresses are." placeholder:"DIR"`                                             //nolint:lll // as above
}

// connection holds the flags of all commands that print what the API answers.
type connection struct {
	access `embed:""`

	JSON bool `help:"Print the API's response as JSON, for scripts." name:"json"`
}

// remote holds the flags of commands that concern one tenant.
type remote struct {
	connection `embed:""`

	Tenant string `env:"EVERPOST_TENANT" help:"Tenant of the events, deliveries and endpoints." placeholder:"ID" section:"client"`
}

// session is the state of a command that calls the API.
type session struct {
	Process

	api    *client.Client
	base   string // without a trailing slash
	key    string // "" when there is none
	source string // the file that contains the key, "" when the key was given
	tenant string
	json   bool
	flags  []string // with which a printed command reaches the same installation; never a key
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
	base, err := r.base()
	if err != nil {
		return nil, err
	}
	key, source, err := r.findKey(base)
	if err != nil {
		return nil, err
	}
	api, err := newClient(base, key, "everpost-cli/"+p.Version)
	return &session{Process: p, base: base, key: key, source: source, json: r.JSON, api: api, flags: r.flags(p.Environ)}, err
}

// newClient returns a client of the API at a checked address.
func newClient(base, key, agent string) (*client.Client, error) {
	c, err := client.New(client.Config{URL: base, Key: key, UserAgent: agent})
	if err != nil {
		return nil, usagef("--url: %w", err)
	}
	return c, nil
}

// flags are the address and the data directory as flags, unless the environment or the defaults say the same. A key is in no command that
// is printed.
func (a *access) flags(environ []string) (flags []string) {
	for _, f := range []struct{ flag, value, env, initial string }{
		{"--url", a.URL, "EVERPOST_URL", ""}, {"--data-dir", a.DataDir, "EVERPOST_DATA_DIR", ".everpost"},
	} {
		known := f.initial
		for _, entry := range environ {
			if value, found := strings.CutPrefix(entry, f.env+"="); found && value != "" {
				known = value
			}
		}
		if f.value != known {
			flags = append(flags, f.flag, f.value)
		}
	}
	return flags
}

// defaultURL is the address of an installation that was started without settings.
const defaultURL = "http://127.0.0.1:8080"

// base checks the address of the API and returns it without a trailing slash. Without one it is that of the installation that runs in the
// data directory.
func (a *access) base() (string, error) {
	if a.URL == "" {
		address, err := runningAt(a.DataDir, addressFile, "")
		if err != nil || address == "" {
			return defaultURL, err
		}
		return "http://" + address, nil
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		shown := ""
		if !strings.ContainsAny(a.URL, "@?#") { // the rest may contain a secret
			shown = fmt.Sprintf("%q ", a.URL)
		}
		return "", usage("--url: " + shown + "must be an address such as http://127.0.0.1:8080, without a user, query or fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// findKey returns the key, "" when there is none, and the file in which it was looked for, ""
// when it was given. base is a checked address.
func (a *access) findKey(base string) (key, source string, err error) {
	// A preset operator key may be any phrase.
	if key, err = credential.Clean(a.Key, true); err != nil {
		return "", "", usagef("--key: %w", err)
	}
	if key != "" {
		return key, "", nil
	}
	if key, source, err = operatorKey(base, a.DataDir); err != nil {
		return "", "", err
	}
	if key, err = credential.Clean(key, true); err != nil {
		return "", "", usagef("%s: %w", source, err)
	}
	return key, source, nil
}

// close closes the idle connections.
func (s *session) close() { s.api.Close() }

// do makes a request. A response that is not 2xx is an *apiError, and a *noAnswerError or errInterrupted means that there
// was none.
func (s *session) do(ctx context.Context, r request) (client.Answer, error) {
	path := r.path
	if !r.ofAll {
		path = append([]string{"tenants", s.tenant}, path...)
	}
	a, err := s.api.Do(ctx, client.Request{Method: r.method, Path: path, Query: r.query, Body: r.body, Header: r.header})
	return a, s.understood(ctx, r, err)
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
