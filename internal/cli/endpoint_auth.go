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
	MaxTLS      string `help:"The highest version of TLS: 1.2 for receivers that ask for the client certificate by path (Apache, IIS); any." enum:",1.2,any" name:"max-tls" placeholder:"1.2|any" default:""` //nolint:lll // a struct tag cannot be wrapped
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
	certificate := map[string]any{}
	switch a.MaxTLS {
	case "":
	case "any":
		certificate["max_tls"] = nil
	default:
		certificate["max_tls"] = a.MaxTLS
	}
	if a.Certificate == "" && a.Key == "" {
		if len(certificate) > 0 {
			fields["client_certificate"] = marshal(certificate)
		}
		return nil
	}
	if a.Certificate == "" || a.Key == "" {
		return usage("--client-certificate and --client-key: one needs the other")
	}
	pair, err := readFile(a.Certificate)
	if err != nil {
		return usagef("--client-certificate: %w", err)
	}
	key, err := readFile(a.Key)
	if err != nil {
		return usagef("--client-key: %w", err)
	}
	certificate["certificate"], certificate["key"] = string(pair), string(key)
	fields["client_certificate"] = marshal(certificate)
	return nil
}
