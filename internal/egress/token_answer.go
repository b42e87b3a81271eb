package egress

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// tokenAnswer is what a token server answered (RFC 6749, sections 5.1 and 5.2).
type tokenAnswer struct {
	token, kind string
	life        time.Duration // 0: not said, or not readable
	code        string        // of an error
}

// readTokenAnswer reads an answer. Servers get the content type wrong, so the body decides: what begins like a JSON object is one,
// anything else is a form, which some servers send. What cannot be read stays empty.
func readTokenAnswer(body []byte) tokenAnswer {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if !bytes.HasPrefix(body, []byte("{")) {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			form = nil
		}
		return tokenAnswer{form.Get("access_token"), form.Get("token_type"), tokenLife(form.Get("expires_in")), form.Get("error")}
	}
	// Fields are read one by one, so that one of another type does not lose the rest.
	var fields struct {
		Token json.RawMessage `json:"access_token"`
		Kind  json.RawMessage `json:"token_type"`
		Life  json.RawMessage `json:"expires_in"`
		Code  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &fields) != nil {
		return tokenAnswer{}
	}
	text := func(raw json.RawMessage) string {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	}
	life := text(fields.Life)
	if life == "" {
		life = string(fields.Life) // a number
	}
	return tokenAnswer{text(fields.Token), text(fields.Kind), tokenLife(life), text(fields.Code)}
}

// tokenLife reads expires_in, in seconds: an integer or any other number, also one in quotes. It is 0 if there is none, and
// maxTokenLife at most.
func tokenLife(text string) time.Duration {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if (err != nil && !math.IsInf(seconds, 1)) || !(seconds > 0) { // NaN, too
		return 0
	}
	return time.Duration(min(seconds, maxTokenLife.Seconds()) * float64(time.Second))
}

// tokenOf returns the token in an answer, which was requested at a time. The error is a *knownError.
func tokenOf(response *Response, requested time.Time) (*token, error) {
	refused := func(cause string) error {
		return &knownError{class: retry.FailureTokenRefused, cause: "the token server" + cause}
	}
	answer := readTokenAnswer(response.Body)
	if status := response.Answer.Status; status < 200 || status > 299 || answer.code != "" {
		return nil, tokenRefusal(response, answer.code)
	}
	got := strings.TrimSpace(answer.token)
	switch {
	case response.Truncated:
		return nil, refused("'s answer is too long")
	case got == "":
		return nil, refused("'s answer holds no token")
	case len(got) > maxTokenBytes:
		return nil, refused(" gave a token above 16 KiB")
	case strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, refused(" gave a token that is not printable")
	// Such a token is worth nothing without a signature over each request (RFC 9449). Every other type is a bearer token, whatever
	// its spelling: there is no other that client credentials yield in practice.
	case strings.EqualFold(strings.TrimSpace(answer.kind), "DPoP"):
		return nil, refused(" gave a DPoP token, which Everpost cannot use")
	}
	use := defaultTokenLife
	if answer.life > 0 {
		use = answer.life - min(maxRenewBefore, answer.life/5)
	}
	return &token{header: "Bearer " + got, until: requested.Add(use)}, nil
}

// tokenRefusal is the failure that an answer without a token is, without anything that may be secret.
func tokenRefusal(response *Response, code string) *knownError {
	status, header := response.Answer.Status, http.Header(response.Header)
	e := &knownError{
		class: retry.FailureTokenRefused, cause: "the token server answered " + strconv.Itoa(status),
		retryAfter: shortHeader(header, "Retry-After"), date: shortHeader(header, "Date"),
	}
	// Error codes of RFC 6749, section 5.2, and two that some servers use. Any other code
	// is the token server's own text and is left out.
	if slices.Contains([]string{
		"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
		"server_error", "temporarily_unavailable",
	}, code) {
		e.cause += " (" + code + ")"
	}
	refused := status >= 200 && status <= 499 && status != http.StatusRequestTimeout && status != http.StatusTooEarly && status != http.StatusTooManyRequests
	if !refused || code == "server_error" || code == "temporarily_unavailable" {
		e.class = retry.FailureTokenUnavailable
	}
	return e
}

// shortHeader returns a field of a token server's response, "" if it is too long.
func shortHeader(header http.Header, name string) string {
	value := header.Get(name)
	if len(value) > maxTokenHeaderBytes {
		return ""
	}
	return strings.Clone(value)
}
