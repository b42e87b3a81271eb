package webhook

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/textproto"
	"slices"
	"strings"
)

const (
	// Redacted replaces a secret.
	Redacted = "[redacted]"

	// Shorter values are not redacted: they would match by chance. The limit is lower for
	// the Authorization header, whose value is always a secret.
	minEchoedCredential, minEchoedHeader = 4, 8
	// minEchoedPart is the shortest prefix of a secret that is redacted at the end of a truncated response.
	minEchoedPart = 4
)

// Echoes are secrets of a request in the spellings in which a response may repeat them:
// verbatim, and escaped as in a JSON string.
type Echoes []string // longest first, because one may contain another

// EchoesOfHeader returns the secrets in request header fields: the values; and of
// Authorization also the credentials alone, for Basic also decoded, and the password.
func EchoesOfHeader(fields ...[2]string) Echoes {
	var found Echoes
	for _, field := range fields {
		value := strings.Trim(field[1], " \t") // as net/http sends it
		switch textproto.CanonicalMIMEHeaderKey(field[0]) {
		case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Type", "User-Agent":
		case "Authorization":
			found = found.add(minEchoedCredential, credentialsIn(value)...)
		default:
			found = found.add(minEchoedHeader, value)
		}
	}
	return found.sorted()
}

// And returns the union of two sets.
func (e Echoes) And(others Echoes) Echoes {
	return append(slices.Clip(e), others...).sorted()
}

func (e Echoes) sorted() Echoes {
	slices.SortFunc(e, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(e)
}

// credentialsIn returns the value of an Authorization header and the secrets in it.
func credentialsIn(value string) []string {
	all := []string{value}
	scheme, credentials, ok := strings.Cut(value, " ")
	if !ok {
		return all
	}
	credentials = strings.TrimLeft(credentials, " ")
	all = append(all, credentials)
	if !strings.EqualFold(scheme, "Basic") {
		return all
	}
	pair, err := base64.StdEncoding.DecodeString(credentials)
	if err != nil {
		return all
	}
	_, password, _ := strings.Cut(string(pair), ":")
	return append(all, string(pair), password)
}

func (e Echoes) add(least int, values ...string) Echoes {
	for _, value := range values {
		if len(value) >= least {
			plain := inJSON(value, false)
			e = append(e, value, plain, inJSON(value, true), strings.ReplaceAll(plain, "/", `\/`))
		}
	}
	return e
}

// inJSON returns the text as the content of a JSON string, optionally with the escapes that
// make it safe in HTML.
func inJSON(value string, forHTML bool) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(forHTML)
	if err := encoder.Encode(value); err != nil { // Encode does not fail for a string
		return value
	}
	return strings.TrimSuffix(text.String()[1:], "\"\n")
}

// RedactText replaces the secrets in the text. If the text is truncated (brokenOff), it also
// replaces the beginning of a secret at the end.
func (e Echoes) RedactText(text []byte, brokenOff bool) []byte {
	for _, echo := range e {
		if bytes.Contains(text, []byte(echo)) {
			text = bytes.ReplaceAll(text, []byte(echo), []byte(Redacted))
		}
	}
	if !brokenOff {
		return text
	}
	longest := 0
	for _, echo := range e {
		for n := min(len(echo)-1, len(text)); n >= minEchoedPart && n > longest; n-- {
			if bytes.HasSuffix(text, []byte(echo[:n])) {
				longest = n
			}
		}
	}
	if longest == 0 {
		return text
	}
	return append(slices.Clip(text[:len(text)-longest]), Redacted...)
}

// RedactHeader replaces the secrets in the values of a header.
func (e Echoes) RedactHeader(header map[string][]string) {
	for _, values := range header {
		for i, value := range values {
			for _, echo := range e {
				value = strings.ReplaceAll(value, echo, Redacted)
			}
			values[i] = value
		}
	}
}
