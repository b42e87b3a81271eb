package cli

import (
	"encoding/json"
	"strings"
)

// endpointAuth are the secret settings of an endpoint. They come from files or standard
// input, because every user of a machine can see a command line.
type endpointAuth struct {
	Auth        source `help:"How requests are authenticated: a JSON object, as @file, or - for standard input; null for none." placeholder:"@FILE|-|null"`
	Certificate string `help:"A file with the client certificate for the receiver, in PEM." name:"client-certificate" placeholder:"FILE"`
	Key         string `help:"A file with its key, in PEM." name:"client-key" placeholder:"FILE"`
}

// authInto sets the given fields.
func (a *endpointAuth) authInto(fields map[string]json.RawMessage, p Process) error {
	if a.Auth != "" {
		if a.Auth != "-" && a.Auth != "null" && !strings.HasPrefix(string(a.Auth), "@") {
			return usage("--auth: must be @file, - or null: every user of a machine can see a command line")
		}
		text, err := a.Auth.read(p, "--auth")
		if err != nil {
			return err
		}
		fields["auth"] = text
	}
	if a.Certificate == "" && a.Key == "" {
		return nil
	}
	if a.Certificate == "" || a.Key == "" {
		return usage("--client-certificate and --client-key: one needs the other")
	}
	certificate, err := readFile(a.Certificate)
	if err != nil {
		return usagef("--client-certificate: %w", err)
	}
	key, err := readFile(a.Key)
	if err != nil {
		return usagef("--client-key: %w", err)
	}
	fields["client_certificate"] = marshal(map[string]string{"certificate": string(certificate), "key": string(key)})
	return nil
}
