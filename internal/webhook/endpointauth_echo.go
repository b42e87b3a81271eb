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
	// Redacted stands for what was secret.
	Redacted = "[redacted]"

	// Shorter values are not looked for: they would be found by chance. What is in an
	// Authorization header is a secret for certain, another header often is none.
	minEchoedCredential, minEchoedHeader = 4, 8
	// minEchoedPart is how much of a value is looked for where an answer breaks off.
	minEchoedPart = 4
)

// Echoes are secrets that were sent to a receiver, in the spellings that its answer may
// repeat them in: as they were, and as a string in JSON.
type Echoes []string // longest first: one may be a part of another

// EchoesOfHeader are the secrets in the header fields, which are an endpoint's own or
// made of its Auth: the values, and of Authorization also the token, the user's name
// with the password in base64 and as they are, and the password.
func EchoesOfHeader(fields ...[2]string) Echoes {
	var found Echoes
	for _, field := range fields {
		value := strings.Trim(field[1], " \t") // as it is sent
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

// And are these echoes and others.
func (e Echoes) And(others Echoes) Echoes {
	return append(slices.Clip(e), others...).sorted()
}

func (e Echoes) sorted() Echoes {
	slices.SortFunc(e, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(e)
}

// credentialsIn takes the value of an Authorization header apart.
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

// inJSON is the text as it stands between the quotes of a string in JSON, with or without
// the escapes that some use so that it may stand in HTML, too.
func inJSON(value string, forHTML bool) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(forHTML)
	if err := encoder.Encode(value); err != nil { // no text is known that has none
		return value
	}
	return strings.TrimSuffix(text.String()[1:], "\"\n")
}

// RedactText returns the text without the secrets. brokenOff tells that it ends where
// the answer did not: what it ends with may be the beginning of one.
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

// RedactHeader removes the secrets from the values of a header.
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
