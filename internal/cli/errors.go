package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// refusal is an answer of the API that is an error, in one line for people.
type refusal struct {
	status int
	text   string
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// temporary reports whether the same request may be answered otherwise in a while.
func (r *refusal) temporary() bool {
	return r.status == http.StatusTooManyRequests || r.status >= http.StatusInternalServerError
}

// problem is RFC 9457 as Everpost writes it.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
}

// refused puts an answer that is not 2xx into words, with what to do about it.
func (s *session) refused(r request, asked *http.Request, response *http.Response, body []byte) error {
	var p problem
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if media != "application/problem+json" || json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return &refusal{response.StatusCode, fmt.Sprintf("%s answered %d %s, and not as Everpost does: is --url the address of its API?",
			s.base, response.StatusCode, http.StatusText(response.StatusCode))}
	}
	text := plain(p.Detail)
	if response.StatusCode == http.StatusUnauthorized && s.key == "" { // the detail speaks of headers
		text = "an API key is missing"
	}
	if len(p.Errors) > 0 {
		fields := make([]string, len(p.Errors))
		for i, e := range p.Errors {
			fields[i] = plain(e.Field + ": " + e.Message + r.given(e.Field))
		}
		text = strings.Join(fields, "; ")
	}
	return &refusal{response.StatusCode, text + s.hint(asked, response, p)}
}

// given is the value of a field or parameter of the request as an error quotes it, "" for
// one that is not a short plain value or may be a secret.
func (r request) given(name string) string {
	const longest = 100
	switch name {
	case "url", "secret", "headers", "auth", "client_certificate", "payload", "contact", "cursor":
		return ""
	}
	value := r.query.Get(name)
	if several := r.query[name]; len(several) > 1 {
		value = strings.Join(several, ",")
	}
	if value == "" {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(r.body, &fields) // a body that is no object has no fields
		var field any
		_ = json.Unmarshal(fields[name], &field)
		switch field := field.(type) {
		case string:
			value = field
		case float64, bool:
			value = string(fields[name])
		}
	}
	if value == "" || len(value) > longest {
		return ""
	}
	return fmt.Sprintf("; got %q", value)
}

// hint is what a person can do about a refusal, "" when the refusal says it all.
func (s *session) hint(asked *http.Request, response *http.Response, p problem) string {
	switch response.StatusCode {
	case http.StatusUnauthorized:
		from := ""
		switch {
		case s.source != "" && s.key != "":
			from = " (it is from " + s.source + ")"
		case s.source != "":
			from = " (there is no " + s.source + "; --data-dir or $EVERPOST_DATA_DIR says where standalone's data is)"
		}
		return from + "; give one with --key or $EVERPOST_KEY ('everpost keys create' makes one)"
	case http.StatusForbidden:
		return "; give one with --key or $EVERPOST_KEY, or use an operator key"
	case http.StatusNotFound:
		switch p.Detail {
		case "no such route":
			return fmt.Sprintf(" (%s %s); is that Everpost older than this command (%s)?", asked.Method, plain(asked.URL.Path), s.Version)
		case "no such tenant":
			return fmt.Sprintf(": %s; check --tenant, and that the key is this tenant's or an operator's", plain(s.tenant))
		}
		return fmt.Sprintf(" of tenant %s; check the id, and --tenant: what is another tenant's is not shown", plain(s.tenant))
	case http.StatusMethodNotAllowed:
		return fmt.Sprintf("; is that Everpost older than this command (%s)?", s.Version)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after := response.Header.Get("Retry-After"); after != "" {
			return "; try again in " + plain(after) + " s"
		}
	case http.StatusInternalServerError:
		return " (request " + plain(p.RequestID) + ")"
	}
	return ""
}

// silence is the error of a request that got no answer. known says that the
// request was not carried out either: nothing was sent.
type silence struct {
	text  string
	known bool
}

// Error implements error.
func (s *silence) Error() string { return s.text }

var errInterrupted = errors.New("interrupted")

// unreachable says why no answer came, without the request's query, which net/http
// would show.
func (s *session) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if refused := errors.Is(err, syscall.ECONNREFUSED); refused {
		return &silence{"is Everpost running at " + s.base + "? Nothing listens there. " +
			"Start it with 'make run', or give its address with --url or $EVERPOST_URL", true}
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return &silence{"the host of " + s.base + " is not known; check --url", true}
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return &silence{text: fmt.Sprintf("no answer from %s within %s", s.base, requestTimeout)}
	}
	return &silence{text: "no answer from " + s.base + ": " + plain(err.Error())}
}

// passing reports whether an error may be gone at the next try.
func passing(err error) bool {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.temporary()
	}
	_, ok := errors.AsType[*silence](err)
	return ok
}
