package cli

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/credential"
)

// EndpointsRotateSecretCommand gives an endpoint a new secret.
type EndpointsRotateSecretCommand struct {
	oneEndpoint `embed:""`

	Grace  *time.Duration `help:"How long the old secrets stay in use, 0s to 168h; 24h without it." placeholder:"DURATION"`
	Secret string         `help:"The new secret: @file, or - for standard input. Generated without it." placeholder:"@FILE|-"`

	SecretEncoding string `enum:",base64,hex,text" default:"" help:"How --secret holds the key: base64, hex, or text for its bytes as they are. Without it, base64 after whsec_." name:"secret-encoding" placeholder:"ENCODING"` //nolint:lll // a struct tag cannot be wrapped
}

// Run rotates it.
func (c *EndpointsRotateSecretCommand) Run(ctx context.Context, p Process) error {
	body := map[string]any{}
	if c.Grace != nil {
		body["grace"] = c.Grace.String()
	}
	if c.Secret != "" {
		secret, err := c.secret(p)
		if err != nil {
			return err
		}
		body["secret"] = secret
	}
	if c.SecretEncoding != "" {
		body["secret_encoding"] = c.SecretEncoding
	}
	return c.once(ctx, p, c.newRequest(http.MethodPost, "rotate-secret", object(body)))
}

// secret reads the secret; errors contain nothing of it.
func (c *EndpointsRotateSecretCommand) secret(p Process) (string, error) {
	var (
		text []byte
		err  error
	)
	switch file, isFile := strings.CutPrefix(c.Secret, "@"); {
	case c.Secret == "-":
		text, err = readBounded(p.stdin())
	case isFile:
		text, err = readFile(file)
	default:
		err = errors.New("must be @file or -: every user of a machine can see a command line")
	}
	if err != nil {
		return "", usagef("--secret: %w", err)
	}
	return credential.Trim(string(text)), nil
}
